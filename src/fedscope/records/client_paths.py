"""Parts of ``fedscope clients --json`` from losses and gradients alone: noise, critical steps, barriers."""

from fedscope.choices import Anchor
from fedscope.records.cross_client_entry import Matrix
from fedscope.records.estimates import EstimateEntry
from fedscope.records.number_types import Count, Many, Number
from fedscope.validation import Plain


class NoiseScaleEntry(Plain):
    """How the gradients of one loss scatter over its samples (McCandlish et al. 2018)."""

    trace: EstimateEntry  # tr Σ of the gradients of single samples [loss²/w²]
    square: EstimateEntry  # ‖G‖² of their mean [loss²/w²]
    scale: EstimateEntry  # noise scale tr Σ/‖G‖²; null: an infinite end of the interval [samples]
    samples: Count  # that were taken [samples]


class Noise(Plain):
    """How the clients' gradients g_k at the global model scatter, within and between clients."""

    clients: Many[NoiseScaleEntry]  # of each client's own loss
    whole: NoiseScaleEntry  # of Σ p_k f_k
    within: EstimateEntry  # Σ p_k tr Σ_k [loss²/w²]
    between: EstimateEntry  # ζ² = Σ p_k ‖g_k − g‖² [loss²/w²]
    apart: Many[EstimateEntry]  # ‖g_k − g‖² of each client [loss²/w²]
    relative: EstimateEntry  # ζ²/‖g‖²
    dissimilarity: EstimateEntry  # B² = Σ p_k ‖g_k‖²/‖g‖² = 1 + ζ²/‖g‖²


class CriticalStepEntry(Plain):
    """How far along an update the global loss stays below where it began; 1 is the update itself."""

    step: Number  # η_c; null where the loss never rises, and of an update within the weights' rounding
    stderr: Number  # standard error over the samples
    interval: Many[Number]  # 95 %
    length: Number  # ‖Δ‖ [w]
    rises_at_once: bool  # whether every step that was tried raises the loss
    never_rises: bool  # whether none does

    @property
    def sharpness(self) -> float:
        """The critical sharpness λ_c = 2/η_c of the update (Kalra et al. 2026)."""
        return float("inf") if self.rises_at_once else 0.0 if self.never_rises else 2 / self.step


class Critical(Plain):
    """Critical steps along the clients' updates and along their mean, the server's pseudo-gradient."""

    anchor: Anchor  # what updates are from
    loss: Number  # global loss there [loss]
    server: CriticalStepEntry  # along Σ p_k Δ_k
    clients: Many[CriticalStepEntry]  # along each Δ_k


class Barriers(Plain):
    """How far the global loss rises between the clients' models."""

    mean: EstimateEntry  # over the pairs [loss]
    average: EstimateEntry  # F(w̄) − Σ p_k F(w_k), of the average of all [loss]
    matrix: Matrix  # (K, K): of each pair; NaN on the diagonal [loss]
    stderr: Matrix  # standard errors over the samples [loss]
    similarities: Matrix  # (K, K): cosines of the parameters
    low: Matrix | None = None  # lower ends of the 95 % intervals, 0 at least [loss]
    high: Matrix | None = None  # upper ends [loss]


class AllBarriers(Plain):
    """The barriers between the models as they are, and with their channels in matched order."""

    plain: Barriers  # as they are
    matched: Barriers | None  # each pair matched (Ainsworth et al. 2023); None: the network has no such order
    unmatched_reason: str | None = None  # why it has none
