from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.cli.conftest import Command

MODULE = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight
    def forward(self, ids, scale):
        return {"logits": self.out(self.embed(ids).mean(1) * scale)}

class Crooked(Two):
    def forward(self, ids, scale): return super().forward(ids, scale[:3])

def network(): return Two()
def crooked(): return Crooked()
def data():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, (20, 4), generator=generator)
    for rows in (slice(0, 8), slice(8, 16), slice(16, 20)):
        yield {"ids": ids[rows], "scale": ids[rows, :1] / 4}, ids[rows, 0]
def many():
    ids = torch.arange(12000).reshape(3000, 4) % 5
    yield {"ids": ids, "scale": ids[:, :1] / 4}, ids[:, 0]
def loss(output, labels): return cross_entropy(output["logits"], labels)
def total(output, labels): return cross_entropy(output["logits"], labels, reduction="sum")
def between(output, labels):
    z = output["logits"]
    z = z / (z.square().sum(1, keepdim=True) + 0.1).sqrt()
    return cross_entropy(z @ z.T, torch.arange(len(z)))
def broken(output, labels): raise ValueError("no loss today")
"""
OWN = ("--model", "two:network", "--data", "two:data", "--batch-size", "8", "--threads", "1")


@pytest.fixture
def folder(tmp_path: Path, fedscope: Command) -> str:
    """A folder as Hugging Face's libraries write it: of weights that are shared, one."""
    (tmp_path / "two.py").write_text(MODULE)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "two"}')
    save_file({"embed.weight": torch.randn(5, 3)}, tmp_path / "tiny" / "model.safetensors")
    return "tiny"


def test_a_folder_two_inputs_and_a_loss_of_ones_own(fedscope: Command, folder: str) -> None:
    loss = ("--loss", "two:loss")
    done = fedscope("hessian", folder, *OWN, *loss, "--probes", "4", "--dtype", "float64", "--json", "-")
    assert done.code == 0, done.err
    assert "out.weight shares the weights of embed.weight" in done.err
    assert (done.json["problem"]["loss"], done.json["problem"]["samples"]) == ("two:loss", 20)
    one = fedscope(
        "hessian", folder, *OWN[:4], *loss, "--batch-size", "20", "--dtype", "float64", "--json", "-"
    )
    assert one.json["lambda_max"]["value"] == pytest.approx(done.json["lambda_max"]["value"], rel=1e-2)
    drawn = fedscope(
        "plot-landscape", folder, *OWN, *loss, "--grid", "3", "--samples", "10", "--json", "-"
    ).json
    assert drawn["problem"]["samples"] == 10


def test_ones_own_data_are_taken_whole(fedscope: Command, folder: str) -> None:
    """Also where they are more than the default number of samples of a data set."""
    own = ("--model", "two:network", "--data", "two:many", "--loss", "two:loss", "--threads", "1")
    few = ("--batch-size", "3000", "--probes", "2", "--json", "-")
    done = fedscope("hessian", folder, *own, *few)
    assert (done.code, done.json["problem"]["samples"]) == (0, 3000), done.err
    assert fedscope("hessian", folder, *own, *few, "--samples", "100").json["problem"]["samples"] == 100


def test_a_loss_between_samples_is_taken_in_one_batch(fedscope: Command, folder: str) -> None:
    done = fedscope(
        "hessian", folder, *OWN[:4], "--loss", "two:between", "--batch-size", "20", "--probes", "4"
    )
    assert done.code == 0, done.err
    unasked = fedscope("hessian", folder, *OWN[:4], "--loss", "two:between", "--probes", "4")
    assert "all 20 are one batch" in unasked.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*OWN, "--loss", "two:total"), "the loss is a sum over samples"),
        ((*OWN, "--loss", "two:total", "--batch-size", "20"), "the loss is a sum over samples"),
        ((*OWN, "--loss", "two:between"), "the loss is no mean over samples"),
        ((*OWN, "--loss", "two:broken"), "fails in two:broken: ValueError: no loss today"),
        ((*OWN, "--loss", "two:absent"), "--loss two:absent: two has no 'absent'"),
        (OWN, "fails in cross-entropy (give another with --loss): TypeError"),  # of a dict
        ((*OWN, "--loss", "two:loss", "--model", "two:crooked"), "fails in two:crooked: RuntimeError"),
        (("--loss", "two:loss"), "--model and --data go together"),
    ],
)
def test_faults_of_a_loss_are_one_line(
    fedscope: Command, folder: str, options: tuple[str, ...], message: str
) -> None:
    torch.save(nn.Linear(1, 1).state_dict(), "w.pt")
    done = fedscope("hessian", folder if "--model" in options else "w.pt", *options)
    assert (done.code, message in done.err, "Traceback" in done.err) == (2, True, False)
