"""The Fisher information with labels drawn from the model itself, an unbiased estimate of Gauss–Newton.

For a loss that is the negative logarithm of a likelihood the Fisher information, over labels drawn from the
model's own distribution, is the generalised Gauss–Newton matrix JᵀH_f J (Martens 2020, section 9.2); at the
labels of the data, as in ``EmpiricalFisher``, it is not (Kunstner, Hennig and Balles 2019). With r the
gradient, in the outputs f, of the loss at the label drawn, E[r rᵀ] = H_f:

- cross-entropy: y ~ softmax(f), r = softmax(f) − e_y;
- mean squared error over d outputs, (1/d)·‖f − y‖²: y ~ N(f, d/2), r = −√(2/d)·ε with ε ~ N(0, 1).

A loss that is a mean over places as well, tokens say, has independent labels at each; the factor 1/M of its M
places in a batch goes into r as 1/√M.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.checks import close, largest
from fedscope.landscape.loss.flat_loss import SAMPLE, LossFunction
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.recomputed.heads import HeadGraph
from fedscope.landscape.loss.recomputed.logits import Logits
from fedscope.landscape.loss.sample_curvature import drawn_forms
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree, some
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.gauss_newton import jacobian_of, one_tensor, outputs_of, pushed_through
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.operators.products.definition import Definition, of_outputs
from fedscope.landscape.operators.products.graph_cache import Graph

_NO_LIKELIHOOD = (
    "the loss is neither the mean cross-entropy nor the mean squared error of outputs and targets (without "
    "class weights or label smoothing), so that no labels can be drawn from it; take GaussNewton (fedscope "
    "hessian --operator ggn), which draws none"
)
_IGNORED = -100  # the label of padding, as of PyTorch's cross-entropy


class MonteCarloFisher(LossOperator):
    """F = (1/N)·Σ_i (1/S)·Σ_s J_iᵀ r_is r_isᵀ J_i with r_is at labels that the model draws: E[F] = JᵀH_f J.

    The labels are drawn once, so that this is one fixed matrix, positive semi-definite and of a rank of at
    most S·N. A sample's labels do not depend on how samples are batched or dealt. The error bars over the
    samples take in what the labels scatter. S times the numbers of the outputs are held with each graph,
    but for logits that are taken by chunks. Arguments and errors as of :class:`LossOperator`, and:

    Args:
        samples: S, labels of each sample.
        generator: draws them.
        seed: of such a generator instead; 0 if neither is given.

    Raises:
        UserError: the loss is no mean cross-entropy or squared error (class weights and label smoothing are
            no likelihoods), ``samples`` is below 1, or both ``generator`` and ``seed`` are given.
    """

    _one_by_one = True

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Data,
        *,
        samples: int = 1,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        bn: BatchNormMode = "eval",
        parameters: Sequence[str] | None = None,
        memory: int | None = None,
        deal: int | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        if samples < 1:
            raise UserError(f"samples is {samples}; draw at least 1 label for each sample")
        generator = generator_of(generator, seed)
        given = Batches.of(batches, loss=loss_fn)
        super().__init__(
            model,
            lambda outputs, tree: loss_fn(outputs, tree["targets"]),
            given.mapped(lambda pair: (pair[0], {"targets": pair[1]})),
            bn=bn, parameters=parameters, memory=memory, deal=deal, group=group,
        )  # fmt: skip
        self._likelihood = self._recognised()
        self._loss.batches = self._loss.batches.with_targets(self._drawn(samples, generator))

    @torch.no_grad()
    def _recognised(self) -> "_Likelihood":
        """Return the likelihood that the loss is the negative logarithm of, told by some samples."""
        inputs, tree = next(iter(self._loss.batches))
        if not self._loss.coupled:
            few = self._loss.batches.spread(SAMPLE)
            inputs, tree = (some(side, slice(SAMPLE)) for side in few)
        with self._loss.plainly(), self._loss.exact():
            outputs = outputs_of(self._loss, inputs)
            for likelihood in _LIKELIHOODS:
                if self._is_of(likelihood, outputs, tree):
                    return likelihood
        raise UserError(_NO_LIKELIHOOD)

    def _is_of(self, likelihood: "_Likelihood", outputs: Tensor, tree: Tree) -> bool:
        if not likelihood.fits(outputs, tree["targets"]):
            return False
        own = likelihood.loss(outputs, tree["targets"])
        return close(self._loss.of(outputs, tree), own, outputs.dtype, beside=largest(outputs))

    @property
    def negative_log_likelihood(self) -> LossFunction:
        """The loss in its own form, which of log-probabilities has the curvature of a likelihood too."""
        return lambda outputs, targets: self._likelihood.loss(one_tensor(outputs), targets)

    @torch.no_grad()
    def _drawn(self, labels: int, generator: torch.Generator) -> list[Tree]:
        """Return each batch's targets with the labels drawn, from a stream for each sample."""
        batches = self._loss.batches
        seeds = torch.randint(1 << 62, (batches.samples,), generator=generator, device=generator.device).cpu()
        streams = (torch.Generator().manual_seed(seed) for seed in seeds[batches.order].tolist())
        found = []
        with self._loss.plainly(), self._loss.exact():
            for inputs, tree in batches:
                outputs = outputs_of(self._loss, inputs)
                if not self._is_of(self._likelihood, outputs, tree):  # of weighted classes, say
                    raise UserError(_NO_LIKELIHOOD)
                alone = (_computed(outputs[i : i + 1])[0] for i in range(outputs.shape[0]))
                each = [self._likelihood.draw(output, labels, next(streams)) for output in alone]
                found.append({**tree, "drawn": torch.stack(each)})
        return found

    def _residuals(self, outputs: Tensor, tree: Tree) -> Tensor:
        """Return r/√M, (n, S, …) as the outputs (n, …), so that A_b is the mean over s of Σ_i Jᵀr rᵀJ."""
        return self._likelihood.residuals(outputs.detach(), tree["targets"], tree["drawn"])

    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        outputs = outputs_of(self._loss, inputs)
        if isinstance(outputs, Logits) and self._likelihood.categorical:
            loss = self._loss.of(outputs, targets).detach()
            head = outputs.drawn(targets["drawn"], _labelled(targets["targets"], outputs.shape[:-1]))
            if head.used and not self._loss.logits.whole:
                return HeadGraph.of([head], self._loss.parameters), loss
        outputs = _computed(outputs)
        loss = self._loss.of(outputs.detach(), targets)
        return (*jacobian_of(self._loss, outputs), self._residuals(outputs, targets)), loss

    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        if isinstance(graph, HeadGraph):
            return joined(graph.times(self._loss.parameters, self._loss.split(v)))
        *jacobian, residuals = graph
        return self._back(jacobian[-2], residuals, pushed_through(self._loss, jacobian, v))

    def _back(self, outputs: Tensor, residuals: Tensor, pushed: Tensor) -> Tensor:
        """Return Jᵀ of the mean of r rᵀ times ``pushed``."""
        flat = residuals.reshape(*residuals.shape[:2], -1)  # (n, S, k)
        along = (flat * pushed.reshape(len(pushed), 1, -1)).sum(2) / flat.shape[1]  # (n, S)
        back = torch.einsum("ns,nsk->nk", along, flat).view_as(outputs)
        return joined(pulled((outputs,), self._loss.parameters, (back,)))

    def _definition(self) -> Definition:
        def product(batch: Batch, change: Tensor) -> Tensor:
            outputs = _computed(outputs_of(self._loss, batch[0]))
            return self._back(outputs, self._residuals(outputs, batch[1]), change.view_as(outputs))

        return of_outputs(self._loss, lambda batch: self._graph(*batch), self._times, product)

    def _forms(self, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
        return drawn_forms(self._loss, inputs, lambda outputs: self._residuals(outputs, targets), v)


@dataclass(frozen=True)
class _Likelihood:
    """What labels are drawn from."""

    fits: Callable[[Tensor, Tree], bool]
    """Whether outputs and targets have its shapes."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """(outputs, targets) ↦ its mean negative logarithm, up to a constant."""
    draw: Callable[[Tensor, int, torch.Generator], Tensor]
    """(the outputs (…) of one sample, S, stream) ↦ S draws."""
    residuals: Callable[[Tensor, Tree, Tensor], Tensor]
    """(outputs (n, …), targets, draws (n, S, …)) ↦ r/√M, (n, S, …)."""
    categorical: bool = False


def _categorical(classes: int) -> _Likelihood:
    def fits(outputs: Tensor, targets: Tree) -> bool:
        if not isinstance(targets, Tensor) or outputs.ndim < 2:
            return False
        if targets.is_floating_point():
            return targets.shape == outputs.shape
        logits = outputs.movedim(classes, 1)
        return targets.shape == (logits.shape[0], *logits.shape[2:]) and _known(targets, logits.shape[1])

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        own = targets.movedim(classes, 1) if targets.is_floating_point() else targets
        return nn.functional.cross_entropy(outputs.movedim(classes, 1), own)

    def draw(output: Tensor, labels: int, stream: torch.Generator) -> Tensor:
        chances = output.double().movedim(classes if classes < 0 else classes - 1, -1).softmax(-1)
        uniform = torch.rand(labels, *chances.shape[:-1], generator=stream, dtype=torch.float64)
        below = uniform.to(output.device)[..., None] > chances.cumsum(-1)
        return below.sum(-1).clamp(max=chances.shape[-1] - 1)

    def residuals(outputs: Tensor, targets: Tensor, drawn: Tensor) -> Tensor:
        chances = outputs.movedim(classes, -1).softmax(-1)
        off = chances[:, None] - nn.functional.one_hot(drawn, chances.shape[-1])
        meant = _labelled(targets, off[:, 0, ..., 0].shape).to(off)
        scaled = off * (meant / meant.sum().sqrt())[:, None, ..., None]
        return scaled.movedim(-1, classes if classes < 0 else classes + 1)

    return _Likelihood(fits, loss, draw, residuals, categorical=True)


def _known(labels: Tensor, classes: int) -> bool:
    return bool((((labels >= 0) & (labels < classes)) | (labels == _IGNORED)).all())


def _labelled(targets: Tensor, shape: Sequence[int]) -> Tensor:
    return targets.new_ones(shape, dtype=torch.bool) if targets.is_floating_point() else targets != _IGNORED


def _computed(outputs: Tensor) -> Tensor:
    return outputs.computed() if isinstance(outputs, Logits) else outputs


def _squared_error() -> _Likelihood:
    def fits(outputs: Tensor, targets: Tree) -> bool:
        return isinstance(targets, Tensor) and targets.shape == outputs.shape

    def draw(output: Tensor, labels: int, stream: torch.Generator) -> Tensor:
        return torch.randn(labels, *output.shape, generator=stream, dtype=torch.float64).to(output)

    def residuals(outputs: Tensor, targets: Tree, drawn: Tensor) -> Tensor:
        return math.sqrt(2 / outputs.numel()) * drawn

    return _Likelihood(fits, nn.functional.mse_loss, draw, residuals)


_LIKELIHOODS = (_categorical(1), _categorical(-1), _squared_error())
