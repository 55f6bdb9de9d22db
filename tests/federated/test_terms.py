"""Every term, oracle, memory and server rule against its value by hand, in the papers' own numbers."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.federated.methods import (
    METHODS,
    ascent,
    contrastive,
    control,
    curvature,
    depth,
    dynamic,
    foresight,
    lipschitz,
    mixing,
    normalized,
    proximal,
    subnetworks,
)
from fedscope.federated.methods.activation_norm import activation_norm
from fedscope.federated.methods.personal import batchnorm
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Gradient
from fedscope.federated.record.network import Network
from fedscope.federated.record.taps import classifier_input, relu_outputs, tapped
from fedscope.federated.record.views import Batch, Stack
from fedscope.models.catalogue import build
from tests.federated.cases import ending, options, passing, serving, stacked, step, vector


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradient(term: Tensor, w: Tensor) -> list[float]:
    return list(torch.autograd.grad(term, w)[0].tolist())


# MAN

TAPS = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.full((2, 1, 2, 2), 2.0)]


@pytest.mark.parametrize(("half", "value"), [(False, 1.725), (True, 0.8625)])
def test_man_by_hand(half: bool, value: float) -> None:
    # R = 7.5 + 4 = 11.5 (Yashwanth et al. 2024, Eq. 16), ζ = 0.15
    term = activation_norm(passing("man", taps={"man": TAPS}, given={"man_half": half}))
    assert term.item() == pytest.approx(value)


def test_man_can_include_the_logits() -> None:
    logits, given = torch.tensor([[3.0, 1.0]]), {"man_include_logits": True}
    term = activation_norm(passing("man", taps={"man": TAPS}, logits=logits, given=given))
    assert term.item() == pytest.approx(0.15 * (11.5 + 5))


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("code", [(64, 64, 64), (64, 32, 32), (64, 8, 8), (512,), (384,)]),
        ("tiny_main", [(64, 64, 64), (64, 32, 32), (512,), (384,)]),
        ("relu", [(64, 64, 64), (64, 32, 32), (64, 16, 16), (512,), (384,)]),
    ],
)
def test_what_man_reads_of_the_tiny_imagenet_network(kind: str, shapes: list[tuple[int, ...]]) -> None:
    model, given = build("convnet_tiny_gn", 200, 3, seeded()), options("man", man_taps=kind)
    METHODS["man"].checks[0](model, given)
    names = METHODS["man"].taps["man"](model, given)
    with tapped(model, names) as found:
        logits = model(torch.rand(2, 3, 64, 64, generator=seeded()))
    assert [tuple(a.shape[1:]) for a in found.values()] == shapes
    term = activation_norm(
        passing("man", taps={"man": list(found.values())}, logits=logits, given={"man_taps": kind})
    )
    norms = sum(a.square().mean().item() for a in found.values())
    spread = found["relu5"].var(0, unbiased=True).mean().item() if kind == "tiny_main" else 0.0
    assert term.item() == pytest.approx(0.15 * (norms + spread), rel=1e-5)


def test_man_scales_with_the_square_and_ignores_duplication() -> None:
    value, scaled, doubled = (
        activation_norm(passing("man", taps={"man": taps})).item()
        for taps in (TAPS, [3 * a for a in TAPS], [torch.cat([a, a]) for a in TAPS])
    )
    assert scaled == pytest.approx(9 * value)
    assert doubled == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "side", "count"), [("convnet_cifar", 32, 4), ("resnet56_bottleneck", 32, 55)]
)
def test_man_taps_every_relu_and_leaves_no_hook(name: str, side: int, count: int) -> None:
    model = build(name, 10, 3, seeded())
    with tapped(model, relu_outputs(model)) as activations:
        model(torch.ones(1, 3, side, side))
        assert len(activations) == count
        assert all((a >= 0).all() for a in activations.values())
    activations.clear()
    model(torch.ones(1, 3, side, side))
    assert not activations


def test_man_taps_before_pooling() -> None:
    model = build("convnet_cifar", 10, 3, seeded())
    with tapped(model, relu_outputs(model)) as activations:
        model(torch.ones(1, 3, 32, 32))
    shapes = [tuple(a.shape[1:]) for a in activations.values()]
    assert shapes == [(64, 28, 28), (64, 10, 10), (384,), (192,)]


def test_man_of_nothing_is_nothing() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    with tapped(model, relu_outputs(model)) as activations:
        model(torch.zeros(5, 3))
    assert activation_norm(passing("man", taps={"man": list(activations.values())})).item() == 0


# FedProx


def test_the_proximal_gradient_is_mu_times_the_displacement() -> None:
    w, anchor = vector(1.0, 2.0, 3.0), torch.tensor([0.0, 4.0, 3.0])
    term = proximal.proximal(step("fedprox", w, anchor, prox_mu=0.5))
    assert term.item() == pytest.approx(0.25 * 5)
    assert gradient(term, w) == pytest.approx([0.5, -1.0, 0.0])


def test_the_split_proximal_gradient_is_the_same() -> None:
    w, anchor = vector(1.0, 2.0, 3.0), torch.tensor([0.0, 4.0, 3.0])
    at = step("fedprox", w, anchor, prox_mu=0.5, prox_split="weight_decay")
    inside = gradient(proximal.proximal(at), w)
    assert inside == pytest.approx([0.0, -2.0, -1.5])  # what the clip sees: −μθ
    total = torch.tensor(inside) + proximal.decay(stacked(at))
    assert total.tolist() == pytest.approx([0.5, -1.0, 0.0])
    assert not proximal.decay(stacked(step("fedprox", w, anchor, prox_mu=0.5))).any()


def test_the_unsquared_form() -> None:
    w = vector(3.0, 4.0)
    term = proximal.proximal(step("fedprox", w, torch.zeros(2), prox_mu=2.0, prox_form="norm"))
    assert term.item() == pytest.approx(5.0)
    assert gradient(term, w) == pytest.approx([0.6, 0.8])


def test_the_unsquared_form_has_gradient_zero_at_the_anchor() -> None:
    w = vector(1.0, 2.0)
    assert gradient(proximal.proximal(step("fedprox", w, w.detach(), prox_form="norm")), w) == [0.0, 0.0]


def test_skipping_the_first_batch() -> None:
    given: dict[str, Any] = {"prox_skip": "first_batch_of_epoch", "prox_mu": 1.0}
    for first, value in ((True, 0.0), (False, 0.5)):
        at = step("fedprox", vector(1.0), torch.zeros(1), {"first_of_epoch": first}, **given)
        assert proximal.proximal(at).item() == value


# MOON


def contrast_at(near: float, far: float, temperature: float) -> float:
    """Return the contrast of a feature with others at these cosines."""
    z = torch.tensor([[1.0, 0.0]])
    first, second = (torch.tensor([[s, math.sqrt(1 - s**2)]]) for s in (near, far))
    return contrastive.contrast(z, first, second, temperature).item()


def test_moon_by_hand() -> None:
    # ln(1 + e^{−(1−0)/0.5})
    assert contrast_at(1.0, 0.0, 0.5) == pytest.approx(0.126928, abs=1e-6)
    assert contrast_at(0.3, 0.3, 0.5) == pytest.approx(math.log(2))


@pytest.mark.parametrize(("first", "seen", "value"), [("init", 0, 1), ("skip", 0, 0), ("skip", 1, 1)])
@pytest.mark.parametrize("aux_mode", ["eval", "train"])
def test_moon_before_it_moved_is_ln_2_without_gradient(
    first: str, seen: int, value: float, aux_mode: str
) -> None:
    model = FlatModel(build("resnet_digits", 10, 1, seeded(), head=True))
    network = Network(model, bf16=False)
    images = torch.rand(4, 1, 8, 8, generator=seeded())
    before = model.values.clone()
    with tapped(model.module, [classifier_input(model.module)]) as taps:
        logits = model.module(images)
    buffers = model.values[0, model.size :].clone()
    start = before[0]
    at = passing(
        "moon", network, batch=Batch(images, torch.zeros(4, dtype=torch.int64)), logits=logits, start=start,
        taps={"moon": list(taps.values())}, memory={"moon.previous": start.clone()},
        took_part_before=torch.tensor(float(seen)),
        given={"moon_first": first, "moon_aux_mode": aux_mode, "moon_mu": 3.0},
    )  # fmt: skip
    term = contrastive.contrastive(at)
    assert term.item() == pytest.approx(3 * math.log(2) * value)
    term.backward()
    assert model.gradient.abs().max() < 1e-7
    assert torch.equal(model.values[0, model.size :], buffers)  # the constant networks leave no trace
    assert model.module.training


def test_moon_reads_the_head() -> None:
    model = build("resnet_digits", 10, 1, seeded(), head=True)
    assert contrastive.features(model, torch.rand(3, 1, 8, 8)).shape == (3, 32)
    assert classifier_input(model) == "<fc"


# Mixup


def test_mixup_is_cross_entropy_with_the_mixed_target() -> None:
    logits, labels = torch.randn(6, 4, generator=seeded()), torch.tensor([0, 1, 2, 3, 0, 1])
    batch = mixing.mix(Batch(torch.rand(6, 3), labels), {"mixup": (0.3, torch.arange(5, -1, -1))}, {})
    assert batch.mixed_labels is not None
    two = batch.mix_weight * cross_entropy(logits, labels) + (1 - batch.mix_weight) * cross_entropy(
        logits, batch.mixed_labels
    )
    one_hot = nn.functional.one_hot(labels, 4).float()
    assert two.item() == pytest.approx(cross_entropy(logits, 0.3 * one_hot + 0.7 * one_hot.flip(0)).item())


def test_mixup_draws_beta_around_a_half() -> None:
    generator, images, model = seeded(), torch.rand(5, 1, 2, 2), nn.Identity()
    drawn = [mixing.draw(generator, options("mixup", mixup_gamma=0.5), images, model)[0] for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=3 * float(np.std(drawn)) / math.sqrt(2000))
    assert np.var(drawn) == pytest.approx(1 / (4 * (2 * 0.5 + 1)), rel=0.1)  # of Beta(γ, γ)


def test_mixup_with_gamma_zero_is_exact() -> None:
    images = torch.randn(5, 1, 2, 2, generator=seeded())
    drawn = {"mixup": mixing.draw(seeded(), options("mixup", mixup_gamma=0.0), images, nn.Identity())}
    batch = mixing.mix(Batch(images, torch.arange(5)), drawn, {})
    assert batch.mix_weight == 1
    assert torch.equal(batch.images, images)


# StochDepth


@pytest.mark.parametrize(("schedule", "first"), [("code", 1.0), ("paper", 1 - 0.1 / 18)])
def test_how_often_stochdepth_keeps_a_block(schedule: Any, first: float) -> None:
    model = build("resnet56_bottleneck", 10, 3, seeded(), keep=0.9, schedule=schedule)
    generator, given = seeded(), options("stochdepth")
    drawn = torch.tensor([depth.draw(generator, given, torch.zeros(1), model) for _ in range(2000)])
    frequency = drawn.double().mean(0)
    error = 3 * math.sqrt(0.09 / 2000)
    assert frequency[-1].item() == pytest.approx(0.9, abs=error)
    assert frequency[0].item() == pytest.approx(first, abs=0 if first == 1 else error)


# GradAug


def test_gradaugs_divergence_by_hand() -> None:
    # KL((½,¼,¼) ‖ (¼,½,¼)) = ¼ ln 2
    whole, part = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.25, 0.5, 0.25]]).log()
    at = passing(
        "gradaug", batch=Batch(torch.zeros(1, 1, 8, 8), torch.zeros(1, dtype=torch.int64)),
        logits=whole, drawn={"gradaug": [(0.5, 8)]}, given={"gradaug_mu": "2.0"},
        network=lambda *_: part,
    )  # fmt: skip
    assert subnetworks.imitation(at).item() == pytest.approx(2 * 0.173287, abs=1e-6)


@pytest.fixture
def residual() -> tuple[FlatModel, Network, Tensor]:
    model = FlatModel(build("resnet_digits", 10, 1, seeded()))
    return model, Network(model, bf16=False), torch.rand(6, 1, 8, 8, generator=seeded())


def imitated(residual: tuple[FlatModel, Network, Tensor], drawn: list[tuple[float, int]]) -> Tensor:
    """Return the term, after the full network's pass; only its own gradient is left."""
    model, network, images = residual
    logits = model.module(images)
    at = passing(
        "gradaug", network, batch=Batch(images, torch.zeros(6, dtype=torch.int64)), logits=logits,
        drawn={"gradaug": drawn}, given={"slim_divisor": 1},
    )  # fmt: skip
    return subnetworks.imitation(at)


@pytest.mark.parametrize("mode", [True, False])
def test_the_whole_network_imitates_itself(residual: tuple[FlatModel, Network, Tensor], mode: bool) -> None:
    residual[0].module.train(mode)
    term = imitated(residual, [(1.0, 8), (1.0, 8)])
    assert term.item() == pytest.approx(0, abs=1e-6)
    term.backward()
    assert residual[0].gradient.abs().max() < 1e-6


def test_a_subnetwork_reaches_its_own_channels_only(residual: tuple[FlatModel, Network, Tensor]) -> None:
    model, network, images = residual
    buffers = None
    model.module.train()
    model.module(images)
    buffers = model.values[0, model.size :].clone()
    at = passing(
        "gradaug", network, batch=Batch(images, torch.zeros(6, dtype=torch.int64)),
        logits=torch.randn(6, 10, generator=seeded()), drawn={"gradaug": [(0.5, 6)]},
        given={"slim_divisor": 1},
    )  # fmt: skip
    subnetworks.imitation(at).backward()
    assert torch.equal(model.values[0, model.size :], buffers)  # running statistics are left alone
    last = model.module.get_submodule("layer3.0.branch.3").weight.grad
    assert isinstance(last, Tensor)
    assert last[:16, :16].abs().sum() > 0
    assert not last[16:].any()
    assert not last[:, 16:].any()


@pytest.mark.parametrize("kind", ["min_plus_uniform", "uniform"])
def test_gradaugs_widths_and_sides(kind: str) -> None:
    given = options("gradaug", gradaug_n=3, gradaug_width=0.8, gradaug_widths=kind)
    images, generator = torch.zeros(2, 3, 32, 32), seeded()
    drawn = [subnetworks.draw(generator, given, images, nn.Identity()) for _ in range(300)]
    widths = np.array([[width for width, _ in subs] for subs in drawn])
    assert (np.diff(widths, axis=1) <= 0).all()
    assert ((widths >= 0.8) & (widths <= 1)).all()
    assert (widths[:, 2] == 0.8).all() == (kind == "min_plus_uniform")
    assert widths[:, 0].std() > 0.02
    assert {side for subs in drawn for _, side in subs} == {32, 28, 24, 20}
    alone = options("gradaug", gradaug_n=1, gradaug_widths=kind)
    one = {subnetworks.draw(generator, alone, images, nn.Identity())[0][0] for _ in range(20)}
    assert (one == {0.8}) == (kind == "min_plus_uniform")


def test_gradaugs_published_strengths() -> None:
    published = [subnetworks.strength(options("gradaug", gradaug_n=n)) for n in (1, 2, 3, 4)]
    assert published == [2.0, 1.75, 1.5, 1.25]
    assert subnetworks.strength(options("gradaug", gradaug_n=1, gradaug_mu="0.5")) == 0.5


def test_gradaugs_lists_of_sides() -> None:
    assert subnetworks.sides(options("gradaug"), 224) == [224, 192, 160, 128]
    assert subnetworks.sides(options("gradaug", gradaug_resolutions="32,28,24"), 32) == [32, 28, 24]


# FedAlign


def test_the_transmission_matrix_by_hand() -> None:
    # constant maps (3, 4) and (0, 2) on 2×2 positions: rank one, ‖(3,4)‖·‖(0,2)‖ = 10, times 4 summed
    before = torch.tensor([3.0, 4.0])[None, :, None, None].expand(1, 2, 2, 2)
    after = torch.tensor([0.0, 2.0])[None, :, None, None].expand(1, 2, 2, 2)
    for mean, value in ((True, 10.0), (False, 40.0)):
        x = lipschitz.transmission(before, after, mean=mean)
        assert lipschitz.spectral_norm(x, torch.ones(2), 10).item() == pytest.approx(value)


def maps(rows: list[list[float]]) -> Tensor:
    """Return feature maps (1, C, 1, positions)."""
    return torch.tensor(rows)[None, :, None, :]


def test_the_spectral_norm_by_hand() -> None:
    eye, ones = maps([[1.0, 0.0], [0.0, 1.0]]), torch.ones(2)
    diagonal, shear = maps([[2.0, 0.0], [0.0, 1.0]]), maps([[1.0, 1.0], [0.0, 1.0]])
    for mean, value in ((True, 1.0), (False, 2.0)):
        x = lipschitz.transmission(eye, diagonal, mean=mean)
        assert lipschitz.spectral_norm(x, ones, 10).item() == pytest.approx(value, rel=1e-6)
    x = lipschitz.transmission(eye, shear, mean=True)
    assert x.tolist() == [[[0.5, 0.0], [0.5, 0.5]]]
    assert lipschitz.spectral_norm(x, ones, 10).item() == pytest.approx((1 + math.sqrt(5)) / 4, abs=1e-6)
    assert (1 + math.sqrt(5)) / 4 == pytest.approx(0.809017, abs=1e-6)


def test_one_step_of_the_power_iteration() -> None:
    x = torch.tensor([[[0.5, 0.0], [0.5, 0.5]]])
    # one step from (1, 1) unnormalised: sqrt(‖G(1,1)‖) = sqrt(‖(0.5, 0.75)‖)
    assert lipschitz.spectral_norm(x, torch.ones(2), 1).item() == pytest.approx(0.9494, abs=1e-4)


def test_the_spectral_norm_is_pytorchs_and_so_is_its_gradient() -> None:
    x = torch.randn(3, 5, 7, generator=seeded(), dtype=torch.float64, requires_grad=True)
    ours = lipschitz.spectral_norm(x, torch.ones(5, dtype=torch.float64), 200)
    theirs = torch.linalg.matrix_norm(x, 2)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)
    gradients = [torch.autograd.grad(v.sum(), x)[0] for v in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-8)


def test_nothing_has_norm_nothing() -> None:
    x = torch.zeros(2, 3, 4, requires_grad=True)
    norm = lipschitz.spectral_norm(x, torch.ones(3), 10)
    assert norm.abs().max() <= 1e-6
    assert torch.isfinite(torch.autograd.grad(norm.sum(), x)[0]).all()


def aligned(scale: float = 1.0, **given: Any) -> tuple[Tensor, FlatModel]:
    """Return the term on the last group of a small network, with features scaled, and the network."""
    model = FlatModel(build("resnet_digits", 10, 1, seeded()))
    images = torch.rand(6, 1, 8, 8, generator=seeded())
    names = METHODS["fedalign"].taps["fedalign"](model.module, {})
    with tapped(model.module, names) as taps:
        logits = model.module(images)
    at = passing(
        "fedalign", Network(model, bf16=False), logits=logits,
        loss=cross_entropy(logits, torch.arange(6)),
        taps={"fedalign": [scale * taps[name] for name in names]},
        given={"slim_divisor": 1, "fedalign_width": 0.5, **given},
    )  # fmt: skip
    return lipschitz.alignment(at), model


def test_fedalign_by_default_is_worth_mu_times_the_loss() -> None:
    term, model = aligned()
    logits = model.module(torch.rand(6, 1, 8, 8, generator=seeded()))
    assert term.item() == pytest.approx(0.45 * cross_entropy(logits, torch.arange(6)).item())


def test_fedaligns_distance_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # K_F = 10, K_S = 6 for every sample: L_Lip = 16
    norms = iter([torch.full((6,), 10.0), torch.full((6,), 6.0)])
    monkeypatch.setattr(lipschitz, "spectral_norm", lambda *_: next(norms))
    term, _ = aligned(fedalign_weighting="const", fedalign_mu=1.0)
    assert term.item() == 16


def test_fedaligns_weight_cancels_the_scale_of_the_matrix() -> None:
    gradients = []
    for scale in ("mean", "sum"):
        term, model = aligned(fedalign_tm_scale=scale)
        term.backward()
        gradients.append(model.gradient.clone())
    assert gradients[0].any()
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("detach", ["both", "teacher", "none"])
def test_what_fedalign_trains(detach: str) -> None:
    term, model = aligned(fedalign_detach=detach)
    term.backward()
    reached = {
        name: bool(p.grad.any()) for name, p in model.module.named_parameters() if isinstance(p.grad, Tensor)
    }
    groups = {name.split(".")[0] for name, hit in reached.items() if hit}
    assert groups == ({"layer3"} if detach == "both" else {"stem", "layer1", "layer2", "layer3"})
    trailing = model.module.get_submodule("layer3.0.branch.0").weight.grad
    assert isinstance(trailing, Tensor)
    assert trailing[16:].any() == (detach == "none")  # of the full group, where it is no teacher


def test_fedaligns_power_iteration_may_be_a_constant() -> None:
    term, _ = aligned(fedalign_power_grad=False)
    assert not term.requires_grad
    other, _ = aligned(fedalign_power_init="random", fedalign_weighting="const", fedalign_power_iters=50)
    same, _ = aligned(fedalign_weighting="const", fedalign_power_iters=50)
    assert other.item() == pytest.approx(same.item(), rel=1e-3)


def test_fedalign_without_a_distance_is_silent() -> None:
    zero = torch.zeros((), requires_grad=True)
    term = lipschitz.weighted(zero, torch.tensor(3.0), "ce_ratio")
    assert term.item() == 0
    assert torch.autograd.grad(term, zero)[0].item() == 0


# FedSAM, FedASAM, FedSpeed


def quadratic(curvature_: Tensor) -> tuple[list[Tensor], Gradient]:
    """Return the points at which ½ Σ a w² was differentiated, and its gradient function."""
    points: list[Tensor] = []

    def gradient_at(w: Tensor, keep_buffers: bool = False) -> Tensor:
        points.append(w.clone())
        return curvature_ * w

    return points, gradient_at


def at_rows(method: str, w: Tensor, *, last_gradient: Tensor | None = None, **given: Any) -> Stack:
    return stacked(step(method, w, torch.zeros_like(w), given.pop("parts", None), **given), last_gradient)


def test_sam_on_a_quadratic() -> None:
    points, function = quadratic(torch.tensor([2.0]))
    w = torch.tensor([[3.0], [-1.0]])
    g = ascent.sharpness_aware(function, at_rows("fedsam", w, sam_rho=0.5))
    assert g.tolist() == [[7.0], [-3.0]]  # a(w + ρ sign w)
    assert torch.equal(points[0], w)


def test_sams_step_has_length_rho_and_rho_zero_is_exact() -> None:
    points, function = quadratic(torch.tensor([1.0, 5.0, 0.2]))
    w = torch.randn(4, 3, generator=seeded())
    ascent.sharpness_aware(function, at_rows("fedsam", w))
    assert (points[1] - w).norm(dim=1).tolist() == pytest.approx([0.05] * 4, rel=1e-4)
    g = ascent.sharpness_aware(function, at_rows("fedsam", w, sam_rho=0.0))
    assert torch.equal(g, torch.tensor([1.0, 5.0, 0.2]) * w)


def test_asam_measures_in_its_metric() -> None:
    points, function = quadratic(torch.tensor([1.0, 5.0, 0.2]))
    w, scaled = torch.randn(4, 3, generator=seeded()), torch.tensor([1.0, 1.0, 0.0])
    ascent.adaptive(function, at_rows("fedasam", w, parts={"masks": {"asam.scaled": scaled}}))
    t = torch.where(scaled > 0, w.abs() + 0.2, 1.0)
    assert ((points[1] - w) / t).norm(dim=1).tolist() == pytest.approx([0.5] * 4, rel=1e-4)


def test_asam_with_equal_weights_is_sam_at_a_scaled_radius() -> None:
    points, function = quadratic(torch.tensor([1.0, 5.0, 0.2]))
    w = torch.tensor([[0.3, -0.3, 0.3]])
    ascent.adaptive(function, at_rows("fedasam", w, parts={"masks": {"asam.scaled": torch.ones(3)}}))
    g = torch.tensor([1.0, 5.0, 0.2]) * w
    torch.testing.assert_close(points[1] - w, 0.5 * (0.3 + 0.2) * g / g.norm())


def test_asam_follows_a_rescaling_of_the_layers() -> None:
    # f(w1, w2) = (w1 w2 − 1)²: invariant under w1·s, w2/s; without offset e scales alike
    steps = []
    for s in (1.0, 4.0):
        points: list[Tensor] = []

        def function(w: Tensor, keep_buffers: bool = False, points: list[Tensor] = points) -> Tensor:
            points.append(w.clone())
            return 2 * (w.prod(1, keepdim=True) - 1) * w.flip(1)

        w = torch.tensor([[0.7 * s, -1.2 / s]])
        parts = {"masks": {"asam.scaled": torch.ones(2)}}
        ascent.adaptive(function, at_rows("fedasam", w, parts=parts, asam_offset=0.0))
        steps.append((points[1] - w) / torch.tensor([[s, 1 / s]]))
    torch.testing.assert_close(*steps)


@pytest.mark.parametrize(("kind", "count"), [("name_weight", 9 * 5 + 5 * 3 + 5), ("all", 78), ("ndim>1", 60)])
def test_which_tensors_asam_scales(kind: str, count: int) -> None:
    model = nn.Sequential(nn.Linear(9, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    names = ascent.scaled(model, options("fedasam", asam_scaled=kind))
    assert int(FlatModel(model).mask(names).sum()) == count  # BatchNorm's scale is named weight


def test_fedspeeds_ascent_sees_the_stale_gradient_only_when_asked() -> None:
    w, stale = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]])
    for asked, expected in ((False, [1.0, 0.0]), (True, [0.6, 0.8])):
        points, function = quadratic(torch.tensor([1.0, 1.0]))
        at = at_rows("fedspeed", w, last_gradient=stale, speed_rho=1.0, speed_stale_ascent=asked)
        dynamic.extrapolated(function, at)
        assert (points[1] - w)[0].tolist() == pytest.approx(expected)


# FedDyn


def test_feddyn_by_hand() -> None:
    # α = 0.5 on a client twice the mean size: α_k = 0.25. α_k(w − θ + h) is split between loss and decay.
    w, anchor = vector(1.0, 2.0), torch.tensor([0.5, 0.0])
    parts = {"memory": {"dyn.h": torch.tensor([0.25, -1.0])}, "relative_size": torch.tensor(2.0)}
    for quadratic_part in ("loss", "weight_decay"):
        at = step("feddyn", w, anchor, parts, dyn_alpha=0.5, dyn_quadratic=quadratic_part)
        total = torch.tensor(gradient(dynamic.dynamic(at), w)) + dynamic.decay(stacked(at))
        assert total.tolist() == pytest.approx([0.25 * 0.75, 0.25 * 1.0])
        assert (dynamic.decay(stacked(at)) == 0).all() == (quadratic_part == "loss")


def test_feddyn_remembers_and_serves() -> None:
    one = torch.tensor([[1.0]])
    kept = dynamic.remember(ending("feddyn", 3 * one, one, memory={"dyn.h": 0.5 * one}))
    assert kept["dyn.h"].item() == 2.5
    # θ_1 = w̄ + (m/N)(w̄ − θ_0); with everyone 2w̄ − θ_0 (Acar et al. 2021)
    for m, expected in ((4, 5.0), (1, 3.5)):
        state = {"dyn.h": torch.zeros(1)}
        at = serving("feddyn", torch.tensor([3.0]), torch.tensor([1.0]), state, participants=m, clients=4)
        assert dynamic.server(at)[0].item() == expected


def test_fedspeed_may_add_the_participants_drift() -> None:
    sums = {"dyn.h": torch.tensor([6.0])}
    parts = {"participants": 2, "clients": 4, "sums": sums}
    for kind, expected in (("all", 4.0), ("active", 6.0)):
        at = serving(
            "fedspeed", torch.tensor([3.0]), torch.tensor([1.0]), {"dyn.h": torch.zeros(1)},
            given={"speed_server": kind}, **parts,
        )  # fmt: skip
        assert dynamic.speed_server(at)[0].item() == expected


# SCAFFOLD, FedDC


def test_the_control_enters_in_the_loss_or_after_the_step() -> None:
    w, c, c_k = vector(1.0, 2.0), torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.5])
    parts = {"received": {"scaffold.c": c}, "memory": {"scaffold.c_k": c_k}}
    for place, inside in (("loss", 1.0), ("after_step", 0.0)):
        at = step("scaffold", w, torch.zeros(2), parts, scaffold_apply=place)
        assert gradient(control.control(at), w) == [2 * inside, -0.5 * inside]
        assert control.control_after(stacked(at)).tolist() == [2 * (1 - inside), -0.5 * (1 - inside)]


@pytest.mark.parametrize(
    ("lr", "steps", "value"),
    [("current", "actual", 3.0), ("initial", "actual", 1.5), ("current", "nominal", 1.0)],
)
def test_the_gradient_memory_by_hand(lr: str, steps: str, value: float) -> None:
    one = torch.tensor([[1.0]])
    end = ending(
        "scaffold", -2 * one, one, steps=10, nominal_steps=30, lr=0.1, initial_lr=0.2,
        received={"scaffold.c": torch.tensor([0.25])}, memory={"scaffold.c_k": 4 * one},
        given={"cv_lr": lr, "cv_steps": steps},
    )  # fmt: skip
    assert control.mean_gradient(end).item() == pytest.approx(value)  # (θ − w)/(τη)
    done = control.scaffold_finish(end)
    assert done["scaffold.c_k"].item() == pytest.approx(4 - 0.25 + value)
    assert done["scaffold.change"].item() == pytest.approx(value - 0.25)


def test_scaffold_serves() -> None:
    at = serving(
        "scaffold", torch.tensor([3.0]), torch.tensor([1.0]), {"scaffold.c": torch.tensor([1.0])},
        participants=2, clients=4, sums={"scaffold.change": torch.tensor([2.0])},
        given={"scaffold_gamma": 0.5},
    )  # fmt: skip
    model, state = control.scaffold_server(at)
    assert (model.item(), state["scaffold.c"].item()) == (2.0, 1.5)


def test_feddc_by_hand() -> None:
    w, anchor = vector(1.0, 2.0), torch.tensor([0.5, 0.0])
    parts = {
        "memory": {"dc.h": torch.tensor([0.25, -1.0]), "dc.g_k": torch.tensor([0.1, 0.2])},
        "received": {"dc.g": torch.tensor([1.0, 3.0])},
        "relative_size": torch.tensor(2.0),
    }
    term = control.drift(step("feddc", w, anchor, parts, dc_alpha=0.5))
    assert gradient(term, w) == pytest.approx([0.25 * 0.75 + 0.5 - 0.1, 0.25 * 1.0 + 1.5 - 0.2])


# FedCurv


def test_fedcurv_is_the_double_sum() -> None:
    generator = seeded()
    fishers, solutions = torch.rand(3, 4, generator=generator), torch.randn(3, 4, generator=generator)
    received = {"curv.u": fishers.sum(0), "curv.v": (fishers * solutions).sum(0)}
    memory = {"curv.F": fishers[0], "curv.Fw": fishers[0] * solutions[0]}
    w = torch.randn(4, generator=generator, requires_grad=True)
    for previous, others in ((1.0, [1, 2]), (0.0, [0, 1, 2])):
        parts = {"received": received, "memory": memory, "took_part_last_round": torch.tensor(previous)}
        term = curvature.consolidation(step("fedcurv", w, w.detach(), parts, fedcurv_lambda=0.5))
        explicit = 0.5 * sum((fishers[j] * (w - solutions[j]) ** 2).sum() for j in others)
        constant = 0.5 * sum((fishers[j] * solutions[j] ** 2).sum() for j in others)
        assert (term + constant).item() == pytest.approx(torch.as_tensor(explicit).item(), rel=1e-5)
        assert gradient(term, w) == pytest.approx(gradient(torch.as_tensor(explicit), w), rel=1e-4, abs=1e-6)


def test_fedcurv_with_unit_fisher_is_a_distance() -> None:
    w, w_j = vector(1.0, -2.0), torch.tensor([0.5, 1.0])
    parts = {
        "received": {"curv.u": torch.ones(2), "curv.v": w_j},
        "memory": {"curv.F": torch.zeros(2), "curv.Fw": torch.zeros(2)},
    }
    at = step("fedcurv", w, w.detach(), parts)
    value = curvature.consolidation(at) + w_j.square().sum()
    assert value.item() == pytest.approx((w - w_j).square().sum().item())
    half = curvature.consolidation(step("fedcurv", w, w.detach(), parts, fedcurv_half=True))
    assert half.item() == pytest.approx(curvature.consolidation(at).item() / 2)


# FedBN


def test_which_tensors_stay_with_a_client() -> None:
    model = build("resnet_digits", 10, 1, seeded())
    flat = FlatModel(model)
    own = flat.mask(batchnorm(model, options("fedbn")))
    assert int(own[: flat.size].sum()) == sum(
        p.numel() for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()
    )
    assert own[flat.size :].all()  # running means and variances
    by_name = batchnorm(model, options("fedbn", fedbn_match="name"))  # the published rule in numbered layers
    assert set(batchnorm(model, options("fedbn"))) - set(by_name) == {
        f"layer{group}.0.shortcut.1.{name}"
        for group in (2, 3)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    named = nn.Sequential()
    named.bn1 = nn.BatchNorm1d(3)
    assert len(batchnorm(named, options("fedbn", fedbn_match="name"))) == 5


# FedFOR


def foreseen(**given: Any) -> tuple[Tensor, Tensor]:
    w = vector(0.8, -1.3, 0.7, 2.0)
    parts = {"received": {"fedfor.previous": torch.zeros(4)}, "lr": torch.tensor(0.1)}
    anchor = torch.tensor([1.0, -1.0, 0.5, 0.0])
    return foresight.foresight(step("fedfor", w, anchor, parts, fedfor_alpha=1.0, **given)), w


def test_fedfor_by_hand() -> None:
    term, w = foreseen()
    assert term.item() == pytest.approx(2.0)
    assert gradient(term, w) == pytest.approx([-10.0, 0.0, 0.0, 0.0])
    assert foreseen(fedfor_grad_scale="none")[0].item() == pytest.approx(0.2)
    assert foreseen(fedfor_reduce="mean")[0].item() == pytest.approx(0.5)
    every, w = foreseen(fedfor_positive_only=False)
    assert gradient(every, w) == pytest.approx([-10.0, 10.0, -5.0, 0.0])


def test_fedfor_is_silent_where_the_model_did_not_move_and_never_negative() -> None:
    generator = seeded()
    for moved in (0.0, 1.0):
        for _ in range(20):
            w, anchor = torch.randn(2, 6, generator=generator)
            previous = anchor + moved * torch.randn(6, generator=generator)
            w.requires_grad_()
            term = foresight.foresight(step("fedfor", w, anchor, {"received": {"fedfor.previous": previous}}))
            assert term.item() >= 0
            assert (term.item() > 0) <= bool(moved)
            pull = -torch.tensor(gradient(term, w))
            assert (pull * (anchor - w.detach()) >= 0).all()  # the step moves toward θ_t


def test_fedfor_is_silent_at_the_anchor() -> None:
    anchor = torch.tensor([1.0, -1.0])
    w = anchor.clone().requires_grad_()
    parts = {"received": {"fedfor.previous": torch.zeros(2)}}
    assert gradient(foresight.foresight(step("fedfor", w, anchor, parts)), w) == [0.0, 0.0]


# Server optimizers, FedNova


def served(method: str, deltas: list[float], s0: str = "eps_squared", **given: float) -> list[float]:
    """Return θ after each round of constant or varying Δ, from 0."""
    record, theta, path = METHODS[method], torch.zeros(1, dtype=torch.float64), []
    assert record.server
    state = {v.name: torch.zeros(1, dtype=torch.float64) for v in record.server_state}
    prefix = method.removeprefix("fed")
    names: dict[str, Any] = {f"{prefix}_{k}": v for k, v in given.items()}
    if prefix != "avgm":
        names[f"{prefix}_s0"] = s0
    for round, delta in enumerate(deltas, 1):
        theta, state = record.server(serving(method, theta + delta, theta, state, given=names, round=round))
        path.append(theta.item())
    return path


def test_fedavgm_without_momentum_is_fedavg_and_with_it_speeds_up() -> None:
    assert served("fedavgm", [1.0, -0.5], beta=0.0) == pytest.approx([1.0, 0.5])
    path = served("fedavgm", [1.0] * 200)
    assert path[-1] - path[-2] == pytest.approx(1 / (1 - 0.9), rel=1e-6)
    assert served("fedavgm", [1.0], dampened=True) == pytest.approx([0.1])


def test_the_adaptive_rules_by_hand() -> None:
    eps = 1e-3
    roots = [math.sqrt(eps**2 + 0.09), math.sqrt(eps**2 + 0.25)]
    moves = [0.3 / (roots[0] + eps), 0.4 / (roots[1] + eps)]
    assert served("fedadagrad", [0.3, 0.4], gamma=1.0) == pytest.approx([moves[0], sum(moves)])
    s = 0.99 * eps**2 + 0.01 * 0.09
    assert served("fedadam", [0.3], gamma=1.0) == pytest.approx([0.1 * 0.3 / (math.sqrt(s) + eps)])
    assert served("fedadam", [0.3], gamma=1.0, bias_correction=True, s0="zero") == pytest.approx(
        [0.3 / (0.3 + eps)]
    )
    s = eps**2 + 0.01 * 0.09
    assert served("fedyogi", [0.3], gamma=1.0) == pytest.approx([0.1 * 0.3 / (math.sqrt(s) + eps)])


def test_yogi_and_adam_begin_alike_from_zero() -> None:
    assert served("fedyogi", [0.3], s0="zero") == pytest.approx(served("fedadam", [0.3], s0="zero"))
    assert served("fedyogi", [0.3, 0.1], s0="zero")[1] != pytest.approx(
        served("fedadam", [0.3, 0.1], s0="zero")[1]
    )


def test_adagrads_steps_do_not_grow() -> None:
    path = [0.0, *served("fedadagrad", [0.3, -0.3] * 10)]
    lengths = [abs(b - a) for a, b in pairwise(path)]
    assert all(b <= a for a, b in pairwise(lengths))


@pytest.mark.parametrize(
    ("steps", "momentum", "value"), [(3, 0.9, 5.61), (10, 0.5, 18.00195), (7, 0.0, 7.0), (1, 0.9, 1.0)]
)
def test_fednovas_reach_by_hand(steps: int, momentum: float, value: float) -> None:
    assert normalized.reach(steps, momentum) == pytest.approx(value, abs=5e-6)
    if momentum:
        closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
        assert normalized.reach(steps, momentum) == pytest.approx(closed)


@pytest.mark.parametrize("nesterov", [False, True])
def test_fednovas_reach_is_what_pytorchs_sgd_moves(nesterov: bool) -> None:
    w = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0, momentum=0.8, nesterov=nesterov)
    for _ in range(6):
        w.grad = torch.ones(())
        optimizer.step()
    assert normalized.reach(6, 0.8, nesterov) == pytest.approx(-w.item(), rel=1e-6)


def test_fednovas_reach_with_a_proximal_term() -> None:
    assert normalized.reach(5, shrink=0.1) == pytest.approx((1 - 0.9**5) / 0.1)


def test_fednova_by_hand() -> None:
    # τ = (1, 3), p = ½, gradients (1, 2): Δ = (−η, −6η), a step of −3η where FedAvg moves −3.5η
    eta = 0.1
    sums = {"nova.d": torch.zeros(1), "nova.a": torch.zeros(1)}
    for tau, moved in ((1, -eta), (3, -6 * eta)):
        end = ending("fednova", torch.tensor([[moved]]), torch.zeros(1, 1), steps=tau, weight=5.0)
        for name, value in normalized.finish(end).items():
            sums[name] = sums[name] + value[0]
    at = serving("fednova", torch.tensor([-3.5 * eta]), torch.zeros(1), {}, sums=sums, weight=10.0)
    assert normalized.server(at)[0].item() == pytest.approx(-3 * eta)
