"""What the trainer relies on: the laws of a federated method.

Inherit and return the record; each law trains it for a few rounds on the bundled digits. Sizes may be
changed by ``settings``, the method's options by ``options``. For laws of one's own ``trained`` yields a run.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.methods import on_trial, parse
from fedscope.federated.record.checked import MethodError
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method
from fedscope.federated.record.tasks import Task
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, local_settings, open_run, prepare
from fedscope.streams import torch_stream

SMALL: Mapping[str, Any] = {
    "model": "mlp_digits", "partition": "iid", "clients": 4, "participation": 0.5, "rounds": 2, "epochs": 1,
    "batch_size": 16, "lr": 0.02, "train_samples": 128, "test_samples": 32,
}  # fmt: skip


class _StopError(Exception):
    """Ends a run after its first round."""


class MethodConformance:
    """Laws of :class:`fedscope.federated.record.method.Method`; a failed one is an ``AssertionError``."""

    settings: ClassVar[Mapping[str, Any]] = {}  # fields of Settings, instead of those of a small run
    options: ClassVar[Mapping[str, str]] = {}  # of the method, as text
    tol = 1e-4  # of float32 sums in another order, relative

    def method(self) -> Method:
        """Return the record, the same at every call."""
        raise NotImplementedError("return the method under test")

    def test_it_says_what_it_is(self) -> None:
        """Objective and source stand in its record, and every option takes its own default as text."""
        record = self.method()
        assert record.objective, "the objective is missing"
        assert record.source, "the source is missing"
        for option in record.options:
            for value in (option.default, option.code):
                try:
                    read = value if value is None else option.read(str(value))
                except UserError as error:
                    raise AssertionError(f"{option.name} refuses its own value: {error}") from error
                assert read == value, f"{option.name} reads its own value {value!r} as {read!r}"

    def test_two_rounds_end_at_a_finite_model(self) -> None:
        """Nothing is NaN, and the model has moved."""
        with self.trained() as run:
            first, last = _flat(run.initial), _flat(run.final)
            assert last.isfinite().all(), "the model is not finite"
            assert not torch.equal(first, last), "the model has not moved"

    def test_the_same_run_has_the_same_bits(self) -> None:
        """What is drawn comes from the streams that the method is given, not from global generators."""
        with self.trained() as one:
            torch.rand(3)
            with self.trained() as other:
                assert torch.equal(_flat(one.final), _flat(other.final)), "two runs of one seed differ"

    def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(self) -> None:
        """All that is remembered between rounds is in ``memory`` and ``server_state``."""
        with self.trained() as whole, self.trained(interrupted=True) as cut:
            assert torch.equal(_flat(whole.final), _flat(cut.final)), "what is remembered is not all declared"

    def test_clients_side_by_side_are_clients_one_by_one(self) -> None:
        """With ``--stack`` no client's vectors enter another's; a norm there is over ``dim=1``."""
        if self.method().trains_alone:
            return
        with self.trained() as alone, self.trained(stack=2) as together:
            start, one, two = (_flat(path) for path in (alone.initial, alone.final, together.final))
            off, moved = float((one - two).norm()), float((one - start).norm())
            assert off <= self.tol * moved, (
                f"a stack of two ends {off:.3g} elsewhere, having moved {moved:.3g}"
            )

    def test_the_terms_of_the_parameters_have_their_gradients(self) -> None:
        """A term is a scalar whose gradient in w is that of finite differences: w is not detached."""
        if not self.method().parameter_terms:
            return
        trainer = self._after_a_client()
        clients, w = trainer.clients, trainer.clients.parameters(1)[0].clone()
        rows = [row[0] for row in clients.rows(1)]

        def total(at: Tensor) -> Tensor:
            step = clients.client(at, *rows, first=False)
            with _faults_are_failures():
                parts = [term(step) for term in trainer.method.parameter_terms]
            assert all(part.shape == () for part in parts), "a term of the parameters is a scalar"
            return torch.stack(parts).sum()

        generator = torch.Generator().manual_seed(0)
        along = torch.randn(len(w), generator=generator, dtype=torch.float64)
        leaf = w.clone().requires_grad_()
        value = total(leaf)
        slope = torch.autograd.grad(value, leaf, allow_unused=True)[0] if value.requires_grad else None
        found = 0.0 if slope is None else float(slope @ along)
        step = 1e-6
        wanted = float(total(w + step * along) - total(w - step * along)) / (2 * step)
        assert abs(found - wanted) <= 1e-3 * abs(wanted) + 1e-6, (
            f"slope {found:.6g}, differences {wanted:.6g}"
        )

    def test_what_a_client_received_is_left_as_it_is(self) -> None:
        """No function writes into θ_t."""
        trainer = self._after_a_client()
        start, row = trainer.clients.start[0], trainer.clients.initial
        kept = torch.ones(len(row), dtype=torch.bool)
        kept[trainer.clients.personal] = False
        assert torch.equal(start[kept], row[kept]), "the model that the client received was changed"

    def test_what_is_sent_is_another_model_than_the_server_keeps(self) -> None:
        """Else ``sends`` has no effect."""
        if not self.method().sends:
            return
        with self.trained(keep_every=1, save_clients="all") as run:
            kept, sent = _flat(run.after_round(1)), _flat(run.anchor(2))
            assert not torch.equal(kept, sent), "what is sent is the model that the server keeps"

    def test_on_fedavg_it_is_what_it_is_alone(self) -> None:
        """FedAvg adds nothing: the sum with it has the bits of the method."""
        with self._sum(parse("fedavg"), self.method()) as both:
            if both is None:
                return
            with self.trained() as alone:
                assert torch.equal(_flat(alone.final), _flat(both.final)), "fedavg changes the method"

    def test_with_fedprox_it_trains_or_is_refused(self) -> None:
        """A sum with another method is trained, or refused with a ``UserError`` before training."""
        with self._sum(self.method(), parse("fedprox")) as both:
            if both is not None:
                assert _flat(both.final).isfinite().all(), "the sum's model is not finite"

    @contextmanager
    def _sum(self, one: Method, other: Method) -> Iterator[RunFolder | None]:
        """Yield a finished run of the sum of two methods, or nothing where it is refused."""
        try:
            both = one + other
            self.federation(both)
        except UserError:
            yield None
            return
        with self.trained(both) as run:
            yield run

    @contextmanager
    def trained(
        self, method: Method | None = None, *, interrupted: bool = False, **settings: Any
    ) -> Iterator[RunFolder]:
        """Yield a finished run, stopped and taken up again after its first round if ``interrupted``.

        For laws of one's own: ``with self.trained(keep_every=1, save_clients="all") as run``. ``method`` is
        trained in place of the one under test.
        """

        def stop(_: object) -> None:
            if interrupted:
                raise _StopError

        with tempfile.TemporaryDirectory() as folder:
            federation = self.federation(method, **settings)
            run = open_run(federation, RunRegistry(Path(folder)), "run", resume=False)
            with _faults_are_failures():
                try:
                    train(federation, run, stop)
                except _StopError:
                    federation = self.federation(method, **settings)
                    run = open_run(federation, RunRegistry(Path(folder)), "run", resume=True)
                    train(federation, run, lambda _: None)
            assert run.final.exists(), f"{federation.method.name}: the loss or the model is not finite"
            yield run

    def federation(self, method: Method | None = None, **settings: Any) -> Federation:
        """Return what a run of the method under test is made of, or of ``method`` in its place.

        That record is taken whatever is installed under its name. ``settings`` are fields of Settings.
        """
        record = method or self.method()
        fields = {**SMALL, **self.settings, **settings, "method": record.name}
        with _faults_are_failures(), on_trial(record):
            return prepare(Settings.model_validate(fields), dict(self.options))

    def _after_a_client(self) -> LocalTrainer:
        federation = self.federation()
        settings, method = federation.settings, federation.method
        trainer = LocalTrainer(
            FlatModel(federation.model.double()), federation.training, federation.pipeline, method,
            settings.options, local_settings(settings, federation.weights), lr=settings.lr,
            mean_samples=len(federation.rows[0]), classes=len(federation.dataset.classes),
        )  # fmt: skip

        def stream(name: str) -> torch.Generator:
            return torch_stream(0, name)

        task = Task(federation.rows[0], stream("batch order"), stream("augmentation"), random=stream)
        with _faults_are_failures():
            trainer.train(trainer.clients.initial, trainer.model.counters.clone(), [task], settings.lr)
        return trainer


@contextmanager
def _faults_are_failures() -> Iterator[None]:
    try:
        yield
    except MethodError as error:
        raise AssertionError(str(error)) from error


def _flat(path: Path) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in load_checkpoint(path).state.values()])
