"""FedSMOO, FedTOGA and FedGloSS: FedDyn's objective, differentiated where the federation would go uphill.

FedSMOO: e = ρ s/‖s‖ with s = g − μ_k − s̄; each step μ_k ← μ_k + e − s̄. The client keeps μ_k and sends it,
the server sends s̄ = ρ μ̄/‖μ̄‖, μ̄ the participants' mean. As in the authors' program, which leaves a small
term out of s̄.

FedTOGA: e = ρ s/‖s‖ with s = g + κΔ_t + g_last, Δ_t = (θ_{t−1} − mean w_k)/a the last global step per local
step turned round, g_last the step before's gradient as clipped (``toga.neighbour``); the loss gets β⟨w, Δ_t⟩.
From two public programs; in one of them κΔ_t is h_k − θ_t in the ascent, against the paper's abstract.

FedGloSS: the server goes uphill before it sends. It keeps θ_t and sends θ_t − ρ_t u/‖u‖, u the last mean
displacement; clients train with FedDyn's terms around what they received, by FedSAM's steps of length ρ_l (by
plain ones if it is 0); the rule adds mean displacement and mean h to θ_t. Both radii grow linearly from
``gloss.start`` over the first ``gloss.warmup`` rounds. In the authors' terms β = 1/α. Their program divides
the mean h by the number of participants once more; here it is FedDyn's. Its server's radius is ρ_l, not ρ,
from the second round to the last of the warm-up.
"""

from dataclasses import replace

from torch import Tensor

from fedscope.federated.methods.ascent import BN, uphill
from fedscope.federated.methods.client_momentum import BY_NOMINAL_STEPS
from fedscope.federated.methods.dynamic import FEDDYN, server
from fedscope.federated.record.method import Gradient
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, Sending, ServerStep, Stack, Term

BESIDE = 1e-7  # beside a norm, as in FL-Simulator


def corrected_ascent(gradient: Gradient, step: Stack) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the task loss's gradient at w + ρ s/‖s‖, (K, P), and how far μ_k has moved in the round."""
    moved, theirs = step.state["smoo.moved"], step.received["smoo.s"]
    s = gradient(step.parameters) - (step.memory["smoo.mu"] + moved + theirs)
    e = uphill(s, float(step.options["smoo.rho"]), BESIDE)
    found = gradient(step.parameters + e, keep_buffers=step.options["sam.bn"] == "first")
    return found, {"smoo.moved": moved + e - theirs}


def keep_dual(end: Finish) -> dict[str, Tensor]:
    """Return μ_k."""
    return {"smoo.mu": end.memory["smoo.mu"] + end.state["smoo.moved"]}


def global_dual(step: ServerStep) -> dict[str, Tensor]:
    """Return s̄ = ρ μ̄/‖μ̄‖."""
    mean = (step.sums["smoo.mu"] / step.participants)[None]
    return {"smoo.s": uphill(mean, float(step.options["smoo.rho"]), BESIDE)[0]}


def global_tilt(step: Term) -> Tensor:
    """Return β⟨w, Δ_t⟩, a scalar."""
    return float(step.options["toga.beta"]) * (step.parameters * step.received["toga.delta"]).sum()


def trajectory_ascent(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ s/‖s‖, (K, P)."""
    options = step.options
    s = gradient(step.parameters) + float(options["toga.kappa"]) * step.received["toga.delta"]
    if options["toga.neighbour"] and step.last_gradient is not None:
        s = s + step.last_gradient
    e = uphill(s, float(options["toga.rho"]), BESIDE)
    return gradient(step.parameters + e, keep_buffers=options["sam.bn"] == "first")


def trajectory(step: ServerStep) -> dict[str, Tensor]:
    """Return Δ of the next round."""
    return {"toga.delta": (step.anchor - step.mean) / step.nominal_steps}


def radius(options: Values, final: str, rounds: Tensor) -> float | Tensor:
    """Return the radius called ``final`` after ``rounds`` rounds, a number (1,)."""
    end, start, warmup = float(options[final]), float(options["gloss.start"]), int(options["gloss.warmup"])
    return start + (end - start) * (rounds / warmup).clamp(max=1.0) if warmup else end


def local_ascent(gradient: Gradient, step: Stack) -> Tensor:
    """Return the task loss's gradient at w + ρ_l g/‖g‖, (K, P); at w where ρ_l is 0."""
    g = gradient(step.parameters)
    if not float(step.options["gloss.local_rho"]):
        return g
    e = uphill(g, radius(step.options, "gloss.local_rho", step.received["gloss.t"]))
    return gradient(step.parameters + e, keep_buffers=step.options["sam.bn"] == "first")


def model_to_send(at: Sending) -> Tensor:
    """Return θ_t − ρ_t u/‖u‖, (P,)."""
    return (
        at.kept - uphill(at.state["gloss.u"][None], radius(at.options, "gloss.rho", at.state["gloss.t"]))[0]
    )


def global_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return FedDyn's model as far as the clients have moved from what was sent; its h, u, and the rounds."""
    model, state = server(replace(step, mean=step.onto_kept(step.mean), anchor=step.kept))
    return model, {**state, "gloss.u": step.mean - step.anchor, "gloss.t": step.state["gloss.t"] + 1}


FEDSMOO = replace(
    FEDDYN,
    name="fedsmoo",
    objective="FedDyn's, ℓ differentiated at w + ρ s/‖s‖, s = ∇ℓ(w) − μ_k − s̄",
    source="Sun et al. 2023 (ICML); FL-Simulator, FedSMOO",
    place=f"as FedDyn: {FEDDYN.place}; the ascent sees the task loss alone",
    flatness=True,
    options=(
        *FEDDYN.options,
        Option("smoo.rho", 0.1, "length ρ of the ascent and of s̄ (FL-Simulator: 0.1, with dyn.alpha 0.1)"),
        BN,
    ),
    gradient_at=corrected_ascent,
    step_state=(Vector("smoo.moved"),),
    memory=(*FEDDYN.memory, Vector("smoo.mu")),
    uploads=(Vector("smoo.mu"),),
    finish=(*FEDDYN.finish, keep_dual),
    server_notes=(global_dual,),
    server_state=(*FEDDYN.server_state, Vector("smoo.s")),
    broadcast=("smoo.s",),
)
FEDTOGA = replace(
    FEDDYN,
    name="fedtoga",
    objective="FedDyn's + β⟨w, Δ_t⟩, ℓ differentiated at w + ρ s/‖s‖, s = ∇ℓ(w) + κΔ_t + the step before's",
    source="Li et al. 2024 (arXiv 2408.14144); public programs",
    place=f"as FedDyn: {FEDDYN.place}; the tilt inside the clip",
    flatness=True,
    options=(
        *FEDDYN.options,
        Option("toga.rho", 0.1, "length ρ of the ascent (the programs: 0.1)"),
        Option("toga.kappa", 1.0, "weight κ of the last global step in the ascent (the programs: 1)"),
        Option("toga.beta", 0.9, "weight β of the last global step in the loss (a program: 0.9)"),
        Option("toga.neighbour", True, "add the last step's gradient to the ascent"),
        BN,
    ),
    parameter_terms=(*FEDDYN.parameter_terms, global_tilt),
    gradient_at=trajectory_ascent,
    last_gradient=True,
    server_notes=(trajectory,),
    server_state=(*FEDDYN.server_state, Vector("toga.delta")),
    broadcast=("toga.delta",),
    required_settings=(*FEDDYN.required_settings, BY_NOMINAL_STEPS),
)
FEDGLOSS = replace(
    FEDDYN,
    name="fedgloss",
    objective="FedDyn's around θ_t − ρ u/‖u‖, u the last mean displacement, by steps of FedSAM",
    source="Caldarola et al. 2025 (CVPR, arXiv 2412.03752); the authors' program",
    place=f"in the model that is sent; as FedDyn: {FEDDYN.place}; the ascent sees the task loss alone",
    flatness=True,
    options=(
        *FEDDYN.options,
        Option("gloss.rho", 0.01, "radius ρ on the server (the program, CIFAR-100: 0.01)"),
        Option("gloss.local_rho", 0.2, "radius ρ_l of the clients' ascent (the program, CIFAR-100: 0.2)"),
        Option(
            "gloss.warmup",
            0,
            "rounds until both radii are reached (the program: 15,000 of 20,000)",
            rounds=True,
        ),
        Option("gloss.start", 0.001, "both radii before round 1, where they grow"),
        BN,
    ),
    gradient_at=local_ascent,
    server=global_server,
    sends=model_to_send,
    only_keeps="",
    server_state=(*FEDDYN.server_state, Vector("gloss.u"), Vector("gloss.t", "number")),
    broadcast=("gloss.t",),
)
