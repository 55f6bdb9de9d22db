"""The layouts of checkpoints in folders by published federated code.

FedDyn (Acar et al. 2021) and what is built on it: ``R_com_sel.pt``, ``R_com_all.pt``, ``R_com_cld.pt`` after
R rounds, the means of the selected and of all clients and the server's model, a state_dict each;
``R_clnt_params_list.npy``, the clients' parameters as rows. Of the others the tables here have the names, and
docs/foreign.md the versions.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from fedscope.checkpoints.file.checkpoint import listed
from fedscope.checkpoints.file.other_programs import check_whole
from fedscope.checkpoints.foreign.tensor_files import SHARDED, SINGLE, clients_in, numbered, read
from fedscope.choices import Told
from fedscope.errors import UserError, no_file

_SERIES = (  # of a file for each round, or for each mean of a round: title, name
    (
        "R_com_sel.pt, R_com_all.pt, R_com_cld.pt (FedDyn)",
        r"(?P<round>[0-9]{1,9})_com_(?P<mean>cld|sel|all)\.pt",
    ),
    (
        "a file of each round (Flower)",
        r"(?:[a-z]+[-_])*round[-_]?(?P<round>[0-9]{1,9})(?:[-_][a-z]+)*\.(?:npz|pt|pth|safetensors)",
    ),
    ("rRRRR_server.pth and rRRRR_client_K.pth (fluke)", r"r(?P<round>[0-9]{1,9})_server\.pth"),
    ("checkpoint_MODEL_R.pth (Plato)", r"checkpoint_.+_(?P<round>[0-9]{1,9})\.pth"),
    ("NAME.R (FLGo)", r".*_M.+_R[0-9]+_B.+\.(?P<round>[0-9]{1,9})"),
)
_GLOBAL = {  # of one global model: file, title
    "server.pt": "server.pt and client_K.pt (FedAlign)",
    "server.pth": "server.pth and client_K.pth (fluke)",
    "FL_global_model.pt": "FL_global_model.pt (NVFlare)",
    "app_server/FL_global_model.pt": "FL_global_model.pt (NVFlare)",
    "server/simulate_job/app_server/FL_global_model.pt": "FL_global_model.pt (NVFlare)",
}
_OF_PFL = ("checkpoint.pt", "central_optimizer.pt")
_BEST = "best_FL_global_model.pt"
_DATED = re.compile(r"checkpoint_(.+)_[0-9]{4}(?:-[0-9]{2}){5}\.pth")  # APPFL's
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class RunLayout:
    """Where a run's checkpoints are."""

    title: str
    final: Path  # the newest global model
    round: int | None = None  # that it is of, where its name says so
    kept: dict[int, Path] = field(default_factory=dict)  # earlier global models
    averages: dict[str, Path] = field(default_factory=dict)  # the newest means "sel", "all"
    clients: dict[int, Path] = field(default_factory=dict)
    rows: Path | None = None  # an array with a row of parameters for each client
    told: Told = "name"  # how it was told which client is which
    notes: tuple[str, ...] = ()  # which files are left out

    def uploads(self) -> Iterator[tuple[int, Path, str, dict[str, Tensor]]]:
        """Yield (client, file, which file or row this is, its tensors), one at a time."""
        alike = len({path.name for path in self.clients.values()}) < len(self.clients)
        for client, path in sorted(self.clients.items()):
            yield client, path, str(path) if alike else path.name, read(path)
        if self.rows is not None:
            for client, row in enumerate(self.table()):
                yield client, self.rows, f"row {client} of {self.rows.name}", {"": row}

    def table(self) -> Tensor:
        assert self.rows is not None
        table = read(self.rows)[""]
        if table.ndim != 2 or not len(table):
            raise UserError(f"{self.rows} is an array {tuple(table.shape)}; a row for each client is needed")
        return table


def look(path: Path, clients: Sequence[Path] | Mapping[int, Path] = ()) -> RunLayout:
    """Return the layout at ``path``: one file, or a folder of a known layout, with or without ``clients``.

    These are the clients' files: by number; or with the numbers in all their names, or in none; or one
    ``.npy`` with a row for each.
    """
    if not clients:
        return _layout(path, clients_in)
    layout = _layout(path, lambda *_: {})
    files = [*clients.values()] if isinstance(clients, Mapping) else [*clients]
    for file in files:
        if not file.exists():
            raise no_file(file, "file or folder")
    if isinstance(clients, Mapping):
        return replace(layout, clients=dict(clients), rows=None, told="option")
    if len(files) == 1 and files[0].suffix == ".npy":
        return replace(layout, clients={}, rows=files[0], told="row")
    named = numbered(files)
    bare = [file for file in files if file not in named.values()]
    if not named:
        return replace(layout, clients=dict(enumerate(files)), rows=None, told="files")
    if bare:
        raise UserError(
            f"{next(iter(named.values())).name} has a client's number in its name and {bare[0].name} has "
            "none; give each as --client K=FILE"
        )
    return replace(layout, clients=named, rows=None, told="name")


def clients_of(texts: Sequence[str]) -> tuple[Path, ...] | dict[int, Path]:
    """Return the files of ``--client FILE``, or by their numbers those of ``--client K=FILE``."""
    numbers: dict[int, Path] = {}
    for text in texts:
        number, equals, file = text.partition("=")
        if not equals or (not _WHOLE.fullmatch(number) and Path(text).exists()):
            continue  # a file whose name has an equals sign
        if not re.fullmatch("[0-9]{1,9}", number) or not file:
            raise UserError(f"--client takes FILE, or K=FILE with the client's number K from 0, not {text!r}")
        if int(number) in numbers:
            raise UserError(f"client {int(number)} is given twice: {numbers[int(number)]} and {file}")
        numbers[int(number)] = Path(file).expanduser()  # which a shell leaves as it is after "="
    if numbers and len(numbers) < len(texts):
        raise UserError("--client takes FILE or K=FILE, not some of both; give every client's number")
    return numbers or tuple(map(Path, texts))


def _layout(path: Path, beside: Callable[[Path, str], dict[int, Path]]) -> RunLayout:
    if path.is_file():
        return RunLayout("a file", path)
    if not path.is_dir():
        raise no_file(path, "file or folder")
    check_whole(path)
    if any((path / name).is_file() for name in (*SINGLE, *SHARDED)):
        return RunLayout("a folder of Hugging Face's kind", path)
    for name, title in _GLOBAL.items():
        if (file := path / name).is_file():
            best = file.with_name(_BEST)
            notes = (f"left out {_BEST}: name that file to register it",) * best.is_file()
            return RunLayout(title, file, clients=beside(file.parent, ""), notes=notes)
    if all((path / name).is_file() for name in _OF_PFL):
        return RunLayout("checkpoint.pt and central_optimizer.pt (pfl)", path / _OF_PFL[0])
    layout = _rounds(path, beside)
    if layout is None:
        kept = sorted({match[1] for file in path.iterdir() if (match := _DATED.fullmatch(file.name))})
        raise UserError(
            f"{path} holds the models of clients alone ({listed(kept)}), as APPFL keeps them: name the "
            "global model's file, and each of these with --client K=FILE"
            if kept
            else f"{path} holds no server.pt, R_com_sel.pt, round-R-weights.npz, {' or '.join(SINGLE)}, nor "
            "what else `fedscope runs add --help` names; name the global model's file"
        )
    return layout


def _rounds(folder: Path, beside: Callable[[Path, str], dict[int, Path]]) -> RunLayout | None:
    names = sorted(path.name for path in folder.iterdir())
    for title, form in _SERIES:
        found = [match for name in names if (match := re.fullmatch(form, name, re.IGNORECASE))]
        kept = dict[int, dict[str, Path]]()
        for match in found:
            means, mean = kept.setdefault(int(match["round"]), {}), match.groupdict().get("mean", "cld")
            if mean in means:
                one = means[mean].name
                raise UserError(f"{one} and {match[0]} are both of round {match['round']}; name one file")
            means[mean] = folder / match[0]
        others = {
            (m[0][: m.start("round")], m[0][m.end("round") :]) for m in found if "mean" not in m.re.groupindex
        }
        if len(others) > 1:
            raise UserError(f"{folder} holds rounds of several trainings; name one file")
        if found:
            newest = max(found, key=lambda match: int(match["round"]))
            round = int(newest["round"])
            averages = {mean: path for mean, path in kept[round].items() if mean != "cld"}
            finals = {of: means.get("cld") or means.get("sel") or means["all"] for of, means in kept.items()}
            final, rows = finals.pop(round), folder / f"{round}_clnt_params_list.npy"
            if rows.is_file():
                return RunLayout(title, final, round, finals, averages, rows=rows, told="row")
            clients = beside(folder, newest[0][: newest.end("round")])
            return RunLayout(title, final, round, finals, averages, clients)
    return None
