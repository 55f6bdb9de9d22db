"""What a round records of its updates and of its local training, beside scores and costs.

Symbols: θ_t, the model that the clients of round t start from; Δ_k = w_k − θ_t, the update of client k; p_k,
its weight in the server's mean. Updates are those of the P trainable parameters that all clients share. A
number that is not finite, or is not defined, is null.
"""

from typing import Annotated

from pydantic import Field

from fedscope.validation import Plain

Real = Annotated[float, Field(allow_inf_nan=False)] | None
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
Cosine = Annotated[float, Field(ge=-1.000001, le=1.000001)] | None
Share = Annotated[float, Field(ge=0, le=1)] | None


class CosineSpread(Plain):
    """Mean and extremes of several cosines."""

    mean: Cosine  # unweighted
    least: Cosine  # the least
    most: Cosine  # the largest


class Updates(Plain):
    """The clients' updates, and how far they part."""

    norms: list[Size]  # ‖Δ_k‖ of each client, in the order of `clients` [w]
    mean_norm: Size  # ‖Σ p_k Δ_k‖, of the mean update [w]
    drift: Size  # Σ p_k ‖w_k − w̄‖², w̄ = Σ p_k w_k [w²]
    diversity: Size  # gradient diversity Σ ‖Δ_k‖² / ‖Σ Δ_k‖² (Yin et al. 2018)
    # between every two updates; None for one client, and where too many are sampled to hold their updates
    pairs: CosineSpread | None = None
    # between each update and the mean update; None where they are not held
    to_mean: CosineSpread | None = None
    # Σ p_k ‖r_k − r̄‖² / ‖r̄‖² of BatchNorm's running means and variances r_k; None without BatchNorm
    batchnorm: Size = None


class ServerMove(Plain):
    """The way of the model that clients start from."""

    step: Size  # ‖θ_{t+1} − θ_t‖ [w]
    cosine: Cosine = None  # between this step and the one before; None in a run's first round
    distance: Size  # ‖θ_{t+1} − θ_0‖ [w]
    # norm of each vector that the server remembers of the method, by name
    state: dict[str, Size] = Field(default_factory=dict)
    # mean norm of each vector that the round's clients remember, by name
    memory: dict[str, Size] = Field(default_factory=dict)


class Ascent(Plain):
    """The sharpness that methods with an ascent step see: of every step that takes two gradients."""

    rise: Real  # mean of ℓ(w + e) − ℓ(w) [loss]
    cosine: Cosine  # mean cosine between ∇ℓ(w) and ∇ℓ(w + e)


class Local(Plain):
    """The clients' local training; lists are in the order of `clients`."""

    # cross-entropy of the model received on the client's first mini-batch, augmented, in training mode [loss]
    before: list[Real]
    first_epoch: list[Real]  # mean over the first local epoch, while the model moves [loss]
    last_epoch: list[Real]  # mean over the last local epoch [loss]
    clipped: Share = None  # share of the local steps whose gradient was clipped; None without clipping
    ascent: Ascent | None = None  # of FedSAM and its kin; None without an ascent step
    # what a method notes of its forward passes, mean over all of them: of MAN mean(a²) by layer
    noted: dict[str, dict[str, Real]] = Field(default_factory=dict)


class CurvatureProbe(Plain):
    """λ_max and trace of the global model after the round, under ``--probe-curvature``."""

    lambda_max: Real  # largest eigenvalue of the Hessian [loss/w²]
    residual: Size  # ‖Hv − λv‖, a bound on its error [loss/w²]
    trace: Real  # by Hutchinson's probes [loss/w²]
    trace_stderr: Size  # standard error of the probes [loss/w²]
    samples: Annotated[int, Field(ge=1)]  # training rows that were measured on [samples]
    products: Annotated[int, Field(ge=0)]  # Hessian–vector products


class Diagnostics(Plain):
    """What a round records of its updates and of its local training."""

    updates: Updates  # the clients' updates
    server: ServerMove  # the way of the model that clients start from
    local: Local  # the clients' local training
    # of the evaluated model on each class; null for one without a sample
    class_accuracy: list[Share] = Field(default_factory=list)
    curvature: CurvatureProbe | None = None  # of the round's global model, where it was measured
