from pathlib import Path

import torch
from safetensors import safe_open

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.workflows.export import export_safetensors, export_state_dict
from tests.checkpoints.cases import info, small_run


def test_weights_leave_for_other_programs(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    tied = torch.arange(4.0)
    state = {"a": tied, "b": tied, "c": torch.ones(2, 3, dtype=torch.bfloat16), "n": torch.tensor(5)}
    save_checkpoint(run.final, state, info("small", 3))
    export_state_dict(run.final, tmp_path / "a.pt")
    export_safetensors(run.final, tmp_path / "a.safetensors")
    plain = torch.load(tmp_path / "a.pt", weights_only=True)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        about = file.metadata()
        safe = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert about["sha256"] == load_checkpoint(run.final).sha256
    assert CheckpointInfo.model_validate_json(about["fedscope"]) == load_checkpoint(run.final).info
    for found in (plain, safe):
        assert found.keys() == state.keys()
        assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in state.items())
