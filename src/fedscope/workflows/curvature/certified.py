"""A checkpoint measured by our own estimators, whose errors are known."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_products
from fedscope.landscape.operators.preconditioned import Preconditioned as Operand
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.krylov.ritz import Which
from fedscope.landscape.spectral.layer_blocks import block_patterns, layer_eigenpairs, layer_patterns
from fedscope.landscape.spectral.slq_density import PROBES, spectral_density
from fedscope.landscape.spectral.spectral_results import Density, Eigenpairs, Probed, Trace
from fedscope.records.entries import eigenvalues
from fedscope.records.hessian_record import PreconditionedEntry
from fedscope.records.stability import largest_stable_adaptive
from fedscope.streams import key, torch_stream
from fedscope.workflows.curvature.compared_clients import ClientComparison, compare_clients
from fedscope.workflows.curvature.record import Estimates
from fedscope.workflows.curvature.resources import Resources
from fedscope.workflows.requests import Request
from fedscope.workflows.results.lookup import Part
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import Participants
from fedscope.workflows.sources.server_state import adaptive_server
from fedscope.workflows.study import Session


def preconditioned(
    problem: Problem, operator: Operator, *, tol: float, generator: torch.Generator, progress: Progress
) -> PreconditionedEntry:
    """Return λ_max of P^(-1/2) H P^(-1/2) for the P of the server's step that led to the checkpoint.

    Args:
        problem: of a global model.
        operator: H, whole or a block of its parameters.
        tol: residual of the eigenpair, relative to its value.
        generator: draws the start of the Lanczos process.
        progress: called after every product.
    """
    server = adaptive_server(problem)
    scale = operator.flatten({name: server.scale[name] for name, _ in operator.blocks})
    found = top_eigenpairs(Operand(operator, scale), tol=tol, generator=generator, progress=progress)
    return PreconditionedEntry.read(
        {
            "optimizer": server.name,
            "lambda_max": {**eigenvalues(found)[0], "by_sample": None},
            "converged": found.converged,
            "smallest": float(scale.min()),
            "largest": float(scale.max()),
            "beta1": server.beta1,
            "gamma": server.gamma,
            "steps": server.steps,
            "rate": server.rate,
            "stable": largest_stable_adaptive(server.rate, beta1=server.beta1),
            "state_sha256": server.sha256,
            "matvecs": found.matvecs,
        }
    )


@dataclass
class Trail:
    """The eigenvectors of the round that was measured last, where the next one's Lanczos process begins."""

    vectors: Tensor | None = None  # (k, n)


@dataclass(frozen=True)
class Certified:
    """Our own estimators on one problem, with every product in the session's cache.

    ``curvature`` makes the operator of a model on batches, or of some of its parameters. A warm request
    begins at ``trail``, and leaves its eigenvectors there.
    """

    problem: Problem
    request: Request
    curvature: Callable[..., LossOperator]
    session: Session
    trail: Trail = field(default_factory=Trail)
    resources: Resources = field(default_factory=Resources)

    def estimates(
        self, whole: LossOperator, participants: Participants | None, missing: Set[Part]
    ) -> Estimates:
        request, operator = self.request, self.session.cache.operator(whole)
        compared = participants if "cross_client" in missing else None
        overlap = (request.cross_client.overlap or 0) if compared else 0
        pairs = total = None
        dense = "density" in missing
        if overlap or {"eigenvalues", "trace"} & missing:  # the trace is deflated by their basis
            pairs = self._eigenpairs(operator, max(request.top_k, overlap))
            check_products(str(self.problem.path), whole, pairs.values)
            total = self._trace(operator, pairs, keep=PROBES if dense else 0) if "trace" in missing else None
            pairs = replace(pairs, subspace=None)  # nobody else needs the basis
        layers, blocks = layer_patterns(whole.names), block_patterns(whole.names)
        return Estimates(
            pairs=pairs if "eigenvalues" in missing else None,
            trace=total and replace(total, probed=None),
            layers=self._parts("layer", layers, whole.names) if "layers" in missing else None,
            blocks=self._parts("block", blocks, whole.names) if "blocks" in missing else None,
            density=self._density(operator, total.probed if total else None) if dense else None,
            preconditioned=self._preconditioned(whole) if "preconditioned" in missing else None,
            clients=self._clients(compared, pairs) if compared else None,
        )

    def _eigenpairs(self, operator: Operator, k: int) -> Eigenpairs:
        which: Which = "both" if self.request.both_ends else "largest"
        tol, draws = self.request.tol, self._stream("lanczos")
        start = self.trail.vectors if self.request.warm else None
        with self.session.stage(f"{self.problem.title}: λ_max, products") as progress:
            found = top_eigenpairs(
                operator, k=k, which=which, tol=tol, generator=draws, start=start,
                basis_folder=self.resources.basis_folder, max_basis=self.resources.rows, progress=progress,
            )  # fmt: skip
        if self.request.warm:
            self.trail.vectors = found.vectors.T
        return found

    def _trace(self, operator: Operator, pairs: Eigenpairs, *, keep: int) -> Trace:
        probes, known, draws = self.request.probes, pairs.subspace, self._stream("trace")
        rtol = None if probes else self.request.trace_rtol
        with self.session.stage(f"{self.problem.title}: trace, products") as progress:
            return trace(
                operator,
                rtol=rtol,
                probes=probes,
                known=known,
                generator=draws,
                keep=keep,
                basis_folder=self.resources.basis_folder,
                max_basis=self.resources.trace_rows,
                block=self.resources.block,
                progress=progress,
            )

    def _parts(self, kind: str, patterns: Sequence[str], names: Sequence[str]) -> dict[str, Eigenpairs]:
        seed, own = key(self.problem.source.seed, "layers"), (self.problem.model, self.problem.batches)

        def restricted(patterns: Sequence[str]) -> Operator:
            within = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
            return self.session.cache.operator(self.curvature(*own, within))

        with self.session.stage(f"{self.problem.title}: λ_max of each {kind}, products") as progress:
            return layer_eigenpairs(restricted, patterns, tol=self.request.tol, seed=seed, progress=progress)

    def _density(self, operator: Operator, probed: Probed | None) -> Density:
        with self.session.stage(f"{self.problem.title}: density, products") as progress:
            return spectral_density(
                operator, probed=probed, generator=self._stream("density"),
                basis_folder=self.resources.basis_folder, progress=progress,
            )  # fmt: skip

    def _preconditioned(self, whole: LossOperator) -> PreconditionedEntry:
        with self.session.stage(f"{self.problem.title}: λ_max of P⁻¹H, products") as progress:
            return preconditioned(
                self.problem, self.session.cache.operator(whole), tol=self.request.tol,
                generator=self._stream("preconditioned"), progress=progress,
            )  # fmt: skip

    def _clients(self, participants: Participants, pairs: Eigenpairs | None) -> ClientComparison:
        with self.session.stage(f"{self.problem.title}: cross-client, products") as progress:
            return compare_clients(
                participants,
                self.request.cross_client.settled("paper"),
                lambda model, batches: self.session.cache.operator(self.curvature(model, batches)),
                seed=self.problem.source.seed,
                leading=pairs.vectors if pairs else None,
                tol=self.request.tol,
                progress=progress,
            )

    def _stream(self, purpose: str) -> torch.Generator:
        return torch_stream(self.problem.source.seed, purpose)  # on the CPU: the same probes on every device
