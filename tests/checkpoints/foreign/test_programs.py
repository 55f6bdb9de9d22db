"""A hundred files as programs leave them: the right weights or the right sentence, never another network's.

The shapes are those of the programs' own code, at the versions that docs/foreign.md names.
"""

import datetime
from argparse import Namespace
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedscope.checkpoints.foreign.fitting import fit
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.errors import UserError


def network() -> nn.Module:
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2), fc=nn.Linear(2, 3)))


WANTED = network().state_dict(keep_vars=True)
STATE = {
    name: torch.rand(t.shape) + 0.5 if t.is_floating_point() else torch.tensor(7)
    for name, t in WANTED.items()
}
OTHER = {name: tensor + 1 for name, tensor in STATE.items()}
STATISTICS = [name for name, tensor in WANTED.items() if not isinstance(tensor, nn.Parameter)]
DAY = datetime.datetime(2026, 1, 1)
Write = Callable[[Path], object]


def under(prefix: str, state: Mapping[str, Tensor] = STATE) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def saved(content: object, **how: Any) -> Write:
    return lambda path: torch.save(content, path, **how)


def written(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def parts(path: Path) -> None:
    with path.open("wb") as file:
        for tensor in STATE.values():
            torch.save(tensor, file)


def history() -> defaultdict[str, list[object]]:
    made: defaultdict[str, list[object]] = defaultdict(list)
    made["accuracy"] += [np.float64(0.5), np.mean([0.25, 0.75], dtype=np.float32)]
    return made


OPTIMIZER = {"state": {0: {"momentum_buffer": torch.ones(2, 1, 3, 3)}}, "param_groups": [{"lr": 0.1}]}
MODOPT = {"model": STATE, "optimizer": OPTIMIZER, "scheduler": None, "additional": {}}
DICTS: dict[str, dict[str, Any]] = {
    "fluke 0.8.1, server": {"model": STATE},
    "fluke 0.8.1, client": {"modopt": MODOPT, "index": 1, "last_round": 3},
    "NVFlare 2.9.0": {
        "model": {**STATE, "bn.num_batches_tracked": torch.tensor(7.0, dtype=torch.float64)},
        "meta_props": {"round": 3}, "train_conf": {"train": {"model": "net"}},
    },
    "FLGo 0.4.4": {"round": 2, "learning_rate": 0.1, "model_state_dict": STATE, "output": history()},
    "Lightning 2.6.6": {"epoch": 1, "state_dict": under("model."), "optimizer_states": [OPTIMIZER]},
    "FedML": {"net": under("module.")},
    "PFLlib": {"state_dict": under("base."), "id": 3},
}  # fmt: skip
BESIDE: dict[str, dict[str, object]] = {
    "alone": {},
    "its best accuracy": {"best_acc": np.float64(0.5), "best_round": np.int64(3)},
    "a history": {"history": history(), "seconds": np.array([1.5, 2.5])},
    "random states": {"numpy": np.random.get_state(), "generator": np.random.default_rng(0)},
    "a path and a date": {"at": DAY, "day": {DAY.date(): Path("x")}},
    "its options": {"args": Namespace(lr=0.1, loss=nn.CrossEntropyLoss)},
    "a format": {"format": "pt"},
    "a mask": {"mask": torch.eye(3).to_sparse()},
}  # fmt: skip
DICTS_WITH = {
    f"{program} with {beside}": saved({**content, **extra})
    for program, content in DICTS.items()
    for beside, extra in BESIDE.items()
}
ARRAYS = {name: tensor.numpy() for name, tensor in STATE.items()}
DOUBLE = {**STATE, "bn.num_batches_tracked": torch.tensor(7.0, dtype=torch.float64)}
VECTOR = torch.cat([tensor.reshape(-1).float() for tensor in STATE.values()])
PARAMETERS = [STATE[name] for name, tensor in WANTED.items() if isinstance(tensor, nn.Parameter)]
READ: dict[str, Write] = {
    **DICTS_WITH,
    "Plato 1.41": saved(OrderedDict(STATE)),
    "APPFL 1.12.0": saved(STATE),
    "pfl 0.6.0": saved(STATE),
    "FedAlign": saved(under("module.")),
    "Flower 1.42, to_torch_state_dict": saved(DOUBLE),
    "Flower 1.42, get_parameters": saved([torch.from_numpy(array) for array in ARRAYS.values()]),
    "Flower 1.42, ndarrays": saved(list(ARRAYS.values())),
    "Flower 1.42, .npz": lambda path: np.savez(path, *ARRAYS.values()),
    "Flower 1.42, .npz by name": lambda path: np.savez(path, **ARRAYS),  # type: ignore[arg-type]
    "Hugging Face, .safetensors": lambda path: save_file(STATE, path),
    "NumPy arrays": saved(ARRAYS),
    "NumPy arrays in Fortran's order": saved({k: np.array(a, order="F") for k, a in ARRAYS.items()}),
    "NumPy arrays of big-endian machines": saved(
        {k: a.astype(a.dtype.newbyteorder(">")) for k, a in ARRAYS.items()}
    ),
    "before PyTorch 1.6": saved({"model": STATE}, _use_new_zipfile_serialization=False),
    "before PyTorch 1.6, with NumPy": saved(
        {"model": STATE, "acc": np.float64(0.5)}, _use_new_zipfile_serialization=False
    ),
    "BlazeFL 3.0.0": saved(VECTOR),
    "declearn 2.9.1, converted": saved(under("module.")),
    "thop's counters": saved({**STATE, "total_ops": torch.zeros(1), "conv.total_params": torch.zeros(1)}),
    "MMEngine's EMAHook": saved(STATE | {f"ema_{k.replace('.', '_')}": t for k, t in OTHER.items()}),
    "torch's AveragedModel": saved({**under("module."), "n_averaged": torch.tensor(3)}),
    "torch.compile": saved(under("_orig_mod.")),
}  # fmt: skip
TWICE: dict[
    str, tuple[dict[str, Any], str]
] = {  # two networks, and what the sentence says of each, the suggestion first
    "Lightning 2.6.6, EMA": (
        {"state_dict": under("net."), "current_model_state": under("net.", OTHER)},
        r"state_dict.net \(the average\), current_model_state.net \(the network.* --entry state_dict.net$",
    ),
    "Lightning 2.6.6, SWA": (
        {"state_dict": STATE, "callbacks": {"SWA": {"average_model_state": under("module.", OTHER)}}},
        r"below state_dict \(the program's network\), callbacks.SWA.* \(an average\).* --entry state_dict$",
    ),
    "Lightning 2.6.6, a callback": (
        {"callbacks": {"A": {"net": OTHER}}, "state_dict": STATE},
        r"state_dict \(the program's network\), callbacks.A.net \(a callback's copy\)",
    ),
    "fluke 0.8.1, Ditto": (
        {"modopt": MODOPT, "personalized_modopt": {"model": OTHER}, "index": 0},
        r"modopt.model \(the network\), personalized_modopt.model \(the client's own network\)",
    ),
    "FLGo 0.4.4, optimal": (
        {"optimal_state": {"model": OTHER}, "model_state_dict": STATE},
        r"model_state_dict \(the program's network\), optimal_state.model \(the best until then\)",
    ),
    "timm": (
        {"state_dict_ema": OTHER, "state_dict": STATE},
        r"state_dict \(.*network\), state_dict_ema \(an average",
    ),
    "a teacher": ({"teacher": OTHER, "student": STATE}, r"student \(another\), teacher \(another\)"),
}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
FLOWER = b"ArrayRecord " + b"0123456789abcdef" * 4 + b"," + b"0123456789abcdef" * 4 + b" 99\0{}"
REFUSED: dict[str, tuple[Write, str]] = {
    **{program: (saved(content), said) for program, (content, said) in TWICE.items()},
    "declearn 2.9.1": (written(b"\x92\xa1x"), r"is MessagePack.*msgpack_load\(FILE\)\.coefs"),
    "Fed-BioMed 6.4.1": (written(b"\x82\xa1x"), r"is MessagePack.*Serializer\.load"),
    "a picture": (written(PNG), "^(?!.*MessagePack)"),
    "OpenFL 1.9": (written(b"\ng\n\x080.weight\x10\x03\x18\x01"), "is protobuf.*fx model save"),
    "Flower 1.42, deflated": (written(FLOWER), "Flower deflated.*to_torch_state_dict"),
    "Flower 1.42, save that raised": (written(b"PK\x03\x04" + bytes(60)), "truncated or damaged"),
    "Keras": (written(b"\x89HDF\r\n\x1a\n" + bytes(60)), "is HDF5.*torch.save"),
    "torch.distributed.checkpoint 2.13": (parts, "convert the folder with.*dcp_to_torch"),
    "FL4Health 0.4.2": (saved(network()), r"asks to run code \(torch\.nn\."),
    "options that hold a network": (saved({"args": Namespace(net=STATE)}), r"code \(argparse.Namespace\)"),
    "options that hold its arrays": (saved({"model": OTHER, "a": Namespace(net=ARRAYS)}), r"\(argparse"),
    "FedLab 1.3.0": (
        saved(torch.cat([tensor.reshape(-1) for tensor in PARAMETERS])), "lacks .* bn.*--bn recalibrate",
    ),
    "Fed-BioMed 6.4.1, converted": (
        saved({k: t for k, t in STATE.items() if k not in STATISTICS}), "lacks 2 of 9 .*--bn recalibrate",
    ),
    "a vector of another network": (saved(VECTOR[1:]), "the network has 33 parameters"),
    "a sparse vector": (saved(VECTOR.to_sparse()), "the network has 33 parameters"),
    "another network": (saved({"model": {"w": torch.ones(3)}}), "does not fit the network"),
    "more than the network": (saved({**STATE, "fc2.weight": torch.ones(1)}), "1 that the network has not"),
    "a mask in its place": (saved({**STATE, "fc.bias": STATE["fc.bias"].to_sparse()}), "is no dense tensor"),
    "an optimizer": (saved({"param_groups": [{"lr": 0.1}]}), "holds no tensors"),
}  # fmt: skip
SUFFIXES = {
    "declearn 2.9.1": ".mpk", "OpenFL 1.9": ".pbuf", "torch.distributed.checkpoint 2.13": ".distcp",
    "Flower 1.42, .npz": ".npz", "Flower 1.42, .npz by name": ".npz", "FLGo 0.4.4 with alone": ".20",
    "Hugging Face, .safetensors": ".safetensors",
}  # fmt: skip


def test_there_are_a_hundred_files_of_a_dozen_programs() -> None:
    programs = {name.split(",")[0].split(" with ")[0] for name in (*READ, *REFUSED)}
    assert len({*READ, *REFUSED}) >= 100
    assert len(programs) >= 12


@pytest.mark.parametrize("name", READ)
def test_the_weights_are_the_programs(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{SUFFIXES.get(name, '.pt')}"
    READ[name](path)
    found = fit(read(path), WANTED, path.name).state
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[key].double(), STATE[key].double()) for key in STATE)


@pytest.mark.parametrize("name", REFUSED)
def test_or_a_sentence_says_what_it_is(name: str, tmp_path: Path) -> None:
    write, said = REFUSED[name]
    path = tmp_path / f"w{SUFFIXES.get(name, '.pt')}"
    write(path)
    with pytest.raises(UserError, match=said) as caught:
        fit(read(path), WANTED, path.name, statistics=STATISTICS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["FedLab 1.3.0", "Fed-BioMed 6.4.1, converted"])
def test_statistics_may_lack_where_they_are_estimated(name: str, tmp_path: Path) -> None:
    REFUSED[name][0](tmp_path / "w.pt")
    found = fit(read(tmp_path / "w.pt"), WANTED, "w.pt", statistics=STATISTICS, bn="recalibrate")
    assert [torch.equal(found.state[key], STATE[key]) for key in STATE if key not in STATISTICS] == [True] * 6
    assert found.state["bn.running_var"].tolist() == [1, 1]
    assert found.state["bn.num_batches_tracked"] == 0
    assert found.notes[-1] == "no statistics of BatchNorm are there, and --bn recalibrate reads none"


def test_an_entry_chooses_each_of_two_networks(tmp_path: Path) -> None:
    torch.save(TWICE["fluke 0.8.1, Ditto"][0], tmp_path / "w.pt")
    fitted = partial(fit, read(tmp_path / "w.pt"), WANTED, "w.pt")
    assert torch.equal(fitted(entry="modopt").state["fc.bias"], STATE["fc.bias"])
    assert torch.equal(fitted(entry="personalized_modopt").state["fc.bias"], OTHER["fc.bias"])


def test_a_folder_of_a_distributed_checkpoint_is_whole_and_is_named(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04")
    with pytest.raises(UserError, match="format_utils dcp_to_torch FOLDER OUT"):
        read(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="register a folder of rounds and clients with `fedscope runs add`"):
        read(tmp_path / "other")
