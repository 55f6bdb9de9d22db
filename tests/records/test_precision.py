"""Which of several results of one checkpoint on as many samples counts."""

from itertools import permutations

from fedscope.records.saved_records import hessians, most_precise
from tests.figures.records import curvature


def test_the_narrowest_trace_counts_with_the_layers_that_others_have() -> None:
    layer = {"name": "fc", "value": 1.0, "residual": 0.0, "stderr_data": 0.1}
    wide, narrow, untold = curvature(), curvature(), curvature()
    wide = {**wide, "trace": {**wide["trace"], "interval": [0.0, 900.0]}, "layers": [layer]}
    narrow["trace"] = {**narrow["trace"], "value": 510.0, "interval": [500.0, 520.0]}
    untold["layers"] = [{**layer, "value": 2.0}]
    for records in permutations(hessians([wide, narrow, untold])):
        found = most_precise(records)
        assert found.trace
        assert found.trace.value == 510
        assert [one.value for one in found.layers] == [1]


def test_without_an_interval_more_probes_count() -> None:
    few, many = hessians(
        [{**curvature(), "trace": {**curvature()["trace"], "probes": n, "value": n}} for n in (2, 8)]
    )
    assert most_precise([few, many]) is most_precise([many, few]) is many
