"""What the curvature operators of a loss share: a weighted mean over batches of symmetric products."""

import hashlib
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fedscope.choices import BatchNormMode, ProductsName
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Data
from fedscope.landscape.loss.flat_loss import FlatLoss, LossFunction, signs
from fedscope.landscape.loss.forms import Form
from fedscope.landscape.loss.mean_loss import is_mean
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree, octets
from fedscope.landscape.operators.base import Product
from fedscope.landscape.operators.batch_mean import BatchMean, add_up, share
from fedscope.landscape.operators.products.definition import Definition, compared
from fedscope.landscape.operators.products.finite_differences import FiniteDifferences
from fedscope.landscape.operators.products.graph_cache import Graph, GraphPlan, Graphs
from fedscope.landscape.operators.products.preflight import OTHERWISE, difference, joined, preflight, prepared
from fedscope.landscape.operators.products.sample_forms import every_form, forms_hold


class LossOperator(BatchMean):
    """A = Σ_b (n_b/N)·A_b over the parameters that require a gradient, or over some of them.

    Batches are weighted by their sample counts and summed in float64; parameters the loss does not use
    have zero rows. A batch is cut into parts whose graphs stay small, where its loss is the weighted mean of
    theirs, and graphs are kept between products as far as ``memory`` goes; ``plan`` says what came of it.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, the same in every product, see :meth:`Batches.of`: the rows of a loader that
            shuffles or augments are fixed.
        bn: what BatchNorm does, see ``frozen_copy``.
        parameters: patterns such as ``layer3.*`` or ``*.weight`` (:mod:`fnmatch`); the operator is the
            diagonal block of the parameters whose names match one. None: all that require a gradient.
        memory: bytes that graphs may take together; None: a quarter of what is free, on a CPU at most 4 GiB.
        deal: deal the samples at random to so many batches or more (:meth:`Batches.dealt`), so that errors
            told by batches do not depend on how samples are stored; where their loss is no mean over samples
            they stay as they are.
        group: processes that share the batches (``torch.distributed.group.WORLD``, say). Each must be given
            the same model and all batches, and call for the same products; all get the same bits.
        products: how they are computed: ``exact`` to rounding, or, of the Hessian, by ``finite-differences``
            of gradients, which need no second derivative and say what they are off by (``Product.error``).

    Attributes:
        names: the parameter tensors, in order.
        numels: their lengths.
        differences: the finite differences that its products are; None where they are exact.

    Raises:
        UserError: see ``FlatLoss``; or, at the first product, what ``preflight`` refuses: an operation that
            cannot be differentiated as often as the operator needs, outputs that differ from one evaluation
            to the next; or what ``compared`` refuses: products that are not what their definition says.
    """

    _one_by_one = False  # whether the products are of each sample's own gradient
    _of_gradients = False  # whether they are derivatives of gradients

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Data,
        *,
        bn: BatchNormMode = "eval",
        parameters: Sequence[str] | None = None,
        memory: int | None = None,
        deal: int | None = None,
        group: ProcessGroup | None = None,
        products: ProductsName = "exact",
    ) -> None:
        if memory is not None and memory < 0:
            raise UserError(f"memory is {memory} bytes; it must be at least 0")
        exact = products == "exact"
        if not exact and not self._of_gradients:
            raise UserError(
                f"products={products!r} are of gradients, whose derivative is the Hessian alone; leave "
                "products out, or take the Hessian"
            )
        self._loss = FlatLoss(model, loss_fn, batches, bn=bn, parameters=parameters, twice=exact)
        if self._one_by_one and self._loss.mixed:
            raise UserError(
                "BatchNorm uses the batch's own statistics, so that no sample has a gradient of its own; "
                "take bn='eval' or 'recalibrate', with layers that keep running statistics"
            )
        if deal and is_mean(self._loss):
            self._loss.batches = self._loss.batches.dealt(deal)
        self.names = self._loss.names
        self.numels = self._loss.numels
        super().__init__(
            sum(self.numels),
            dtype=self._loss.dtype,
            device=self._loss.device,
            blocks=tuple(zip(self.names, self.numels, strict=True)),
            weights=self._loss.batches.sizes,
            population=self._loss.batches.population,
            shapes=self._loss.shapes,
            group=group,
        )
        self._memory = memory
        self._prepared: Graphs | None = None
        self._departs: str | None = None
        self._last: Graphs | None = None  # those that the last product was of; only they are kept
        self._verified = not exact
        own = weakref.proxy(self)
        self.differences = (
            None if exact else FiniteDifferences(self._loss, lambda b: own._parts(b), lambda: own._gradient())
        )
        if self.differences and self._loss.form.fast:
            self._loss.give_up_form("finite differences are taken of the network as it is")

    @property
    def loss(self) -> FlatLoss:
        """The loss that this is an operator of."""
        return self._loss

    @property
    def form(self) -> Form:
        """Whether the network is evaluated in a faster form, and if not, why; the first product decides."""
        return self._loss.form

    @property
    def departs(self) -> str:
        """What products are of where the gradient is not the loss's, in a sentence; nothing where it is."""
        self._graphs()
        return self._departs or ""

    def after(self, other: "LossOperator") -> Self:
        """Take over that products are what they say from another operator of the same network and loss."""
        self._departs = other.departs
        return self

    @property
    def plan(self) -> GraphPlan:
        """How the products are computed."""
        return self._graphs().plan

    @cached_property
    @torch.no_grad()
    def fingerprint(self) -> str:
        """A hash of what decides the products: kind, names, weights, samples, and what these give.

        That is every batch's loss, and a product with the first batch's first part, so that another
        network or loss is told from this one even where it differs in its derivatives alone.
        """
        graphs = self._graphs()
        along = signs(self._loss.center)
        if self.differences:
            product = self.batch_products(0, along[None])[0].to(self.dtype)
        else:
            with self._loss.exact(), torch.enable_grad():
                product = self._times(self._graph_of(graphs, 0, 0), along)
        how = f" {self.differences.step.length}" if self.differences else ""
        digest = hashlib.sha256(f"{type(self).__name__} {self.names} {self._memory}{how}".encode())
        digest.update(self._loss.batches.sha256.encode())
        for tensor in (self._loss.center, self._loss.losses, product):
            digest.update(octets(tensor))
        return digest.hexdigest()

    def gradient(self) -> Tensor:
        """Return the gradient of the mean loss at the model's weights, (n,) in the operator's dtype."""
        return self._gradient().to(self.dtype)

    def _gradient(self) -> Tensor:
        total = torch.zeros_like(self._loss.center, dtype=torch.float64)
        self._loss.load(self._loss.center)
        for b in share(len(self._loss.batches), self._group):
            weight = self._loss.batches.sizes[b] / self._loss.batches.samples
            for part, of_batch in self._parts(b):
                total.add_(self._loss.gradient(*part), alpha=weight * of_batch)
        add_up(self._group, total)
        return total

    def _parts(self, b: int) -> Iterator[tuple[Batch, float]]:
        graphs = self._graphs()
        for part in graphs.parts(b):
            yield graphs.samples(b, part), graphs.share(b, part)

    @abstractmethod
    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        """Return what every product with some samples begins at, and their mean loss without a graph."""

    @abstractmethod
    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        """Return A_b v (n,), leaving the graph usable."""

    @abstractmethod
    def _definition(self) -> Definition:
        """Return what the products are, for comparing them with it."""

    @abstractmethod
    def _forms(self, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
        """Return vᵀA_i v (n_b,) of a batch's samples, differentiating in forward mode."""

    @torch.no_grad()
    def sample_forms(self, v: Tensor) -> Tensor | None:
        """Return vᵀA_i v (N,) of each sample, at the cost of about two products.

        None where samples depend on each other, an operation has no derivative in forward mode or a wrong
        one, or the loss is no plain mean over samples.
        """
        v = v.to(self.device, self.dtype)
        if self._loss.coupled or not self._forms_hold:
            return None
        return every_form(self._loss, self._forms, v, self.plan.together, self._group)

    @cached_property
    def _forms_hold(self) -> bool:
        return forms_hold(self._loss, self._definition(), self._forms)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        if self.differences:
            return self.differences.products(rows, onto, self._sums)
        products = self._mean(rows, onto)
        if not self._verified:
            self._verified = True
            if reason := difference(self._loss, self._graphs(), self._group):
                self._loss.give_up_form(reason)
                self._prepared = None
                products = self._mean(rows, onto)
        return products

    def _alone(self, rows: Tensor) -> list[Product]:
        if self._joined is None:
            return self._apply(rows, None)
        return [Product(found, None) for found in self._together(self._joined, rows)]

    def _together(self, graphs: Graphs, rows: Tensor) -> Tensor:
        sizes, totals = graphs.batches.sizes, torch.zeros_like(rows, dtype=torch.float64)
        for b, samples in enumerate(sizes):
            totals.add_(self._times_all(graphs, b, rows), alpha=samples / sum(sizes))
        return totals.to(self.dtype)

    @cached_property
    def _joined(self) -> Graphs | None:
        if self.differences or self._group or not self._graphs().joined:
            return None  # at no product
        along = signs(self._loss.center)[None]
        (apart,) = self._apply(along, None)  # which decides in what form the network is evaluated
        return joined(self._loss, self._graphs(), along, apart.vector[None], self._together)

    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        """Return A_b v for the m rows of an (m, n) matrix; the sums of several parts in float64."""
        if self.differences:
            return self.differences.batch_products(b, rows)[: len(rows)]
        return self._times_all(self._graphs(), b, rows)

    def _graph_of(self, graphs: Graphs, b: int, part: int) -> Graph:
        if self._last and self._last is not graphs:
            self._last.release()
        self._last = graphs
        return graphs.graph(b, part)

    def _times_all(self, graphs: Graphs, b: int, rows: Tensor) -> Tensor:
        with torch.enable_grad(), self._loss.exact():
            if len(graphs.parts(b)) == 1:
                graph = self._graph_of(graphs, b, 0)
                found = [self._times(graph, v) for v in rows]
                return torch.stack(found) if len(found) > 1 else found[0][None]
            products = torch.zeros_like(rows, dtype=torch.float64)
            for part in graphs.parts(b):
                graph = self._graph_of(graphs, b, part)
                for product, v in zip(products, rows, strict=True):
                    product.add_(self._times(graph, v), alpha=graphs.share(b, part))
        return products

    def diagonal_parts(self, probes: Tensor, most: int) -> Tensor:
        """Return z ⊙ A_p z (m, P, n) of P ≤ ``most`` runs of batches, at m products."""
        if not self._verified:
            self._apply(probes[:1].to(self.device, self.dtype), None)
        return super().diagonal_parts(probes, most)

    def _graphs(self) -> Graphs:
        """Return the graphs; at the first call, look at what they rest on and cost."""
        if self._prepared is None:
            exact, otherwise = self.differences is None, OTHERWISE if self._of_gradients else ""
            # Held by its graphs, the operator would keep gigabytes of them until a collection of cycles.
            own = weakref.proxy(self)
            graphs = prepared(
                self._loss, lambda inputs, targets: own._graph(inputs, targets),
                lambda: preflight(self._loss, self._graph, twice=exact, otherwise=otherwise),
                memory=self._memory, keep=exact,
            )  # fmt: skip
            if self._departs is None:
                most = graphs.plan.microbatch // 2  # float64 takes twice the bytes
                parts, apart = self._definition(), self._one_by_one
                self._departs = compared(self._loss, parts, most, otherwise, apart=apart)
            self._prepared = graphs
        return self._prepared
