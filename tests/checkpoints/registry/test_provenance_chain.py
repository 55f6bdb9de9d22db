"""The chain from a record back to the code that it rests on."""

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.schema import MethodCode
from fedscope.checkpoints.registry.method_code import is_same
from fedscope.checkpoints.registry.provenance_chain import record_links
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError


def test_code_without_a_known_source_is_the_same_in_one_version_alone() -> None:
    then = MethodCode(method="drag", package="drag", version="1.0", source="")
    assert is_same(then, then)
    assert not is_same(then, then.model_copy(update={"version": "1.1"}))
    known = then.model_copy(update={"source": "a" * 64})
    assert is_same(known, known.model_copy(update={"version": "1.1"}))
    assert not is_same(known, then)


def test_an_analysis_tells_its_problem_and_leads_to_its_checkpoint(run: RunFolder) -> None:
    sha256 = load_checkpoint(run.final).sha256
    record = {"schema": "s/1", "checkpoint": {"sha256": sha256}, "problem": {"samples": 64, "bn": "eval"}}
    for about in (record, {"analyses": [record]}):
        links = {link.kind: link for link in record_links(RunRegistry(run.root), "a.json", about)}
        assert links["analysis"].details == {"samples": "64", "bn": "eval"}
        assert links["checkpoint"].details["sha256"] == sha256
        assert links["checkpoint"].fault is None
        assert links["data"].details["fingerprint"]
    absent = {"schema": "s/1", "checkpoint": {"sha256": "0" * 64}}
    *_, last = record_links(RunRegistry(run.root), "a.json", absent)
    assert "no checkpoint with this content" in str(last.fault)
    with pytest.raises(UserError, match=r"a\.json"):
        list(record_links(RunRegistry(run.root), "a.json", {"loss": 1}))
