"""Several checkpoints as labelled points of one weight space, read one at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

from torch import Tensor

from fedscope.checkpoints.file.checkpoint import content_hash, describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.errors import UserError
from fedscope.figures.text.labels import method_name
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.surfaces.network_planes import Networks
from fedscope.workflows.sources.own_problem import own_network
from fedscope.workflows.sources.problem import Problem, checkpoint_entry, renamed
from fedscope.workflows.sources.samples import Source


@dataclass(frozen=True)
class Waypoints:
    """The checkpoints that a slice of weight space passes through or near, in order.

    All are compared on the network, data and samples of ``problem``, which is one of them.
    """

    problem: Problem
    paths: Sequence[Path]

    @cached_property
    def networks(self) -> Networks:
        for path, (info, _) in zip(self.paths, self._described, strict=True):
            _check_comparable(self.problem, info, path)
        space, source = StateSpace.of(self.problem.model), self.problem.source
        states = _Points(self.paths, source, space, self.problem.model.state_dict())
        return Networks(states, _labels(self.paths, [info for info, _ in self._described]), space.n)

    @cached_property
    def entries(self) -> list[dict[str, object]]:
        described = zip(self.paths, self._described, strict=True)
        return [checkpoint_entry(path, sha256, info) for path, (info, sha256) in described]

    @cached_property
    def _described(self) -> list[tuple[CheckpointInfo | None, str]]:
        if self.problem.source.model is None:
            every = ((path, *describe_checkpoint(path)) for path in self.paths)
            return [(renamed(path, info), sha256) for path, info, sha256 in every]
        return [(None, content_hash(state_of(path, self.problem.source))) for path in self.paths]


def state_of(path: Path, source: Source) -> Mapping[str, Tensor]:
    return own_network(path, source)[0].state_dict() if source.model else load_checkpoint(path).state


@dataclass(frozen=True)
class _Points(Sequence[Tensor]):
    """The coordinates of files, read anew at every use."""

    paths: Sequence[Path]
    source: Source
    space: StateSpace
    reference: Mapping[str, Tensor]  # what the networks must not differ in

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, i: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        state = state_of(self.paths[i], self.source)
        try:
            self.space.check_fixed(state, self.reference)
            return self.space.flat(state)
        except UserError as error:
            raise UserError(f"{self.paths[i]}: {error}") from error


def _check_comparable(problem: Problem, info: CheckpointInfo | None, path: Path) -> None:
    own = problem.info
    if info is None or own is None:
        return
    for what, here, there in (
        ("network", own.model, info.model),
        ("data set", own.data.name, info.data.name),
        ("data", own.data.fingerprint, info.data.fingerprint),
    ):
        if here != there:
            names = f"{own.model.name} on {own.data.name}, and {info.model.name} on {info.data.name}"
            raise UserError(
                f"{problem.path} and {path} are of another {what} each ({names}); a slice of weight space "
                "takes checkpoints of one"
            )


def _labels(paths: Sequence[Path], infos: Sequence[CheckpointInfo | None]) -> tuple[str, ...]:
    known = [info for info in infos if info is not None]
    ways: list[Callable[[CheckpointInfo], str]] = [_method, _which]
    if len({info.run for info in known}) == 1:
        rounds, clients = {info.round for info in known}, {info.client for info in known}
        steps = len(known) - sum(info.step is None for info in known)
        ways = (
            [_step] if steps else [_role] if len(rounds) == 1 else [_round] if clients == {None} else [_which]
        )
    candidates = [tuple(map(way, known)) for way in ways] if len(known) == len(infos) else []
    candidates += [tuple(path.stem for path in paths), tuple(map(str, paths))]
    return next((labels for labels in candidates if len(set(labels)) == len(labels)), candidates[-1])


def _method(info: CheckpointInfo) -> str:
    method = info.settings.method
    return method_name(method) if method != UNKNOWN else info.run


def _round(info: CheckpointInfo) -> str:
    return f"round {info.round}"


def _role(info: CheckpointInfo) -> str:
    return "global" if info.client is None else f"client {info.client}"


def _step(info: CheckpointInfo) -> str:
    if info.step:
        return f"step {info.step}"
    return "start" if info.client is None else f"client {info.client}"


def _which(info: CheckpointInfo) -> str:
    return f"{info.run}@{info.round}" if info.client is None else f"{info.run}@client{info.client}"
