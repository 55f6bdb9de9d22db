"""Rounds and clients of a training that another program leads, registered while it runs.

with Recorder("mine", model=network, dataset="mine", clients="last") as register:
    for _ in range(rounds):
        ...
        register.round(network, {"accuracy": accuracy}, clients=uploads)
"""

import math
import re
import time
import warnings
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

from torch import Tensor, nn

from fedscope.adoption.adopted import Adopted
from fedscope.adoption.identity import identify
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.choices import Told
from fedscope.errors import UserError, check_keywords
from fedscope.pairing import numbered
from fedscope.storage import move

Clients = Literal["none", "last", "all"]
State = nn.Module | Mapping[str, Tensor]
SCORES = ("accuracy", "loss", "train_loss")


class About(TypedDict, total=False):
    """What a registered run is of, beside its network and data.

    ``clients``: also register their uploads, their ``last`` or those of ``all`` rounds; by default ``none``.
    ``rounds``: how many there will be, where that is known. ``registry``: the folder of runs, by default
    ``checkpoints``. ``method``: name for the tables. ``data_dir``: where the data set is.
    ``augmentation``: the pipeline whose normalisation the training uses; by default the set's first.
    ``test_data``: MODULE:FACTORY of what to evaluate on, of data of one's own.
    """

    registry: Path | str
    method: str | None
    data_dir: Path | None
    augmentation: str | None
    test_data: str | None
    clients: Clients
    rounds: int | None


class Recorder:
    """Registers a run: of each round first its clients' uploads, then the global model and its scores.

    The run is made with the first tensors, under the first name that is free. Until :meth:`finish` it counts
    as unfinished, and has all that was registered. As a context manager it finishes the run at the end; after
    an exception the run stays, as unfinished.

    Args:
        name: of the run; ``NAME-2`` and so on where it is taken.
        model: a network of the catalogue by name, ``MODULE:FACTORY``, or the program's own module.
        dataset: of the catalogue, or ``MODULE:FACTORY`` of one's own data, all of it or a data set for each
            client; or, with a network of one's own, just a name for the program's data.
        source: the program, for the manifest.
        **about: see :class:`About`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | nn.Module,
        dataset: str,
        source: str = "a training loop",
        **about: Unpack[About],
    ) -> None:
        check_keywords(type(self), about, About)
        self._identity = identify(
            model, dataset, data_dir=about.get("data_dir"), augmentation=about.get("augmentation"),
            test_data=about.get("test_data"),
        )  # fmt: skip
        self._registry = RunRegistry(Path(about.get("registry", "checkpoints")))
        self._name, self._source = name, source
        self.clients: Clients = about.get("clients", "none")
        self.rounds, self._method = about.get("rounds"), about.get("method")
        self._adopted: Adopted | None = None
        self._metrics: dict[int, Round] = {}
        self._numbers: dict[object, int] = {}  # of nodes and users
        self._holders: dict[int, tuple[object, int, bool]] = {}  # number → node, round, whether it said so
        self._warned = False
        self._clock = time.perf_counter()

    @property
    def run(self) -> RunFolder | None:
        """The run, once there is one."""
        return self._adopted.run if self._adopted is not None else None

    @property
    def newest(self) -> int:
        """The newest round that is registered; 0 before the first."""
        return max(self._metrics, default=0)

    def number(self, round: int, node: object, claim: object = None) -> tuple[int, bool]:
        """Return the number of a client that the program names otherwise, and whether it was told.

        It is the client's ``claim``, a whole number that no other node of the round has; else the next.
        """
        found = re.fullmatch(r"([0-9]{1,9})(\.0)?", str(claim))
        claimed = int(found[1]) if found else -1
        holder, before, said = self._holders.get(claimed, (node, 0, True))
        told = claimed >= 0 and (holder == node or (said and before < round))
        number = claimed if told else self._numbers.get(node, -1)
        if number < 0 or (not told and self._holders[number][0] != node):
            number = next(free for free in count() if free not in self._holders)
        self._numbers[node], self._holders[number] = number, (node, round, told)
        return number, told

    def upload_by(
        self,
        round: int,
        node: object,
        claim: object,
        tensors: Mapping[str, Tensor],
        *,
        told: Told,
        order: Told,
        samples: int | None = None,
    ) -> None:
        """Register a client's model as :meth:`upload`, numbered by its claim or else in an ``order``."""
        if self.clients == "none":
            return
        client, is_told = self.number(round, node, claim)
        if not is_told and self._identity.rows and not self._warned:
            self._warned = True
            warnings.warn(f"{self._name}: clients are {numbered(order)}", stacklevel=3)
        how, origin = told if is_told else order, f"{order.removesuffix('s')} {node}"
        self.upload(round, client, tensors, samples=samples, told=how, origin=origin)

    def upload(
        self,
        round: int,
        client: int,
        tensors: Mapping[str, Tensor],
        *,
        samples: int | None = None,
        told: Told = "loop",
        origin: str = "",
    ) -> None:
        """Register a client's model at the end of its local training, unless no clients are to be.

        Args:
            round: counted from 1.
            client: its number, from 0.
            tensors: the network's state by name, or nameless (``"0"``, ``"1"``, …) in its order.
            samples: on which the client trained, where that is known.
            told, origin: how its number was told, and which node or user it is.
        """
        if self.clients == "none":
            return
        if not hasattr(client, "__index__") or client < 0:
            raise UserError(f"a client's number is a whole number from 0, not {client!r}")
        adopted, state = self._fitted(tensors, f"the upload of client {client}")
        adopted.upload(
            int(client), state, round, samples=samples, told=told, origin=origin, keep=self.clients == "all"
        )

    def add(self, round: int, tensors: Mapping[str, Tensor], metrics: Mapping[str, Any]) -> None:
        """Register the global model after a round, which is then the run's newest.

        Args:
            round: counted from 1, higher than the one before.
            tensors: as of :meth:`upload`.
            metrics: as of :meth:`note`.
        """
        adopted, state = self._fitted(tensors, f"the model of round {round}")
        run = adopted.run
        if run.last.exists():
            move(run.last, run.after_round(self.newest), below=run.root)
        adopted.save(run.last, state, round)
        now = time.perf_counter()
        self._metrics[round] = Round.read(
            {"round": round, **dict.fromkeys(SCORES), "seconds": now - self._clock}
        )
        self._clock = now
        self.note(round, metrics)

    def note(self, round: int, metrics: Mapping[str, Any]) -> None:
        """Add scores to a round that is registered: ``accuracy``, ``loss``, ``train_loss``.

        Each is a number, also of numpy or torch; None, or one that is not finite, counts as unknown.
        """
        if round not in self._metrics or self.run is None:
            return
        known = {name: _number(name, metrics[name]) for name in SCORES if metrics.get(name) is not None}
        finite = {name: score for name, score in known.items() if math.isfinite(score)}
        self._metrics[round] = self._metrics[round].edited(**finite)
        self.run.write_metrics(self._metrics.values())

    def finish(self) -> None:
        """Make the newest global model the run's final one."""
        if self.run is not None and self.run.last.exists():
            move(self.run.last, self.run.final, below=self.run.root)

    def round(
        self,
        model: State,
        metrics: Mapping[str, Any] | None = None,
        *,
        clients: Mapping[int, State] | None = None,
        samples: Mapping[int, int] | None = None,
    ) -> None:
        """Register the next round of a loop of one's own.

        Args:
            model: the global model after it, or its state.
            metrics: as of :meth:`note`.
            clients: client → its model, or state, at the end of its local training.
            samples: client → on how many it trained, where that is known.

        Raises:
            UserError: tensors that are not the network's, or a score that is no number.
        """
        number, counts = self.newest + 1, samples or {}
        for client, upload in sorted((clients or {}).items()):
            self.upload(number, client, _tensors(upload), samples=counts.get(client))
        self.add(number, _tensors(model), metrics or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()

    def _fitted(self, tensors: Mapping[str, Tensor], what: str) -> tuple[Adopted, dict[str, Tensor]]:
        """Return the run, which the first tensors make, and the network's state."""
        self._identity, fitted = self._identity.fitted(tensors, what)
        if self._adopted is None:
            known: dict[str, object] = {"save_clients": self.clients, "keep_every": 1}
            known |= {"method": self._method} if self._method else {}
            known |= {"rounds": self.rounds} if self.rounds else {}

            def adopted(name: str) -> Adopted:
                return Adopted(
                    self._registry, name, self._identity,
                    source=self._source, known=known, notes=fitted.notes,
                )  # fmt: skip

            self._adopted = self._registry.under_free_name(self._name, adopted)
        return self._adopted, fitted.state


def _tensors(model: State) -> Mapping[str, Tensor]:
    return model.state_dict() if isinstance(model, nn.Module) else model


def _number(name: str, score: Any) -> float:
    try:
        return float(score)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor of several elements
        raise UserError(f"{name} {score!r} is no number; give a float, or None") from error
