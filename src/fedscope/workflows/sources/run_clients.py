"""The clients of a checkpoint's run: their weights, and the rows of the data that each trained on."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.checkpoints.foreign.tensor_files import clients_in
from fedscope.checkpoints.registry.client_rows import ClientRows
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.checkpoints.registry.whose import whose
from fedscope.choices import Holding, Weights
from fedscope.data.partition.draw_partition import FRESH
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.trees import joined
from fedscope.landscape.published.estimators import Loader
from fedscope.pairing import MENDS, Pairing, numbered, worst
from fedscope.storage import open_regular
from fedscope.workflows.requests import Resampling
from fedscope.workflows.sources.chosen_rounds import MODELS, KeptRounds
from fedscope.workflows.sources.own_problem import own_network
from fedscope.workflows.sources.problem import Problem, network
from fedscope.workflows.sources.samples import Data, data_of, draw, rows_of

ON_COMMON = (
    "use --client-data global of `fedscope hessian --clients`, or register the run with `fedscope runs add` "
    "and --rows FILE, or --dataset MODULE:FACTORY, whose factory returns each client's data"
)


@dataclass(frozen=True)
class RunClient:
    """One client: at which weights, on which samples."""

    number: int
    model: nn.Module
    info: CheckpointInfo | None  # of the weights; None for a plain state_dict
    batches: Batches
    rows: Tensor | None  # its own training rows, where the samples are of those


@dataclass(frozen=True)
class ClientOrigin:
    """What a result says of the clients that it compares."""

    uploads: dict[str, str]  # the clients' files and their content hashes
    rows: Literal["stored", "redrawn"] | None  # None: all clients have the problem's samples
    rows_sha256: str | None  # of the rows in the problem's round
    pairing: dict[str, object] | None = None  # who is who; None: at the global weights


class Participants:
    """The clients of a problem's run, in client order; each iteration builds them one at a time.

    Args:
        weights: each client's last upload by the problem's round (its very last where only that was kept, or
            with ``latest``), or everywhere those of the problem.
        data: the problem's samples for all clients, or each client's ``own`` training rows, at most as many.
        of_round: the uploads of the problem's own round alone.
    """

    def __init__(
        self,
        problem: Problem,
        weights: Weights,
        data: Holding,
        *,
        latest: bool = False,
        of_round: bool = False,
    ) -> None:
        if weights == "global" and data == "global":
            raise UserError(
                "at the global weights on the global data all clients are equal; add --client-data own"
            )
        self._problem, self._weights, self._own = problem, weights, data == "own"
        self._files = dict[int, Path]()
        if weights == "client":
            self._files = round_uploads(problem) if of_round else client_files(problem, latest=latest)
        self._whose = {client: whose(client, path) for client, path in self._files.items()}
        if self._own:
            self._info, self._data = _run_data(problem)
            self._check_pairing()
            self._rows = dict[int, ClientRows]()  # of a round
            numbers = self.numbers
            if len(numbers) < 2:
                raise UserError("cross-client metrics need two or more clients; this run has one")
            self._check_rows(numbers)

    @property
    def numbers(self) -> list[int]:
        if self._weights == "client":
            return [*self._files]
        assert self._problem.info
        return list(range(self._problem.info.settings.clients))

    def fingerprint(self) -> str:
        """Return a hash of what decides the clients: their files, the run's settings, the samples of each."""
        problem, source = self._problem, self._problem.source
        info = problem.info.model_dump_json() if problem.info else ""
        samples = (source.samples, source.split, source.batch_size, source.seed, source.dtype)
        rows = self._held(self._info).spec.sha256 if self._own else ""
        digest = hashlib.sha256(f"{self._weights} {self._own} {samples} {info} {rows}".encode())
        for path in self._files.values():
            with open_regular(path) as handle:
                while chunk := handle.read(1 << 20):
                    digest.update(chunk)
        return digest.hexdigest()

    def origin(self) -> ClientOrigin:
        source, files = self._problem.source, self._files
        hashes = {
            client: own_network(path, source)[2] if source.model else describe_checkpoint(path)[1]
            for client, path in files.items()
        }
        uploads = {files[client].name: sha256 for client, sha256 in hashes.items()}
        pairing = Pairing.of(self._whose, hashes, self._problem.sha256).to_json() if files else None
        if not self._own:
            return ClientOrigin(uploads, None, None, pairing)
        rows: Literal["stored", "redrawn"] = "stored" if self._info.rows else "redrawn"
        return ClientOrigin(uploads, rows, self._held(self._info).spec.sha256, pairing)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[RunClient]:
        for number in self.numbers:
            model, info = self._network(number)
            if not (self._own and info):
                yield RunClient(number, model, info, self._problem.batches, None)
                continue
            rows = self.rows(number, info)
            chosen = rows[draw(len(rows), self._problem.source, number)]
            batches = self._data.batches(info, self._problem.source, chosen, population=len(rows))
            yield RunClient(number, model, info, batches, rows)

    def rows(self, number: int, info: CheckpointInfo) -> Tensor:
        return torch.from_numpy(self._held(info).clients[number])

    def _held(self, info: CheckpointInfo) -> ClientRows:
        round = info.round if info.settings.partition in FRESH else 1
        if round not in self._rows:
            self._rows[round] = rows_of(self._problem.path, info, self._data.split)
        return self._rows[round]

    def _network(self, number: int) -> tuple[nn.Module, CheckpointInfo | None]:
        problem = self._problem
        if self._weights == "global":
            return problem.model, problem.info
        path = self._files[number]
        if problem.source.model:
            return own_network(path, problem.source)[0], None
        checkpoint = load_checkpoint(path)
        info = problem.source.placed(checkpoint.info)
        return network(replace(checkpoint, info=info), problem.source), info

    def _check_pairing(self) -> None:
        if (told := worst([told for told, _ in self._whose.values()] or ["run"])) in MENDS:
            raise UserError(
                f"the clients of {self._problem.title} are {numbered(told)}; or compare them with "
                "`fedscope hessian --clients --client-data global`"
            )

    def _check_rows(self, numbers: list[int]) -> None:
        for number in numbers:
            if not len(self.rows(number, self._info)):
                raise UserError(f"client {number} holds no training rows; use --client-data global")


def client_files(problem: Problem, *, latest: bool = False) -> dict[int, Path]:
    """Return each client's last upload by the checkpoint's round, or its very last."""
    folder = problem.path.parent
    run = RunFolder(layout.run_of(problem.path) or (folder.parent if folder.name == "clients" else folder))
    info = problem.info or problem.registered
    kept = run.clients(info.round if info and not latest else None)
    files = {int(path.stem): path for path in kept} or dict(sorted(clients_in(folder).items()))
    if len(files) < 2:
        raise UserError(
            f"comparing clients needs two or more of their checkpoints beside {problem.path}, found "
            f"{len(files)}; train with --save-clients last, and with two clients or more in each round"
        )
    return files


def round_uploads(problem: Problem) -> dict[int, Path]:
    """Return the clients' uploads of the checkpoint's own round; of a plain state_dict those beside it."""
    info = problem.info or problem.registered
    if info and info.client is not None:
        raise UserError(f"{problem.path} is a client's; name the global model, as RUN or RUN@ROUND")
    files = client_files(problem)
    if not info:
        return files
    rounds = {client: describe_checkpoint(path)[0].round for client, path in files.items()}
    found = {client: files[client] for client, round in rounds.items() if round == info.round}
    if len(found) == 1 and max(rounds.values()) == info.round:
        raise UserError(
            f"one client took part in round {info.round} of {problem.path}, and comparing needs two; "
            "name another round, or train with a larger --participation"
        )
    if len(found) < 2:
        kept = "one client's model" if found else "no client's model"
        raise UserError(
            f"{kept} of round {info.round} was kept of {problem.path}, and comparing needs two; the newest "
            f"are of round {max(rounds.values())}: name that one, or train with --save-clients all"
        )
    return found


def _rounds_with_uploads(run: RunFolder) -> list[int]:
    last = Counter(describe_checkpoint(path)[0].round for path in run.clients())
    return [round for round in MODELS.of(run) if max(len(run.uploads(round)), last[round]) > 1]


UPLOADS = KeptRounds(_rounds_with_uploads, "set of clients' uploads", "--save-clients all --keep-every 1")
"""For ``--rounds``: rounds whose clients can be compared."""


def loader(problem: Problem, resampling: Resampling, client: RunClient | None = None) -> Loader:
    """Return the published scripts' training loader: over the run's training data, or a client's own rows.

    Over the samples given where the data is the user's own, which has no augmentation.
    """
    source, generator = problem.source, torch.Generator().manual_seed(resampling.seed)
    info = client.info if client and client.rows is not None else problem.info
    if info is None:
        inputs, labels = (joined(list(parts)) for parts in zip(*problem.batches, strict=True))
        if not (isinstance(inputs, Tensor) and isinstance(labels, Tensor)):
            raise UserError(
                "the scripts' loader takes one input tensor and one target tensor; use paper settings"
            )
        size = resampling.batch_size or source.batch_of(len(labels))
        return Loader(
            lambda rows, _: inputs[rows],
            labels,
            batch_size=size,
            batches=resampling.batches,
            generator=generator,
        )
    data, held = data_of(problem.path, info, source), client.rows if client else None
    rows = data.used if held is None else held
    rows = rows[draw(len(rows), replace(source, samples=resampling.samples), client.number if client else 0)]
    pipeline = data_catalogue.pipeline(info.data.name, info.data.augmentation)[1]

    def fetch(chosen: Tensor, generator: torch.Generator) -> Tensor:
        draws = pipeline.draw(len(chosen), generator) if resampling.augment else torch.empty(0, len(chosen))
        return pipeline.train(data.split.images, rows[chosen], draws).to(source.device, source.dtype)

    return Loader(
        fetch,
        data.labels(info)[rows].to(source.device),
        batch_size=resampling.batch_size or info.settings.batch_size,
        batches=resampling.batches,
        generator=generator,
    )


def _run_data(problem: Problem) -> tuple[CheckpointInfo, Data]:
    if problem.info is None:
        raise UserError(f"which client trained on what is not known of a plain state_dict; {ON_COMMON}")
    if problem.info.settings.partition == UNKNOWN:
        raise UserError(f"which client trained on what is not known of an added run; {ON_COMMON}")
    if problem.source.split != "train":
        raise UserError("clients hold training rows; use --client-data global with --split test")
    return problem.info, data_of(problem.path, problem.info, problem.source)
