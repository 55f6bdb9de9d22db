"""The methods of 2022 to 2026 a second time: their equations on flat float64 vectors, client by client.

The oracle of ``test_recent.py``, for networks without BatchNorm. ``theta`` is the server's model, ``sent``
what clients start from, ``w`` a client's parameters. A method is a class with the places at which it departs
from FedAvg.
"""

import copy
import math

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from tests.federated.equations import nova_steps
from tests.federated.reference import Toy, Value


class FedAvg:
    """Local SGD and the mean weighted by size; every other method overrides a part of it."""

    uniform = False

    def __init__(self, toy: Toy, options: dict[str, Value]):
        self.toy, self.o = toy, options
        self.module = copy.deepcopy(toy.module).double().train()
        self.names = [name for name, _ in self.module.named_parameters()]
        self.shapes = [p.shape for p in self.module.parameters()]
        self.theta = torch.cat([p.detach().flatten() for p in self.module.parameters()])
        self.data = [(x.double(), y) for x, y in toy.clients]
        self.sizes = [len(x) for x, _ in self.data]
        self.count = len(self.data)
        self.shown = self.theta
        self.round, self.steps, self.client = 0, 0, 0
        self.zero = torch.zeros_like(self.theta)
        self.setup()

    def setup(self) -> None:
        """Make what server and clients remember."""

    def sent(self) -> Tensor:
        return self.theta

    def number(self, name: str) -> float:
        return float(self.o[name])

    def tensors(self, w: Tensor) -> dict[str, Tensor]:
        pieces = w.split([math.prod(shape) for shape in self.shapes])
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes, strict=True)}

    def logits(self, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, and what the last linear layer reads."""
        read: list[Tensor] = []
        last = [m for m in self.module.modules() if isinstance(m, torch.nn.Linear)][-1]
        hook = last.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        found = functional_call(self.module, self.tensors(w), (x,))
        hook.remove()
        return found, read[0]

    def loss(self, logits: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y)

    def slope(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the task loss at w."""
        leaf = w.detach().requires_grad_()
        return torch.autograd.grad(self.loss(*self.logits(leaf, x), x, y), leaf)[0]

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return all that the clip sees."""
        return self.slope(w, x, y)

    def clipped(self, g: Tensor) -> None:
        """See the clipped gradient."""

    def decay(self, w: Tensor) -> Tensor:
        return self.zero

    def rate(self, done: float) -> float:
        return 1.0

    def start(self) -> None:
        """Begin the round of ``self.client``."""

    def end(self, w: Tensor, tau: int, eta: float) -> None:
        """End it; η is the mean of the steps' rates."""

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.theta = mean

    def show(self) -> Tensor:
        """Return the model that is evaluated."""
        return self.theta

    @property
    def nominal(self) -> int:
        return self.toy.epochs * math.ceil(sum(self.sizes) / self.count / self.toy.batch_size)

    @property
    def eta(self) -> float:
        return self.toy.lr * self.toy.lr_decay**self.round

    def run(self) -> list[Tensor]:
        toy, found = self.toy, []
        for t, participants in enumerate(toy.participants):
            self.round = t
            self.received = self.sent()
            ws = {}
            for k in participants:
                self.client = k
                ws[k] = self.train(k)
            shares = [1.0 if self.uniform else self.sizes[k] for k in participants]
            parts = [p * ws[k] for p, k in zip(shares, participants, strict=True)]
            self.serve(ws, torch.stack(parts).sum(0) / sum(shares))
            found.append(self.show())
        return found

    def train(self, k: int) -> Tensor:
        toy, (inputs, labels) = self.toy, self.data[k]
        w, velocity, self.steps = self.received, self.zero, 0
        batches = [
            b for order in toy.orders(self.round, k)[: toy.epochs] for b in order.split(toy.batch_size)
        ]
        self.start()
        rates: list[float] = []
        for batch in batches:
            g = self.gradient(w, inputs[batch], labels[batch])
            if toy.clip is not None:
                g = g * min(1.0, toy.clip / (float(g.norm()) + 1e-6))
            self.clipped(g)
            g = g + self.decay(w) + toy.weight_decay * w
            velocity = toy.momentum * velocity + g
            rates.append(self.eta * self.rate(len(rates) / len(batches)))
            w = w - rates[-1] * velocity
            self.steps += 1
        self.end(w, len(batches), sum(rates) / len(rates))
        return w


def unit(v: Tensor, beside: float = 1e-7) -> Tensor:
    return v / (float(v.norm()) + beside)


class FedCM(FedAvg):
    def setup(self) -> None:
        self.delta = self.zero

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        alpha = self.number("cm.alpha")
        return alpha * self.point(w, x, y) + (1 - alpha) * self.delta

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w, x, y)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.delta = (self.received - mean) / (self.eta * nova_steps(self.nominal, self.toy.momentum))
        self.theta = mean


class MoFedSAM(FedCM):
    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w + self.number("sam.rho") * unit(self.slope(w, x, y), 1e-16), x, y)


class Dyn(FedAvg):
    """FedDyn, differentiated at ``point``."""

    uniform = True

    def setup(self) -> None:
        self.h = [self.zero for _ in self.sizes]
        self.last = self.zero

    @property
    def alpha(self) -> float:
        return self.number("dyn.alpha") * sum(self.sizes) / self.count / self.sizes[self.client]

    def start(self) -> None:
        self.last = self.zero

    def clipped(self, g: Tensor) -> None:
        self.last = g

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.point(w, x, y) + self.alpha * (self.h[self.client] - self.received)

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w, x, y)

    def decay(self, w: Tensor) -> Tensor:
        return self.alpha * w

    def end(self, w: Tensor, tau: int, eta: float) -> None:
        self.h[self.client] = self.h[self.client] + w - self.received

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.theta = mean + sum(self.h) / self.count


class FedSpeed(Dyn):
    """Sun et al. 2023 in full: a quasi-gradient of an ascent that is not normalised, and the active mean."""

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        a, g = self.number("speed.alpha"), self.slope(w, x, y)
        e = unit(g) if self.o["speed.normalised"] else g
        return (1 - a) * g + a * self.slope(w + self.number("speed.rho") * e, x, y)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.theta = torch.stack([ws[k] + self.h[k] for k in ws]).mean(0)


class FedSMOO(Dyn):
    def setup(self) -> None:
        super().setup()
        self.mu, self.s = [self.zero for _ in self.sizes], self.zero

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        k, rho = self.client, self.number("smoo.rho")
        e = rho * unit(self.slope(w, x, y) - self.mu[k] - self.s)
        self.mu[k] = self.mu[k] + e - self.s
        return self.slope(w + e, x, y)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        super().serve(ws, mean)
        self.s = self.number("smoo.rho") * unit(torch.stack([self.mu[k] for k in ws]).mean(0))


class FedTOGA(Dyn):
    def setup(self) -> None:
        super().setup()
        self.delta = self.zero

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        s = self.slope(w, x, y) + self.number("toga.kappa") * self.delta
        s = s + self.last if self.o["toga.neighbour"] else s
        return self.slope(w + self.number("toga.rho") * unit(s), x, y) + self.number("toga.beta") * self.delta

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        super().serve(ws, mean)
        self.delta = (self.received - mean) / self.nominal


class FedGloSS(Dyn):
    def setup(self) -> None:
        super().setup()
        self.u = self.zero

    def warm(self, name: str) -> float:
        start, rounds = self.number("gloss.start"), self.number("gloss.warmup")
        return (
            start + (self.number(name) - start) * min(1.0, self.round / rounds)
            if rounds
            else self.number(name)
        )

    def sent(self) -> Tensor:
        return self.theta - self.warm("gloss.rho") * unit(self.u, 1e-16)

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        g = self.slope(w, x, y)
        return self.slope(w + self.warm("gloss.local_rho") * unit(g, 1e-16), x, y)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.u = mean - self.received
        self.theta = self.theta + self.u + sum(self.h) / self.count


class FedLESAM(FedAvg):
    def setup(self) -> None:
        super().setup()
        self.old = [self.theta for _ in self.sizes]

    def point(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        back = self.old[self.client] - self.received
        return self.slope(w + self.number("lesam.rho") * unit(back), x, y)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.point(w, x, y)

    def end(self, w: Tensor, tau: int, eta: float) -> None:
        super().end(w, tau, eta)
        self.old[self.client] = self.received


class FedLESAMD(FedLESAM, Dyn):
    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return Dyn.gradient(self, w, x, y)


class Scaffold(FedAvg):
    uniform = True

    def setup(self) -> None:
        self.c_k, self.c = [self.zero for _ in self.sizes], self.zero
        self.change = self.zero

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w, x, y) + self.c - self.c_k[self.client]

    def end(self, w: Tensor, tau: int, eta: float) -> None:
        super().end(w, tau, eta)
        change = (self.received - w) / (eta * nova_steps(tau, self.toy.momentum)) - self.c
        self.change = self.change + change
        self.c_k[self.client] = self.c_k[self.client] + change

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.c = self.c + self.change / self.count
        self.change, self.theta = self.zero, mean


class FedLESAMS(FedLESAM, Scaffold):
    def setup(self) -> None:
        FedLESAM.setup(self)
        Scaffold.setup(self)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.point(w, x, y) + self.c - self.c_k[self.client]


class Falling(FedAvg):
    def rate(self, done: float) -> float:
        start, end = self.number("swa.rate_start"), self.number("swa.rate_end")
        return start + done * (end - start)


class FedSWA(Falling):
    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.theta = self.theta + self.number("swa.gamma") * (mean - self.theta)


class FedMoSWA(Falling, Scaffold):
    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        latest = torch.stack([self.c_k[client] for client in ws]).mean(0)
        gamma = self.number("moswa.gamma")
        self.c, self.theta = (1 - gamma) * self.c + gamma * latest, mean


class FedGF(FedAvg):
    def setup(self) -> None:
        self.u, self.c, self.window = self.zero, 0.0, [0.0]
        self.window.clear()

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        mine = w + self.number("gf.rho") * unit(self.slope(w, x, y), 1e-16)
        theirs = self.received + self.number("gf.global_rho") * unit(self.u, 1e-16)
        return self.slope(self.c * theirs + (1 - self.c) * mine, x, y)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        apart = sum(float((w - self.theta).norm()) for w in ws.values()) / len(ws)
        self.window.append(float(apart > self.number("gf.threshold")))
        recent = self.window[-int(self.number("gf.window")) :]
        self.u, self.c, self.theta = self.theta - mean, sum(recent) / len(recent), mean


class Ahead(FedAvg):
    prefix = "acg"

    def setup(self) -> None:
        self.m = self.zero

    def sent(self) -> Tensor:
        return self.theta + self.number(f"{self.prefix}.lambda") * self.m

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        self.m = self.number(f"{self.prefix}.lambda") * self.m + mean - self.received
        self.theta = self.theta + self.m


class FedACG(Ahead):
    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w, x, y) + 2 * self.number("acg.beta") * (w - self.received)


class FedNSAM(Ahead):
    prefix = "nsam"

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.slope(w + self.number("sam.rho") * unit(self.slope(w, x, y), 1e-16), x, y)


class FedWMSAM(Scaffold):
    def setup(self) -> None:
        super().setup()
        self.momentum, self.share_of_own, self.agreements = self.zero, self.number("wm.alpha"), [0.0]
        self.agreements.clear()

    @property
    def own(self) -> Tensor:
        a = self.share_of_own
        return self.momentum + a / (1 - a) * (self.c - self.c_k[self.client])

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        ahead = self.received + self.steps * self.own - w
        g = self.slope(w + self.number("wm.rho") * unit(ahead), x, y)
        return self.share_of_own * g + (1 - self.share_of_own) * self.own

    def end(self, w: Tensor, tau: int, eta: float) -> None:
        super().end(w, tau, eta)
        moved, norms = w - self.received, float(self.momentum.norm())
        cosine = float(moved @ self.momentum) / (float(moved.norm()) * norms) if norms else -1.0
        self.agreements.append(1 + cosine)

    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        super().serve(ws, mean)
        self.momentum = (self.received - mean) / (self.eta * nova_steps(self.nominal, self.toy.momentum))
        agreed = min(0.9, max(0.1, sum(self.agreements) / len(self.agreements)))
        self.agreements.clear()
        self.share_of_own = 0.99 * self.share_of_own + 0.01 * agreed


class FedNTD(FedAvg):
    def loss(self, logits: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            known, _ = self.logits(self.received, x)
        rows = []
        for mine, theirs, label in zip(logits, known, y.tolist(), strict=True):
            others = [c for c in range(len(mine)) if c != label]
            p, q = (v[others].div(self.number("ntd.tau")).softmax(0) for v in (theirs, mine))
            rows.append((p * (p.log() - q.log())).sum())
        distilled = self.number("ntd.tau") ** 2 * torch.stack(rows).mean()
        return cross_entropy(logits, y) + self.number("ntd.beta") * distilled


class FedSOL(FedAvg):
    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        leaf = w.detach().requires_grad_()
        mine, theirs = (self.logits(v, x)[0].div(3.0).softmax(1) for v in (leaf, self.received))
        (q,) = torch.autograd.grad((theirs * (theirs.log() - mine.log())).sum(1).mean(), leaf)
        scale = torch.ones_like(w)
        if self.o["sol.scale"] == "adaptive":
            moved = self.tensors((w - self.received).abs())
            scale = torch.cat([(v / v.norm(dim=0).clamp(min=1e-12)).flatten() for v in moved.values()])
        return self.slope(w + self.number("sol.rho") * scale * q / (q.norm() + 1e-12), x, y)


class Counted(FedAvg):
    @property
    def held(self) -> list[int]:
        labels = self.data[self.client][1].tolist()
        return [labels.count(c) for c in range(10)]


class FedLC(Counted):
    def loss(self, logits: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        tau, held = self.number("lc.tau"), self.held
        known = [c for c in range(10) if held[c]]
        margin = torch.tensor([tau / held[c] ** 0.25 for c in known], dtype=logits.dtype)
        shifted = (logits[:, known] - margin).exp()
        places = torch.tensor([known.index(c) for c in y.tolist()])
        return -(shifted[torch.arange(len(y)), places] / shifted.sum(1)).log().mean()


class FedRS(Counted):
    def loss(self, logits: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        factors = torch.tensor([1.0 if n else self.number("rs.alpha") for n in self.held], dtype=logits.dtype)
        return cross_entropy(logits * factors, y)


class FedDecorr(FedAvg):
    def loss(self, logits: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        count, size = features.shape
        code = self.o["decorr.form"] == "code"
        away = features - features.mean(0)
        spread = (away**2).sum(0) / (count - 1 if code else count)
        z = away / (spread + 1e-8).sqrt()
        pairs = [(z[:, i] @ z[:, j]) ** 2 for i in range(size) for j in range(size) if i != j or not code]
        term = sum(pairs) / len(pairs) / count if code else sum(pairs) / size**2 / count**2
        return cross_entropy(logits, y) + self.number("decorr.beta") * term


class FedExP(FedAvg):
    def serve(self, ws: dict[int, Tensor], mean: Tensor) -> None:
        total = sum(self.sizes[k] for k in ws)
        apart = sum(self.sizes[k] / total * float(((w - self.theta) ** 2).sum()) for k, w in ws.items())
        beside = self.number("exp.epsilon") * self.number("exp.decay") ** self.round
        beside *= len(ws) if self.o["exp.per_client"] else 1
        delta = mean - self.theta
        self.theta = self.theta + max(1.0, apart / (2 * (float((delta**2).sum()) + beside))) * delta


class Averaged(FedAvg):
    """SWA or EMA of FedAvg's models."""

    def setup(self) -> None:
        self.models: list[Tensor] = []
        self.cycle = int(self.o.get("swa.cycle", 1))

    @property
    def eta(self) -> float:
        if self.cycle == 1:
            return super().eta
        ladder = torch.linspace(1, self.number("swa.end"), self.cycle + 1, dtype=torch.float64)[1:].tolist()
        first = int(self.number("swa.start")) - self.cycle + (self.o["swa.lowest"] == "counted")
        since = self.round + 1 - first
        return super().eta * (1.0 if since < 0 else float(ladder[since % self.cycle]))

    def show(self) -> Tensor:
        self.models.append(self.theta)
        if "swa.start" in self.o:
            recent = self.models[int(self.number("swa.start")) - 1 :: self.cycle] or self.models[-1:]
            return torch.stack(recent).mean(0)
        beta, shown = self.number("ema.beta"), self.models[0]
        for model in self.models[1:]:
            shown = beta * shown + (1 - beta) * model
        return shown


METHODS: dict[str, type[FedAvg]] = {
    "fedcm": FedCM, "mofedsam": MoFedSAM, "fedspeed": FedSpeed, "fedsmoo": FedSMOO, "fedtoga": FedTOGA,
    "fedgloss": FedGloSS, "fedlesam": FedLESAM, "fedlesam-d": FedLESAMD, "fedlesam-s": FedLESAMS,
    "fedswa": FedSWA, "fedmoswa": FedMoSWA, "fedgf": FedGF, "fedacg": FedACG, "fednsam": FedNSAM,
    "fedwmsam": FedWMSAM, "fedntd": FedNTD, "fedsol": FedSOL, "fedlc": FedLC, "fedrs": FedRS,
    "feddecorr": FedDecorr, "fedexp": FedExP, "swa": Averaged, "ema": Averaged,
}  # fmt: skip
