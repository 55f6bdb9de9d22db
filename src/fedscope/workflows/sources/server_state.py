"""What an adaptive server divided its step by in a checkpoint's round: P = diag(√s + ε), from the run."""

from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import content_hash
from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.checkpoints.file.schema import CheckpointInfo
from fedscope.checkpoints.file.state_folder import read_state, server_vectors
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.methods.normalized import reach
from fedscope.federated.methods.server_optimizers import adaptive_prefix, scale
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.setup.federation import local_settings
from fedscope.federated.setup.learning_rate import round_rate
from fedscope.federated.setup.resolved_settings import completed
from fedscope.workflows.sources.problem import Problem


@dataclass(frozen=True)
class AdaptiveServer:
    """The server's step that led to a global model."""

    name: str  # ``adam``…
    scale: dict[str, Tensor]  # √s + ε by the parameters' names, float64
    beta1: float
    gamma: float  # learning rate γ
    steps: int  # local steps τ of a mean client
    rate: float  # γηa, with a(τ) of :func:`fedscope.federated.methods.normalized.reach`
    sha256: str  # of the server's vectors


def adaptive_server(problem: Problem) -> AdaptiveServer:
    info, prefix = _info(problem)
    settings = completed(info.settings)
    options = settings.options
    vectors = _vectors(problem, info)
    flat = FlatModel(deepcopy(problem.model).to("cpu").double(), channels_last=not info.model.own)
    divisor = scale(prefix, vectors[f"{prefix}.s"], options, info.round)
    gamma = float(options[f"{prefix}.gamma"])
    local = local_settings(settings, settings.weights or "n_k")
    steps = local.round_steps((info.samples or 1) / settings.clients, None)
    moved = reach(steps, settings.momentum, settings.nesterov)
    return AdaptiveServer(
        name=prefix,
        scale=flat.named(divisor),
        beta1=float(options[f"{prefix}.beta1"]),
        gamma=gamma,
        steps=steps,
        rate=gamma * round_rate(settings, parse(settings.method), info.round) * moved,
        sha256=content_hash(vectors),
    )


def _info(problem: Problem) -> tuple[CheckpointInfo, str]:
    info = problem.info
    if info is None or info.settings.method == UNKNOWN or info.client is not None or info.average != "cld":
        raise UserError(
            "--preconditioned is of the global model of a run that was trained here: name RUN or RUN@25"
        )
    method = parse(info.settings.method)
    prefix = adaptive_prefix(method)
    if prefix is None:
        raise UserError(
            f"--preconditioned is of a server with FedAdagrad, FedAdam or FedYogi, and {info.run} was "
            f"trained with {info.settings.method}; its λ_max alone is what decides its steps"
        )
    if info.settings.optimizer != "sgd" or info.settings.stragglers:
        why = "stragglers" if info.settings.stragglers else f"local steps of {info.settings.optimizer}"
        raise UserError(f"--preconditioned knows how far equally many steps of SGD go; {info.run} has {why}")
    if method.personal:
        raise UserError(f"{info.run} has personal tensors, which the server's step does not move")
    if info.round < 1:
        raise UserError("before the first round the server has taken no step: name a later round")
    return info, prefix


def _vectors(problem: Problem, info: CheckpointInfo) -> dict[str, Tensor]:
    folder = layout.run_of(problem.path)
    state = folder and RunFolder(folder).server_state(info.round)
    if not state or not state.is_dir():
        raise UserError(
            f"the registry has not what the server of {info.run} remembered after round {info.round}: "
            "it is kept of the last round, and with train --keep-every K of every K-th, where the clients of "
            "the method remember nothing themselves"
        )
    return server_vectors(state, read_state(state))
