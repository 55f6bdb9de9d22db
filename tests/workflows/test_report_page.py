"""Which of several kept records a report shows."""

import json
import os
from itertools import permutations
from pathlib import Path

from fedscope.records.saved_records import hessians, landscapes
from fedscope.workflows.landscape.landscape_command import stored_records
from fedscope.workflows.report_page import best_of
from fedscope.workflows.results.result_cache import digest
from tests.figures.records import crossed, curvature, landscape


def test_the_fullest_curvature_is_shown_whatever_the_order() -> None:
    few, many = curvature(), curvature()
    few["problem"] = {**few["problem"], "parameters": None, "samples": 100}
    many["problem"] = {**few["problem"], "samples": 1000}
    compared = {**few, "cross_client": crossed()}  # a part more counts more than samples
    other = {**many, "problem": {**many["problem"], "engine": "pyhessian"}}
    sha256 = few["checkpoint"]["sha256"]
    fewer, more, pyhessian, pairs = hessians([few, many, other, compared])
    for records in permutations([fewer, more, pyhessian]):
        assert [found is more for found in best_of(records, [sha256])] == [True]
    for records in permutations([fewer, more, pairs]):
        assert [found is pairs for found in best_of(records, [sha256])] == [True]
    for records in permutations([fewer, more]):
        assert [found is fewer for found in best_of(records, [sha256], 100)] == [True]  # as asked for
    narrow = more.edited(trace={**few["trace"], "interval": [499.0, 501.0]})
    wide = more.edited(trace={**few["trace"], "interval": [400.0, 600.0]})
    for records in permutations([wide, narrow, more]):
        assert [found is narrow for found in best_of(records, [sha256])] == [True]
    assert best_of([fewer, more], []) == []


def test_the_finest_landscape_of_each_kind_is_shown_whatever_the_order() -> None:
    planes = landscape(points=5), landscape(points=11), landscape(points=5, directions="random")
    coarse, fine, other = landscapes(planes)
    for records in permutations([coarse, fine, other]):
        assert sorted(map(id, best_of(records, []))) == sorted(map(id, (fine, other)))


def test_of_landscapes_as_fine_the_one_measured_last_is_shown_whatever_the_files_are_called(
    tmp_path: Path,
) -> None:
    near, far = landscape(points=5), landscape(points=5, curvature=3.0)
    for first, last in permutations((near, far)):
        for names in permutations(("a.json", "b.json")):
            for name, content, time in zip(names, (first, last), (1, 2), strict=True):
                kept = tmp_path / name
                kept.write_text(json.dumps({"record": content, "sha256": digest(content)}))
                os.utime(kept, (time, time))
            (shown,) = best_of(stored_records(tmp_path, [near["checkpoint"]["sha256"]]), [])
            assert shown.to_json()["loss"] == last["loss"]
