"""λ_max and trace of the global model while it is trained, on samples that stay the same in all rounds.

The samples are those of ``fedscope hessian RUN@ROUND --samples N``: training rows, without augmentation,
BatchNorm in eval mode. Lanczos begins at the eigenvector of the round that was measured before, the first
time of a process at random: so λ_max of a resumed run may differ within its residual. The trace is
Hutchinson's mean over the same few probes in every round, so that its error is nearly the same in all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedscope.checkpoints.file.round_diagnostics import CurvatureProbe
from fedscope.data.loading.datasets import part
from fedscope.federated.setup.federation import Federation
from fedscope.federated.setup.trained_network import rebuilt
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import tell_elsewhere
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.records.number_types import or_null
from fedscope.streams import torch_stream
from fedscope.workflows.sources.samples import Data, Source, draw

PROBES = 8  # of the trace


@dataclass
class CurvatureProber:
    """Measures the global model of a run's rounds; called with the round and the model's state dict."""

    federation: Federation
    run: str
    _leading: Tensor | None = field(default=None, init=False)  # (n, 1): of the round measured last

    def __post_init__(self) -> None:
        """Refuse a network whose Hessian cannot be taken, before anything is trained."""
        self._operator(0, self.federation.model.state_dict())

    def __call__(self, round: int, state: Mapping[str, Tensor]) -> CurvatureProbe:
        operator = self._operator(round, state)
        pairs = top_eigenpairs(
            operator, generator=torch_stream(0, "lanczos"), start=self._leading, by_sample=False
        )
        total = trace(operator, probes=PROBES, generator=torch_stream(0, "trace"))
        finite = bool(pairs.vectors.isfinite().all())
        self._leading = pairs.vectors.T if finite else None
        content = {
            "lambda_max": or_null(float(pairs.values[0])),
            "residual": or_null(float(pairs.residuals[0])),
            "trace": or_null(total.value),
            "trace_stderr": or_null(total.stderr_probe),
            "samples": self._samples,
            "products": pairs.matvecs + total.matvecs,
        }
        return CurvatureProbe.read(content, "a round's curvature")

    @property
    def _samples(self) -> int:
        return min(self.federation.settings.probe_samples, len(self._used()))

    def _operator(self, round: int, state: Mapping[str, Tensor]) -> Hessian:
        federation = self.federation
        model = rebuilt(federation.spec, torch.Generator())
        model.load_state_dict(state)
        tell_elsewhere(model)  # before the first round no BatchNorm has seen a sample
        loss, device = federation.dataset.train.task_loss.function, federation.settings.device
        return Hessian(model.to(device).eval(), loss, self._batches(round))

    def _batches(self, round: int) -> Batches:
        federation, used = self.federation, self._used()
        source = Source(
            samples=federation.settings.probe_samples, device=torch.device(federation.settings.device)
        )
        info = federation.info(self.run, round, {}, federation.stored(federation.rows).spec)
        rows = used[draw(len(used), source)].to(source.device)
        split, every = federation.dataset.train.take(rows).to(torch.device("cpu")), torch.arange(len(rows))
        data = Data(split, federation.dataset.classes, every)
        return data.batches(info, source, every, population=len(used))

    def _used(self) -> Tensor:
        settings, held_out = self.federation.settings, self.federation.held_out.cpu()
        used = part(self.federation.dataset.train, settings.train_samples, settings.seed, "train")
        return used[~torch.isin(used, held_out)]
