"""Every federated method a second time, slowly: the oracle that the trainer's rounds are compared with.

Written from the methods' specification alone: float64, one client after another, dictionaries of tensors by
parameter name, every term's gradient in closed form. Automatic differentiation is used for the task loss
only: cross-entropy, MAN's activation norm and MOON's contrast. Section numbers are the specification's.

θ   the parameters the server sent (``anchor``); under FedBN with the client's own BatchNorm
w   the client's parameters; ``w_k`` where its local training ends
η   the local learning rate of the round
τ   the number of local steps taken
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from tests.federated.equations import (
    Vector,
    asam_ascent,
    copied,
    curv_gradient,
    for_gradient,
    minus,
    moon_term,
    norm,
    nova_steps,
    plus,
    prox_gradient,
    sam_ascent,
    times,
    weighted_sum,
    zeros,
)

Value = bool | float | str
Orders = Callable[[int, int], Sequence[Tensor]]  # (round from 0, client) → a permutation per epoch

DEFAULTS: dict[str, Value] = {
    "prox.mu": 1e-4, "prox.form": "squared", "prox.skip": "never", "prox.split": "loss",
    "moon.mu": 1.0, "moon.tau": 0.5, "moon.aux_mode": "eval", "moon.first": "init",
    "man.zeta": 0.15, "man.half": False, "man.include_logits": False,
    "sam.rho": 0.05, "sam.bn": "both",
    "asam.rho": 0.5, "asam.offset": 0.2, "asam.scaled": "name_weight",
    "dyn.alpha": 0.01, "dyn.quadratic": "weight_decay",
    "dc.alpha": 0.01, "cv.lr": "current", "cv.steps": "actual",
    "speed.rho": 0.01, "speed.server": "all", "speed.stale_ascent": False,
    "scaffold.gamma": 1.0, "scaffold.apply": "loss", "scaffold.option": "II",
    "fedcurv.lambda": 1.0, "fisher.batch": False, "fedcurv.exclude_self": True, "fedcurv.half": False,
    "fedbn.match": "type", "fedbn.reg_scope": "shared",
    "fedfor.alpha": 0.1, "fedfor.grad_scale": "lr", "fedfor.positive_only": True, "fedfor.reduce": "sum",
    "avgm.beta": 0.9, "avgm.gamma": 1.0, "avgm.dampened": False,
    "adagrad.beta1": 0.0, "adagrad.gamma": 0.01, "adagrad.eps": 1e-3, "adagrad.s0": "eps_squared",
    "adam.beta1": 0.9, "adam.beta2": 0.99, "adam.gamma": 0.01, "adam.eps": 1e-3, "adam.s0": "eps_squared",
    "adam.bias_correction": False,
    "yogi.beta1": 0.9, "yogi.beta2": 0.99, "yogi.gamma": 0.01, "yogi.eps": 1e-3, "yogi.s0": "eps_squared",
    "nova.gamma": 1.0,
}  # fmt: skip
METHODS = (
    "fedavg", "fedprox", "fedsam", "fedasam", "feddyn", "feddc", "fedspeed", "scaffold", "moon", "man",
    "fedcurv", "fedbn", "fedfor", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "fednova",
)  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """A small federation: everything that decides a run, but the method."""

    module: nn.Module  # the initial weights are in it; it is copied, not changed
    clients: list[tuple[Tensor, Tensor]]  # inputs (n_k, ...), normalised, and labels (n_k,)
    orders: Orders
    participants: list[list[int]]  # per round
    epochs: int = 1
    batch_size: int = 32
    lr: float = 0.05
    lr_decay: float = 1.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy  # of (logits, labels), mean over the batch
    kept: torch.dtype = torch.float64  # in which clients keep networks between rounds (MOON, FedBN)


@dataclass(frozen=True)
class Round:
    """What there is to see after a round."""

    state: Vector  # the global parameters and floating buffers
    uploads: dict[int, Vector]  # per participant, the same of its network
    clients: dict[str, list[Vector]]  # per memory of the clients, one vector for each of the N
    server: dict[str, Vector]  # the server's vectors by name


def run(method: str, toy: Toy, options: dict[str, Value] | None = None) -> list[Vector]:
    """Return the global parameters and floating buffers after every round."""
    return [done.state for done in replay(method, toy, options)]


def replay(method: str, toy: Toy, options: dict[str, Value] | None = None) -> list[Round]:
    """Return all there is to see after every round."""
    with torch.random.fork_rng(devices=()):
        federation = _Federation(method, toy, options or {})
        return [federation.round(t) for t in range(len(toy.participants))]


class _Federation:
    """The state of a run: what the server and every client remember between rounds."""

    def __init__(self, method: str, toy: Toy, options: dict[str, Value]):
        self.parts = set(method.split("+"))
        if unknown := [*(self.parts - set(METHODS)), *(options.keys() - DEFAULTS.keys())]:
            raise ValueError(f"the reference does not know {unknown}")
        self.options = DEFAULTS | options
        self.toy = toy
        self.module = copy.deepcopy(toy.module).double()
        self.data = [(x.double(), y) for x, y in toy.clients]
        self.sizes = [len(x) for x, _ in self.data]
        self.count = len(self.data)  # N
        self.shares = [size * self.count / sum(self.sizes) for size in self.sizes]  # n_k·N/n

        self.theta: Vector = {name: p.detach().clone() for name, p in self.module.named_parameters()}
        self.buffers: Vector = {
            name: b.clone() for name, b in self.module.named_buffers() if b.is_floating_point()
        }
        self.initial = copied(self.theta), copied(self.buffers)
        self.personal = self._personal_names() if "fedbn" in self.parts else set()
        self.shared = [name for name in self.theta if name not in self.personal]
        self.scope = list(self.theta) if self.options["fedbn.reg_scope"] == "all" else self.shared

        everyone = range(self.count)
        self.own: list[Vector] = [{} for _ in everyone]  # FedBN: each client's personal tensors
        self.h = [zeros(self.theta) for _ in everyone]  # FedDyn, FedDC, FedSpeed: the drift
        self.g_k = [zeros(self.theta) for _ in everyone]  # FedDC
        self.g = zeros(self.theta)
        self.c_k = [zeros(self.theta) for _ in everyone]  # SCAFFOLD
        self.c = zeros(self.theta)
        self.previous: list[tuple[Vector, Vector] | None] = [None for _ in everyone]  # MOON
        self.curvature: dict[int, tuple[Vector, Vector]] = {}  # FedCurv: (F_j, w_j) of the last round's j
        self.theta_before: Vector | None = None  # FedFOR: θ_{t−1}
        self.m = zeros(self.theta)  # server optimizers: momentum, second moment
        self.s = {name: torch.full_like(self.theta[name], self._initial_s()) for name in self.theta}

    def _personal_names(self) -> set[str]:
        """2.16: affine and running statistics of BatchNorm."""
        names = {*self.theta, *self.buffers}
        layers = [path for path, layer in self.module.named_modules() if isinstance(layer, _BatchNorm)]
        if self.options["fedbn.match"] == "name":
            called = [path for path in layers if "bn" in path]
            layers = called or [path for path in layers if "shortcut" not in path]
        return {name for name in names if name.rpartition(".")[0] in layers}

    def _initial_s(self) -> float:
        for name, family in (("fedadagrad", "adagrad"), ("fedadam", "adam"), ("fedyogi", "yogi")):
            if name in self.parts and self.options[f"{family}.s0"] == "eps_squared":
                return self._number(f"{family}.eps") ** 2
        return 0.0

    def _number(self, name: str) -> float:
        return float(self.options[name])

    # One client

    def received(self, k: int) -> tuple[Vector, Vector]:
        """Return θ and the buffers client k starts from; under FedBN its own BatchNorm, once it has one."""
        theta, buffers = copied(self.theta), copied(self.buffers)
        for name in self.own[k]:
            (theta if name in theta else buffers)[name] = self.own[k][name].clone()
        return theta, buffers

    def train(self, k: int, t: int) -> tuple[Vector, Vector, int]:
        """Train client k in round t; return its parameters, buffers and number of steps."""
        toy, (inputs, labels), eta = self.toy, self.data[k], self.rate(t)
        anchor, anchor_buffers = self.received(k)
        w, buffers = copied(anchor), copied(anchor_buffers)
        velocity = leftover = zeros(w)
        steps = 0
        for batches in self.epochs(t, k):
            for number, batch in enumerate(batches):
                x, y = inputs[batch], labels[batch]

                def task(point: Vector, statistics: Vector, x: Tensor = x, y: Tensor = y) -> Vector:
                    return self.task_gradient(point, statistics, x, y, k, anchor, anchor_buffers)

                gradient = task(w, buffers)
                if self.parts & {"fedsam", "fedasam", "fedspeed"}:
                    second = buffers
                    if self.options["sam.bn"] == "first" and "fedspeed" not in self.parts:
                        second = copied(buffers)
                    gradient = task(plus(w, self.ascent(w, gradient, leftover)), second)
                gradient = plus(gradient, self.inside_the_clip(k, t, w, anchor, first=number == 0))
                if toy.clip is not None:
                    gradient = times(gradient, min(1.0, toy.clip / (norm(gradient) + 1e-6)))
                leftover = gradient
                gradient = plus(gradient, self.outside_the_clip(k, w, first=number == 0))
                gradient = plus(gradient, w, toy.weight_decay)
                velocity = plus(gradient, velocity, toy.momentum)
                direction = plus(gradient, velocity, toy.momentum) if toy.nesterov else velocity
                w = plus(w, direction, -eta)
                if "scaffold" in self.parts and self.options["scaffold.apply"] == "after_step":
                    w = plus(w, self._scoped(self.control(k)), -eta)
                steps += 1
        return w, buffers, steps

    def epochs(self, t: int, k: int) -> Iterator[Sequence[Tensor]]:
        """Yield the batches of each epoch: of E; in FedDyn's SCAFFOLD until there were E·⌈(n/N)/B⌉."""
        toy = self.toy
        orders = [permutation.split(toy.batch_size) for permutation in toy.orders(t, k)]
        if "scaffold" not in self.parts or self.options["cv.steps"] == "actual":
            yield from orders[: toy.epochs]
            return
        left = toy.epochs * math.ceil(sum(self.sizes) / self.count / toy.batch_size)
        for batches in orders:
            yield batches[:left]
            left -= len(batches[:left])
        assert not left

    def control(self, k: int) -> Vector:
        """2.14: return c − c_k; in FedDyn's code c/s_k − c_k."""
        nominal = self.options["cv.steps"] == "nominal"
        return minus(times(self.c, 1 / self.shares[k]) if nominal else self.c, self.c_k[k])

    def rate(self, t: int) -> float:
        return self.toy.lr * self.toy.lr_decay**t

    def task_gradient(
        self, w: Vector, buffers: Vector, x: Tensor, y: Tensor, k: int, anchor: Vector, anchor_buffers: Vector
    ) -> Vector:
        """Return the gradient at w of the task loss, MAN's and MOON's terms included; moves ``buffers``."""
        leaves = {name: w[name].detach().requires_grad_() for name in w}
        logits, activations, z = self.forward(leaves, buffers, x, training=True)
        loss = self.toy.loss(logits, y)
        if "man" in self.parts:  # 2.10
            taps = activations + ([logits] if self.options["man.include_logits"] else [])
            strength = self._number("man.zeta") * (0.5 if self.options["man.half"] else 1.0)
            for tap in taps:
                loss = loss + strength * (tap**2).mean()
        if "moon" in self.parts:  # 2.3
            previous = self.previous[k]
            if previous is None and self.options["moon.first"] != "skip":
                received = anchor, anchor_buffers
                previous = self.initial if self.options["moon.first"] == "init" else received
            if previous is not None:
                training = self.options["moon.aux_mode"] == "train"
                with torch.no_grad():
                    _, _, z_global = self.forward(anchor, copied(anchor_buffers), x, training)
                    _, _, z_previous = self.forward(previous[0], copied(previous[1]), x, training)
                contrast = moon_term(z, z_global, z_previous, self._number("moon.tau"))
                loss = loss + self._number("moon.mu") * contrast
        found = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def forward(
        self, w: Vector, buffers: Vector, x: Tensor, training: bool
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return logits, the outputs of all ReLUs, and the last linear layer's input; moves ``buffers``."""
        self.module.train(training)
        with listening(self.module) as (activations, features):
            logits = functional_call(self.module, {**w, **buffers}, (x,))
        return logits, activations, features[-1] if features else logits

    def ascent(self, w: Vector, g: Vector, leftover: Vector) -> Vector:
        """2.8, 2.9, 2.13: return w̆ − w."""
        if "fedasam" in self.parts:
            rho, offset = self._number("asam.rho"), self._number("asam.offset")
            return asam_ascent(w, g, rho, offset, str(self.options["asam.scaled"]))
        if "fedsam" in self.parts:
            return sam_ascent(g, self._number("sam.rho"))
        if self.options["speed.stale_ascent"]:
            g = plus(g, leftover)
        return sam_ascent(g, self._number("speed.rho"), offset=1e-7)

    def inside_the_clip(self, k: int, t: int, w: Vector, anchor: Vector, first: bool) -> Vector:
        """Return the gradient at w of every term of the parameters alone that the loss holds."""
        o, parts, share = self.options, self.parts, self.shares[k]
        total = zeros(w)
        if "fedprox" in parts and not self._prox_skipped(first):  # 2.2
            mu = self._number("prox.mu")
            if o["prox.split"] == "weight_decay":  # −μ⟨w, θ⟩
                total = plus(total, self._scoped(anchor), -mu)
            else:
                total = plus(
                    total, prox_gradient(self._scoped(w), self._scoped(anchor), mu, str(o["prox.form"]))
                )
        if parts & {"feddyn", "fedspeed"}:  # 2.11, 2.13: α_k⟨w, h_k − θ⟩
            alpha = self._number("dyn.alpha") / share
            total = plus(total, self._scoped(minus(self.h[k], anchor)), alpha)
            if o["dyn.quadratic"] == "loss":
                total = plus(total, self._scoped(w), alpha)
        if "feddc" in parts:  # 2.12: (α_k/2)‖w + h_k − θ‖² + ⟨w, g − g_k⟩
            alpha = self._number("dc.alpha") / share
            total = plus(total, self._scoped(minus(plus(w, self.h[k]), anchor)), alpha)
            total = plus(total, self._scoped(minus(times(self.g, 1 / share), self.g_k[k])))
        if "scaffold" in parts and o["scaffold.apply"] == "loss":  # 2.14: ⟨w, c − c_k⟩
            total = plus(total, self._scoped(self.control(k)))
        if "fedcurv" in parts:  # 2.15
            strength = self._number("fedcurv.lambda") * (0.5 if o["fedcurv.half"] else 1.0)
            others = [pair for j, pair in self.curvature.items() if j != k or not o["fedcurv.exclude_self"]]
            total = plus(total, self._scoped(curv_gradient(w, others, strength)))
        if "fedfor" in parts and self.theta_before is not None:  # 2.17
            g = minus(self.theta_before, self.theta)
            if o["fedfor.grad_scale"] == "lr":
                g = times(g, 1 / self.rate(t))
            alpha = self._number("fedfor.alpha")
            if o["fedfor.reduce"] == "mean":
                alpha /= sum(w[name].numel() for name in self.scope)
            pushed = for_gradient(w, anchor, g, alpha, bool(o["fedfor.positive_only"]))
            total = plus(total, self._scoped(pushed))
        return total

    def outside_the_clip(self, k: int, w: Vector, first: bool) -> Vector:
        """Return what acts as an additional weight decay."""
        total = zeros(w)
        if (
            "fedprox" in self.parts
            and self.options["prox.split"] == "weight_decay"
            and not self._prox_skipped(first)
        ):
            total = plus(total, self._scoped(w), self._number("prox.mu"))
        if self.parts & {"feddyn", "fedspeed"} and self.options["dyn.quadratic"] == "weight_decay":
            total = plus(total, self._scoped(w), self._number("dyn.alpha") / self.shares[k])
        return total

    def _prox_skipped(self, first: bool) -> bool:
        return first and self.options["prox.skip"] == "first_batch_of_epoch"

    def _scoped(self, vector: Vector) -> Vector:
        """Return the tensors that terms and states act on: under FedBN the shared ones."""
        return {name: vector[name] for name in self.scope}

    def fisher(self, k: int, w: Vector, buffers: Vector) -> Vector:
        """2.15: the diagonal empirical Fisher at w over client k's data, in eval mode."""
        inputs, labels = self.data[k]
        size = self.toy.batch_size if self.options["fisher.batch"] else 1
        total = zeros(w)
        for x, y in zip(inputs.split(size), labels.split(size), strict=True):
            g = self.plain_gradient(w, buffers, x, y)
            total = plus(total, {name: g[name] ** 2 for name in g}, len(x) / len(inputs))
        return total

    def plain_gradient(self, w: Vector, buffers: Vector, x: Tensor, y: Tensor) -> Vector:
        """Return the gradient of the mean cross-entropy alone, in eval mode."""
        leaves = {name: w[name].detach().requires_grad_() for name in w}
        logits, _, _ = self.forward(leaves, buffers, x, training=False)
        found = torch.autograd.grad(self.toy.loss(logits, y), list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    # One round

    def round(self, t: int) -> Round:
        """Train the participants one after the other, then let the server do its part."""
        o, participants = self.options, self.toy.participants[t]
        trained = {k: self.train(k, t) for k in participants}
        w = {k: trained[k][0] for k in participants}
        change_g, change_c = zeros(self.g), zeros(self.c)
        curvature = {}
        for k in participants:
            anchor, anchor_buffers = self.received(k)
            moved = self._scoped(minus(w[k], anchor))
            if self.parts & {"feddyn", "feddc", "fedspeed"}:
                self.h[k] = plus(self.h[k], moved)
            if "feddc" in self.parts:
                path = times(moved, -1 / self._path_length(t, trained[k][2]))
                new = plus(minus(self.g_k[k], times(self.g, 1 / self.shares[k])), path)
                change_g = plus(change_g, minus(new, self.g_k[k]), self.shares[k])
                self.g_k[k] = new
            if "scaffold" in self.parts:
                if o["scaffold.option"] == "I":
                    new = zeros(anchor)
                    new.update(self._scoped(self.plain_gradient(anchor, anchor_buffers, *self.data[k])))
                else:
                    path = times(moved, -1 / self._path_length(t, trained[k][2]))
                    inside = o["scaffold.apply"] == "loss"  # else the momentum does not carry it further
                    counted = 1.0 if inside else trained[k][2] / self._reach(trained[k][2])
                    new = plus(path, minus(self.c_k[k], self.c), counted)
                weight = self.shares[k] if o["cv.steps"] == "nominal" else 1.0
                change_c = plus(change_c, minus(new, self.c_k[k]), weight)
                self.c_k[k] = new
            if "fedcurv" in self.parts:
                curvature[k] = self.fisher(k, w[k], copied(trained[k][1])), w[k]
            if "moon" in self.parts:
                self.previous[k] = self._kept(w[k]), self._kept(trained[k][1])
        self.g = plus(self.g, change_g, 1 / self.count)
        self.c = plus(self.c, change_c, 1 / self.count)
        self.curvature = curvature
        self.aggregate(t, {k: {**trained[k][0], **trained[k][1]} for k in participants}, trained)
        for k in participants:
            self.own[k] = self._kept({name: {**w[k], **trained[k][1]}[name] for name in self.personal})
        return Round(
            copied({**self.theta, **self.buffers}),
            {k: copied({**w[k], **trained[k][1]}) for k in participants},
            {name: [copied(v) for v in getattr(self, name)] for name in ("h", "g_k", "c_k", "own")},
            {name: copied(getattr(self, name)) for name in ("g", "c", "m", "s")},
        )

    def _kept(self, vector: Vector) -> Vector:
        return {name: vector[name].to(self.toy.kept).double() for name in vector}

    def _path_length(self, t: int, steps: int) -> float:
        """Return η times the sum of the gradients' weights in a path (``cv.steps``, ``cv.lr``): τη."""
        if self.options["cv.steps"] == "nominal":
            mean_size = sum(self.sizes) / self.count
            steps = self.toy.epochs * math.ceil(mean_size / self.toy.batch_size)
        return self._reach(steps) * (self.rate(t) if self.options["cv.lr"] == "current" else self.toy.lr)

    def _reach(self, steps: int) -> float:
        """Return Σ_s (1 − β^{τ−s+1})/(1 − β), one step ahead under Nesterov: what τ gradients of 1 move."""
        beta, ahead = self.toy.momentum, int(self.toy.nesterov)
        return sum(sum(beta**i for i in range(steps - s + ahead)) for s in range(steps))

    def aggregate(
        self, t: int, uploads: dict[int, Vector], trained: dict[int, tuple[Vector, Vector, int]]
    ) -> None:
        """Make the uploads the next θ and buffers, by the method's rule."""
        o, parts, theta, participants = self.options, self.parts, self.theta, list(uploads)
        total = sum(self.sizes[k] for k in participants)
        p = [self.sizes[k] / total for k in participants]
        if parts & {"fedbn", "feddyn", "feddc", "fedspeed", "scaffold"}:
            p = [1 / len(participants) for _ in participants]
        mean = weighted_sum([uploads[k] for k in participants], p)
        self.buffers = {name: mean[name] for name in self.buffers}
        mean = {name: mean[name] for name in theta}
        new, step = mean, minus(mean, theta)  # step: Δ̄

        if parts & {"feddyn", "feddc", "fedspeed"}:  # 2.11, 2.12, 2.13
            new = plus(mean, weighted_sum(self.h, [1 / self.count] * self.count))
            if "fedspeed" in parts and o["speed.server"] == "active":
                new = plus(mean, weighted_sum([self.h[k] for k in participants], p))
        if "scaffold" in parts:  # 2.14
            new = plus(theta, step, self._number("scaffold.gamma"))
        if "fedavgm" in parts:  # 2.18, Hsu et al.
            beta = self._number("avgm.beta")
            self.m = plus(times(self.m, beta), step, 1 - beta if o["avgm.dampened"] else 1.0)
            new = plus(theta, self.m, self._number("avgm.gamma"))
        if "fedadagrad" in parts:  # 2.18, Reddi et al.
            self._first_moment(step, "adagrad")
            self.s = {name: self.s[name] + step[name] ** 2 for name in step}
            new = self._adapted("adagrad")
        if "fedadam" in parts:
            self._first_moment(step, "adam")
            beta2 = self._number("adam.beta2")
            self.s = {name: beta2 * self.s[name] + (1 - beta2) * step[name] ** 2 for name in step}
            m_scale = s_scale = 1.0
            if o["adam.bias_correction"]:
                m_scale, s_scale = 1 - self._number("adam.beta1") ** (t + 1), 1 - beta2 ** (t + 1)
            new = self._adapted("adam", m_scale, s_scale)
        if "fedyogi" in parts:
            self._first_moment(step, "yogi")
            beta2 = self._number("yogi.beta2")
            for name in step:
                square = step[name] ** 2
                self.s[name] = self.s[name] - (1 - beta2) * square * torch.sign(self.s[name] - square)
            new = self._adapted("yogi")
        if "fednova" in parts:  # 2.18, Wang et al.
            shrinkage = 0.0
            a = []
            for k in participants:
                if "fedprox" in parts:
                    shrinkage = self.rate(t) * self._number("prox.mu")
                a.append(nova_steps(trained[k][2], self.toy.momentum, self.toy.nesterov, shrinkage))
            directions = [
                times(minus(trained[k][0], theta), 1 / a_k) for k, a_k in zip(participants, a, strict=True)
            ]
            length = sum(p_k * a_k for p_k, a_k in zip(p, a, strict=True))
            new = plus(theta, weighted_sum(directions, p), self._number("nova.gamma") * length)

        self.theta_before = theta
        self.theta = {name: mean[name] if name in self.personal else new[name] for name in theta}

    def _first_moment(self, step: Vector, family: str) -> None:
        beta1 = self._number(f"{family}.beta1")
        self.m = plus(times(self.m, beta1), step, 1 - beta1)

    def _adapted(self, family: str, m_scale: float = 1.0, s_scale: float = 1.0) -> Vector:
        """Return θ + γ m̂/(√ŝ + ε)."""
        gamma, eps = self._number(f"{family}.gamma"), self._number(f"{family}.eps")
        new = {}
        for name in self.theta:
            m, s = self.m[name] / m_scale, self.s[name] / s_scale
            new[name] = self.theta[name] + gamma * m / (s.sqrt() + eps)
        return new


@contextmanager
def listening(module: nn.Module) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Collect the outputs of every ReLU, and the inputs of the last linear layer."""
    activations: list[Tensor] = []
    features: list[Tensor] = []
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    handles = [
        layer.register_forward_hook(lambda _module, _inputs, output: activations.append(output))
        for layer in module.modules()
        if isinstance(layer, nn.ReLU)
    ]
    if linear:
        handles.append(
            linear[-1].register_forward_pre_hook(lambda _module, inputs: features.append(inputs[0]))
        )
    try:
        yield activations, features
    finally:
        for handle in handles:
            handle.remove()
