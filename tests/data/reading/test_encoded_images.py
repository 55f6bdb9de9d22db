"""Images that are decoded as they are fetched: the same in processes as in this one; clear when it fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from fedscope.data.reading.encoded_images import Files, _pool, decoders
from fedscope.data.sets.dataset_catalogue import load, pipeline
from fedscope.errors import UserError
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.methods import parse
from fedscope.federated.parallel.evaluation import score_sums
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import LocalSettings, Task
from tests.data.layouts import images, make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    make("imagenet200", root)
    return root


def store(folder: Path) -> Files:
    files = load("imagenet200", folder).train.images
    assert isinstance(files, Files)
    return files


def test_processes_decode_the_same_as_this_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, chosen = store(folder), pipeline("imagenet200")[1]
    draws = chosen.draw(20, torch.Generator().manual_seed(0))
    batches = list(zip(torch.arange(20).split(8), draws.split(8, 1), strict=True))
    monkeypatch.setenv("FEDSCOPE_DECODERS", "0")
    alone = [chosen.train(files, rows, drawn) for rows, drawn in batches]
    monkeypatch.setenv("FEDSCOPE_DECODERS", "1")
    ahead = [chosen.train(files, rows, drawn) for rows, drawn in chosen.ahead(files, batches)]
    assert [image.shape for image in alone] == [(8, 3, 224, 224), (8, 3, 224, 224), (4, 3, 224, 224)]
    assert all(torch.equal(a, b) for a, b in zip(alone, ahead, strict=True))
    assert files._prefetched == {}
    assert torch.equal(chosen.test(files[torch.tensor([7, 2])]), chosen.test(files, torch.tensor([7, 2])))


def test_a_corrupt_file_is_named_and_the_next_batch_is_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSCOPE_DECODERS", "1")
    files = store(folder)
    path = next(iter(images(folder)))
    whole = path.read_bytes()
    path.write_bytes(whole[:400] + bytes(len(whole) - 400)[:200])
    try:
        with pytest.raises(UserError, match=f"cannot decode {path}"):
            files.fetch(torch.tensor([0, 1]))
        path.unlink()
        with pytest.raises(UserError, match=f"{path}: No such file"):
            files.fetch(torch.tensor([0]))
        assert files.fetch(torch.tensor([1])).shape == (1, 3, 224, 224)
    finally:
        path.write_bytes(whole)


def test_a_second_folder_with_the_same_images_is_read_itself(folder: Path, tmp_path: Path) -> None:
    store(folder)
    make("imagenet200", tmp_path)
    assert all(path.is_relative_to(tmp_path) for path in store(tmp_path).paths)


def test_a_killed_process_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_DECODERS", "1")
    files = store(folder)
    files.fetch(torch.tensor([0]))
    for process in list(_pool()._processes.values()):
        process.kill()
    with pytest.raises(UserError, match="FEDSCOPE_DECODERS"):
        files.fetch(torch.tensor([0]))
    assert files.fetch(torch.tensor([0])).shape == (1, 3, 224, 224)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_processes_end_with_the_command_however_it_ends(folder: Path) -> None:
    code = f"""
if __name__ == "__main__":
    import os, signal, torch
    from pathlib import Path
    from fedscope.data.sets.dataset_catalogue import load
    from fedscope.data.reading.encoded_images import _pool
    load("imagenet200", Path({str(folder)!r})).train.images.fetch(torch.tensor([0]))
    print(*_pool()._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    script = folder / "command.py"
    script.write_text(code, encoding="utf-8")
    command = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=os.environ | {"FEDSCOPE_DECODERS": "1"}
    )
    assert command.stdout is not None
    children = [int(pid) for pid in command.stdout.readline().split()]
    command.stdout.close()
    assert command.wait() == -signal.SIGKILL
    assert children
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in children):
            return
        time.sleep(0.1)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    raise AssertionError("decoding processes outlived the command")


def test_training_and_evaluation_take_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, chosen = load("imagenet200", folder), pipeline("imagenet200")[1]
    ends, plain = [], parse("fedavg")
    for processes in ("0", "1"):
        monkeypatch.setenv("FEDSCOPE_DECODERS", processes)
        torch.manual_seed(0)
        model = FlatModel(nn.Sequential(nn.AvgPool2d(56), nn.Flatten(), nn.Linear(48, 5)))
        trainer = LocalTrainer(model, dataset.train, chosen, plain, {}, LocalSettings(2, 16))
        task = Task(torch.arange(40), torch.Generator().manual_seed(1), torch.Generator().manual_seed(2))
        done = trainer.train(model.values[0].clone(), model.counters.clone(), [task], 0.1)
        ends.append((done.values, score_sums(model.module, dataset.test, chosen)))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][1].isfinite().all()


def test_the_number_of_processes_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_DECODERS", "many")
    with pytest.raises(UserError, match=r"processes .*'many'"):
        decoders()
