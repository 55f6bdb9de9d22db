"""λ_max of the Hessian as an adaptive server's steps feel it, beside the largest that they are stable at."""

import torch

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.preconditioned import Preconditioned as Operand
from fedscope.landscape.operators.progress import Progress
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.records.entries import eigenvalues
from fedscope.records.preconditioned import Preconditioned
from fedscope.records.stability import largest_stable_adaptive
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.server_state import adaptive_server


def preconditioned(
    problem: Problem, operator: Operator, *, tol: float, generator: torch.Generator, progress: Progress
) -> Preconditioned:
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
    return Preconditioned.read(
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
