"""One table of methods and sums, and the laws that hold for each of them, in whole runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from fedscope.federated.methods import METHODS, parse
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.setup.federation import prepare
from tests.federated.cases import ending, options, serving, stacked, step
from tests.federated.runs import interrupted, resumed, trained

SMALL = Settings(
    clients=3, rounds=2, epochs=1, train_samples=150, test_samples=100, batch_size=20, model="mlp_digits",
    alpha=1.0, threads=1, keep_every=1, save_clients="all",
)  # fmt: skip
RESIDUAL = {"model": "resnet_digits"}
HEAD = {"model": "resnet_digits", "head": True}
UNIFORM = {"weights": "uniform"}


@dataclass(frozen=True)
class Zero:
    """A method whose strength is zero, and the FedAvg that it then is, bit for bit."""

    method: str
    given: dict[str, str]
    settings: Mapping[str, object] = field(default_factory=dict)
    host: str = "fedavg"
    host_settings: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.method


ZEROS = (
    Zero("fedprox", {"prox.mu": "0"}),
    Zero("fedprox", {"prox.mu": "0", "prox.form": "norm"}),
    Zero("fedprox", {"prox.mu": "0", "prox.split": "weight_decay"}),
    Zero("moon", {"moon.mu": "0"}, HEAD),
    Zero("mixup", {"mixup.gamma": "0"}, RESIDUAL),
    Zero("stochdepth", {"sd.keep": "1"}, RESIDUAL),
    Zero("gradaug", {"gradaug.mu": "0"}, RESIDUAL),
    Zero("fedalign", {"fedalign.mu": "0", "fedalign.clip": "0"}, RESIDUAL),
    Zero("fedsam", {"sam.rho": "0"}),
    Zero("fedasam", {"asam.rho": "0"}),
    Zero("fedsam", {"sam.rho": "0", "sam.bn": "first"}, RESIDUAL),
    Zero("man", {"man.zeta": "0"}, RESIDUAL),
    Zero("fedcurv", {"fedcurv.lambda": "0"}),
    Zero("fedfor", {"fedfor.alpha": "0"}, RESIDUAL),
    Zero("fedbn", {}, {}, host_settings=UNIFORM),  # there is no BatchNorm
    Zero("feddyn+man", {"man.zeta": "0"}, host="feddyn"),
    Zero("feddc+man", {"man.zeta": "0"}, host="feddc"),
    Zero("fedsam+man", {"man.zeta": "0"}, host="fedsam"),
    Zero("fedasam+man", {"man.zeta": "0"}, host="fedasam"),
    Zero("fedspeed+man", {"man.zeta": "0"}, host="fedspeed"),
    Zero("scaffold+man", {"man.zeta": "0"}, host="scaffold"),
    Zero("fedbn+fedprox", {"prox.mu": "0"}, RESIDUAL, host="fedbn"),
    Zero("fedbn+fedfor", {"fedfor.alpha": "0"}, RESIDUAL, host="fedbn"),
    Zero("fedavgm+fedprox+mixup", {"prox.mu": "0", "mixup.gamma": "0"}, host="fedavgm"),
    Zero("fedspeed", {"speed.alpha": "0"}, host="feddyn"),
    Zero("fedcm", {"cm.alpha": "1"}),
    Zero("fedsmoo", {"smoo.rho": "0"}, host="feddyn"),
    Zero("fedlesam", {"lesam.rho": "0"}, RESIDUAL),
    Zero("scaffold+fedlesam", {"lesam.rho": "0"}, host="scaffold"),
    Zero("fedgloss", {"gloss.rho": "0", "gloss.local_rho": "0"}, host="feddyn"),
    Zero("fedgf", {"gf.rho": "0", "gf.threshold": "1e9"}),
    Zero("fedtoga", {"toga.rho": "0", "toga.beta": "0"}, host="feddyn"),
    Zero("fednsam", {"nsam.lambda": "0", "sam.rho": "0"}),
    Zero("fedswa", {"swa.rate_end": "1"}),
    Zero("fedmoswa", {"moswa.gamma": "1", "swa.rate_end": "1"}, host="scaffold"),
    Zero("swa", {"swa.start": "9"}),
    Zero("fedavgm+ema", {"ema.beta": "0"}, host="fedavgm"),
    Zero("fedntd", {"ntd.beta": "0"}, RESIDUAL),
    Zero("fedsol", {"sol.rho": "0"}, RESIDUAL),
    Zero("fedlc", {"lc.tau": "0"}),
    Zero("fedrs", {"rs.alpha": "1"}),
    Zero("feddecorr", {"decorr.beta": "0"}, RESIDUAL),
    Zero("fedexp", {"exp.epsilon": "1e9"}),
    Zero("fedacg", {"acg.lambda": "0", "acg.beta": "0"}),
)
# Where the default makes no difference on these clients.
STRONG = {"fedprox": {"prox.mu": "1"}, "fedexp": {"exp.epsilon": "1e-12"}}
# What each method's first round is, bit for bit: its memories are empty, its models have not moved.
FIRST = (
    Zero("fedcurv", {}, {}),
    Zero("fedfor", {}, RESIDUAL),
    Zero("scaffold", {}, RESIDUAL, host_settings=UNIFORM),
    Zero("moon", {"moon.first": "skip"}, HEAD),
)
STATEFUL = (
    "moon", "feddyn+man", "feddc", "fedspeed", "scaffold", "fedcurv", "fedbn+feddyn", "fedbn+fedprox",
    "fedfor", "fedavgm", "fedadagrad", "fedadam+mixup", "fedyogi", "fednova", "stochdepth", "gradaug",
    "fedcm+fedsam", "fedsmoo", "fedlesam", "fedgloss", "fedgf", "fedtoga", "fednsam", "fedwmsam", "fedmoswa",
    "fedavgm+swa", "fedacg+ema",
)  # fmt: skip


def settings_of(method: str, **changes: object) -> Settings:
    """Return small settings on a network that the method can run."""
    residual = {"moon", "stochdepth", "gradaug", "fedalign", "fedbn"} & set(method.split("+"))
    return SMALL.model_copy(update={**(RESIDUAL if residual else {}), "method": method, **changes})


def hashes(run: RunFolder, rounds: int = 2) -> list[str]:
    return [load_checkpoint(run.after_round(round)).sha256 for round in range(1, rounds + 1)]


@cache
def _hashes(settings: str, given: tuple[tuple[str, str], ...]) -> list[str]:
    with TemporaryDirectory() as folder:
        return hashes(trained(Path(folder), Settings.model_validate_json(settings), dict(given)))


def hashes_of(settings: Settings, given: dict[str, str] | None = None) -> list[str]:
    """Return what a run of two rounds comes to; equal runs are trained once."""
    return _hashes(settings.model_dump_json(), tuple(sorted((given or {}).items())))


@pytest.mark.parametrize("case", ZEROS, ids=str)
def test_strength_zero_is_the_host_bit_for_bit(case: Zero) -> None:
    settings = SMALL.model_copy(update=case.settings)
    plain = settings.model_copy(update={"method": case.host, **case.host_settings})
    zero = settings.model_copy(update={"method": case.method})
    assert hashes_of(zero, case.given) == hashes_of(plain)


@pytest.mark.parametrize("case", ZEROS, ids=str)
def test_any_strength_is_another_method(case: Zero) -> None:
    """The law above would hold for a method that does nothing at all."""
    if case.method == "fedbn":
        case = Zero("fedbn", {}, RESIDUAL, host_settings=UNIFORM)
    settings = SMALL.model_copy(update=case.settings)
    strong = next((given for part, given in STRONG.items() if part in case.method), {})
    plain = settings.model_copy(update={"method": case.host, **case.host_settings})
    method = settings.model_copy(update={"method": case.method})
    assert hashes_of(method, strong)[1] != hashes_of(plain)[1]


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_the_first_round_is_fedavgs_bit_for_bit(case: Zero) -> None:
    settings = SMALL.model_copy(update=case.settings)
    plain = settings.model_copy(update=case.host_settings)
    first = hashes_of(settings.model_copy(update={"method": case.method}), case.given)
    second = hashes_of(plain)
    assert first[0] == second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize("method", ["feddyn", "feddc", "fedspeed"])
def test_strength_zero_is_not_fedavg_where_the_server_adds_drift(tmp_path: Path, method: str) -> None:
    given = {"dc.alpha": "0"} if method == "feddc" else {"dyn.alpha": "0"}
    run = trained(tmp_path, settings_of(method), given | ({"speed.rho": "0"} if method == "fedspeed" else {}))
    plain = trained(tmp_path, settings_of("fedavg", **UNIFORM), name="plain")
    clients = [sorted((r.folder / "clients").rglob("*.pt"))[0] for r in (run, plain)]
    first = [load_checkpoint(r.client(0, 1)).sha256 for r in (run, plain)]
    assert clients
    assert first[0] == first[1]  # α = 0: FedAvg's local training
    assert hashes(run)[0] != hashes(plain)[0]


def state(path: Path) -> Tensor:
    return torch.cat([t.double().flatten() for t in load_checkpoint(path).state.values()])


@pytest.mark.parametrize(
    ("method", "given"), [("fedavgm", {"avgm.beta": "0"}), ("fednova", {}), ("fedspeed", {"speed.rho": "0"})]
)
def test_what_equals_another_method_up_to_rounding(
    tmp_path: Path, method: str, given: dict[str, str]
) -> None:
    """FedAvgM without momentum, FedNova with equal steps, FedSpeed without ascent (FedDyn)."""
    equal = {"partition": "iid", "clients": 3}
    host = "feddyn" if method == "fedspeed" else "fedavg"
    run = trained(tmp_path, settings_of(method, **equal), given)
    other = trained(tmp_path, settings_of(host, **equal), name="other")
    torch.testing.assert_close(state(run.final), state(other.final), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "method", sorted(set(METHODS) - {"mixup", "stochdepth", "man", "fedsam", "fedasam", "fedwmsam"})
)
def test_one_client_one_full_batch_step_is_a_centralised_step(tmp_path: Path, method: str) -> None:
    """At w = θ_t and with empty memories no term of the parameters has a gradient yet."""
    off = {
        "moon.mu": "0", "gradaug.mu": "0", "fedalign.mu": "0", "speed.rho": "0", "sam.rho": "0",
        "cm.alpha": "1", "smoo.rho": "0", "gloss.local_rho": "0", "gf.rho": "0", "toga.rho": "0",
        "ntd.beta": "0", "lc.tau": "0", "decorr.beta": "0",
    }  # fmt: skip
    given = {name: value for name, value in off.items() if name in options(method)}
    settings = settings_of(
        method, clients=1, partition="iid", batch_size=150, rounds=1, weight_decay=0.0, head=False
    )
    run = trained(tmp_path, settings, given)
    federation = prepare(settings, given)
    model, data = federation.model.train(), federation.dataset.train
    rows = federation.rows[0]
    loss = torch.nn.functional.cross_entropy(
        model(federation.pipeline.test(data.images, rows)), data.labels[rows]
    )
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    sent = load_checkpoint(run.client(0)).state
    dynamic = ("feddyn", "fedspeed", "fedsmoo", "fedgloss", "fedtoga")
    alpha = 0.01 if method in dynamic else 0.0  # α(w − θ): half in the loss, half decay
    assert alpha == float(options(method).get("dyn.alpha", 0.0))
    for name, p, g in zip(names, parameters, gradients, strict=True):
        torch.testing.assert_close(sent[name], (p - settings.lr * g).detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", STATEFUL)
def test_memory_survives_an_interruption(tmp_path: Path, method: str) -> None:
    settings = settings_of(method, rounds=3, participation=0.7, momentum=0.5)
    whole = trained(tmp_path, settings, name="whole")
    run = interrupted(tmp_path, settings)
    resumed(tmp_path, settings)
    assert hashes(run, 3) == hashes(whole, 3)


@pytest.mark.parametrize(
    "method",
    [
        "fedprox+man",
        "fedsam",
        "fedasam+man",
        "feddc",
        "fedspeed",
        "scaffold",
        "fedcurv",
        "fedbn+fedfor",
        "fednova",
        "fedcm+fedsam",
        "fedsmoo",
        "scaffold+fedlesam",
        "fedgf",
        "fedtoga",
        "fedwmsam",
        "fedmoswa",
        "fedlc+feddecorr",
        "fedrs",
    ],
)
def test_a_stack_is_its_clients_one_by_one(tmp_path: Path, method: str) -> None:
    given = {"prox.mu": "0.5"} if "fedprox" in method else {}
    runs = [
        trained(tmp_path, settings_of(method, partition="iid", stack=k), given, f"stack{k}") for k in (1, 3)
    ]
    torch.testing.assert_close(state(runs[0].final), state(runs[1].final), rtol=1e-4, atol=1e-5)


def test_methods_that_train_alone_refuse_a_stack() -> None:
    for method in ("moon", "mixup", "stochdepth", "gradaug", "fedalign", "fedntd", "fedsol"):
        with pytest.raises(UserError, match="--stack"):
            prepare(settings_of(method, model="resnet_digits", stack=2), {})
    with pytest.raises(UserError, match="leave --compile out"):
        prepare(settings_of("stochdepth", compile=True), {})


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("fedprox", {"prox.form": "norm", "prox.split": "weight_decay"}, "unsquared norm"),
        ("gradaug", {"gradaug.resolutions": "8,many"}, "a list of sides"),
        ("gradaug", {"gradaug.resolutions": "8,0"}, "a list of sides"),
        ("gradaug", {"gradaug.n": "1.5"}, "a whole number from 1 to 16"),
        ("fedalign", {"fedalign.width": "1.5"}, "from 0.01 to 1"),
        ("stochdepth", {"sd.keep": "0"}, "from 1e-06 to 1"),
        ("man", {"man.taps": "tiny_main"}, "for --model convnet_tiny_gn"),
        ("gradaug", {"gradaug.mu": "some"}, "auto or a finite number"),
        ("fednova+fedprox", {"prox.form": "norm"}, "prox.form=squared and prox.skip=never"),
        ("fedadam", {"adam.beta2": "1"}, "from 0 to below 1"),
        ("fedgf", {"gf.window": "60"}, "a whole number from 1 to 50"),
        ("ema", {"ema.beta": "1"}, "from 0 to below 1"),
    ],
)
def test_options_that_make_no_sense(method: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare(settings_of(method), given)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("feddyn", {"weights": "n_k"}, "is trained with --weights uniform"),
        ("feddc", {"weights": "n_used"}, "is trained with --weights uniform"),
        ("fedwmsam", {"weights": "n_k"}, "is trained with --weights uniform"),
        ("fednova", {"optimizer_state": "client", "momentum": 0.9}, "with --optimizer-state round: a_k"),
        ("scaffold", {"optimizer_state": "client", "momentum": 0.9}, "with --optimizer-state round"),
        ("fedcm+fedsam", {"optimizer_state": "client", "momentum": 0.9}, "with --optimizer-state round: Δ_t"),
        ("feddc", {"optimizer_state": "client", "momentum": 0.9}, "with --optimizer-state round"),
        ("scaffold", {"optimizer": "adam"}, "--optimizer sgd, or --set scaffold.option=I: its control"),
        ("feddc+man", {"optimizer": "adamw"}, "with --optimizer sgd: its control variates are mean"),
        ("fedmoswa", {"optimizer": "adam"}, "with --optimizer sgd"),
        ("fedwmsam", {"optimizer": "adam"}, "with --optimizer sgd"),
        ("fednova", {"optimizer": "adam"}, "with --optimizer sgd: a_k"),
        ("fedcm+fedsam", {"optimizer": "adam"}, "with --optimizer sgd: Δ_t"),
        ("fedfor", {"optimizer": "adam"}, "or --set fedfor.grad_scale=none"),
        ("fedcm", {"stragglers": 0.5}, "is trained with --stragglers 0: it divides"),
        ("fedwmsam", {"stragglers": 0.5}, "is trained with --stragglers 0: it divides"),
        ("fedtoga", {"stragglers": 0.5}, "is trained with --stragglers 0: it divides"),
        ("scaffold", {"stragglers": 1.0, "reading": "code"}, "--stragglers 0, or --set cv.steps=actual"),
        ("moon", {"model": "mlp_digits"}, "which mlp_digits cannot have; .* --no-head"),
    ],
)
def test_settings_that_a_method_cannot_have(method: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare(settings_of(method, **changes), {})


def test_adam_goes_with_what_reads_no_path_of_sgd(tmp_path: Path) -> None:
    bound = {
        name
        for name, record in METHODS.items()
        if "optimizer" in [r.setting for r in record.required_settings]
    }
    assert bound == {"scaffold", "feddc", "fednova", "fedcm", "fedwmsam", "fedmoswa", "fedfor"}
    settings = settings_of("scaffold", optimizer="adam", lr=0.01, rounds=1)
    run = trained(tmp_path, settings, {"scaffold.option": "I"}, "adam")
    assert state(run.final).isfinite().all()


@pytest.mark.parametrize("method", ["stochdepth", "gradaug", "fedalign"])
def test_what_needs_a_residual_network_says_so(method: str) -> None:
    with pytest.raises(UserError, match="residual"):
        prepare(settings_of(method, model="mlp_digits"), {})


# Who goes with whom (the rows of spec section 3)

SERVER = ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "fednova")
AVERAGES = ("swa", "ema")
LEGAL = [
    *(f"{host}+man" for host in METHODS if host != "man"),
    *(f"fedbn+{host}" for host in ("fedprox", "feddyn", "fedcurv", "fedfor", "moon", "fedsam", "mixup")),
    *(f"{host}+{ascent}" for host, ascent in product(("fedavg", "fedprox"), ("fedsam", "fedasam"))),
    *(f"{host}+mixup" for host in METHODS if host != "mixup"),
    *(f"{host}+stochdepth" for host in METHODS if host not in ("stochdepth", "gradaug", "fedalign")),
    *(
        f"{server}+{host}"
        for server, host in product(
            SERVER,
            ("fedavg", "fedprox", "moon", "mixup", "stochdepth", "gradaug", "fedalign", "fedsam", "fedasam",
             "fedcurv", "fedfor", "man"),
        )
    ),
    *(
        f"{host}+fedsam"
        for host in (
            "fedcm",
            "scaffold",
            "feddyn",
            "fedacg",
            "fedexp",
            "fedlc",
            "fedrs",
            "feddecorr",
            "fedntd",
        )
    ),
    *(f"{host}+fedlesam" for host in ("fedavg", "fedcm", "scaffold", "feddyn", "fedacg", "fedexp")),
    *(f"{host}+{average}" for average in AVERAGES for host in METHODS if host not in AVERAGES),
    "fedavgm+fedprox+mixup",
    "fedbn+fedprox+man",
]  # fmt: skip


def test_every_legal_pair_adds_up_in_either_order() -> None:
    for text in LEGAL:
        there, back = parse(text), parse("+".join(reversed(text.split("+"))))
        assert {o.name for o in there.options} == {o.name for o in back.options}
        assert len({o.name for o in there.options}) == len(there.options)
        assert len(there.task_terms) == len(back.task_terms)


def test_every_other_pair_with_a_server_rule_is_refused() -> None:
    ruled = ("feddyn", "feddc", "fedspeed", "scaffold", "fedbn", "fedgloss", "fedexp", "fedacg", "fedswa")
    for server, host in product(SERVER, ruled):
        with pytest.raises(UserError):
            parse(f"{server}+{host}")
    for pair in (
        "fedlesam+fedsam",
        "fedgf+fedasam",
        "fedsol+fedlesam",
        "swa+ema",
        "fedbn+fedexp",
    ):
        with pytest.raises(UserError):
            parse(pair)


@pytest.mark.parametrize(
    "method",
    [
        "fedasam+man", "feddc+man", "fedspeed+man", "moon+man", "gradaug+man", "fedalign+man+mixup",
        "stochdepth+mixup+moon", "fedbn+moon", "fedbn+fedsam", "fedbn+fedcurv", "fedadam+fedalign",
        "fednova+fedprox", "fedprox+fedsam", "fedyogi+fedcurv+man", "scaffold+stochdepth",
        "fedbn+fedcm+ema", "fedexp+fedntd+fedlc", "fedgloss+swa", "fedmoswa+feddecorr+mixup", "fedacg+fedsol",
    ],
)  # fmt: skip
def test_sums_train(tmp_path: Path, method: str) -> None:
    run = trained(tmp_path, settings_of(method, model="resnet_digits"))
    assert all(m.loss is not None for m in run.metrics())
    assert all(torch.isfinite(state(path)).all() for path in (run.final, run.after_round(1)))


# Positions


def test_the_full_networks_pass_alone_feeds_man(tmp_path: Path) -> None:
    """What GradAug, FedAlign and MOON run besides is not counted: at strength zero MAN is MAN."""
    off = {"gradaug": "gradaug.mu", "fedalign": "fedalign.mu", "moon": "moon.mu"}
    for method, name in off.items():
        head = {"head": method == "moon"}
        given = {name: "0"} | ({"fedalign.clip": "0"} if method == "fedalign" else {})
        both = settings_of(f"{method}+man", rounds=1, **head)
        man = settings_of("man", rounds=1, **RESIDUAL, **head)
        runs = [trained(tmp_path, both, given, method), trained(tmp_path, man, {}, f"{method}-alone")]
        assert hashes(runs[0], 1) == hashes(runs[1], 1)


def test_at_a_constant_rate_the_first_rounds_is_this_rounds() -> None:
    """Both are means over a path on which FedMoSWA's rate falls."""
    constant = settings_of("fedmoswa", lr_decay=1.0)
    assert hashes_of(constant) == hashes_of(constant, {"cv.lr": "initial"})


@pytest.mark.parametrize(("given", "same"), [("both", False), ("first", True)])
def test_which_passes_of_sam_move_batchnorm(tmp_path: Path, given: str, same: bool) -> None:
    """One step: the statistics of FedAvg's step, or those of two passes."""
    one = {"clients": 1, "partition": "iid", "batch_size": 150, "rounds": 1, **RESIDUAL}
    sam = trained(tmp_path, settings_of("fedsam", **one), {"sam.bn": given}, "sam")
    plain = trained(tmp_path, settings_of("fedavg", **one), name="plain")
    buffers = [
        torch.cat([t.flatten() for n, t in load_checkpoint(r.final).state.items() if "running" in n])
        for r in (sam, plain)
    ]
    assert torch.equal(*buffers) == same


def test_fedalign_clips_where_the_user_does_not(tmp_path: Path) -> None:
    runs = {}
    for name, clip, given in (("own", None, {"fedalign.clip": "0.1"}), ("set", 0.1, {"fedalign.clip": "0"})):
        runs[name] = trained(tmp_path, settings_of("fedalign", rounds=1, clip=clip), given, name)
    off = trained(tmp_path, settings_of("fedalign", rounds=1), {"fedalign.clip": "0"}, "off")
    assert hashes(runs["own"], 1) == hashes(runs["set"], 1) != hashes(off, 1)


def test_personal_batchnorm_stays_and_the_rest_is_shared(tmp_path: Path) -> None:
    run = trained(tmp_path, settings_of("fedbn", participation=0.7, rounds=3))
    layout = Memory.after(run.folder / "state", 2 * 2 * (8 + 8 + 8 + 16 * 3 + 32 * 3), 3)
    names = {name for name in load_checkpoint(run.final).state if "running" in name}
    for record in run.metrics():
        round = int(str(record.round))
        for client in list(record.clients):
            sent = load_checkpoint(run.client(client, round)).state
            kept = layout.recall(client)
            assert kept is not None
            latest = max(int(str(m.round)) for m in run.metrics() if client in m.clients)
            if round == latest:
                personal = torch.cat([sent[n].flatten() for n in sent if n in names])
                assert torch.isin(personal, kept).all()
    curv = trained(tmp_path, settings_of("fedbn+fedcurv", rounds=1), name="curv")
    parameters = sum(p.numel() for p in prepare(settings_of("fedbn"), {}).model.parameters())
    shared = parameters - layout.width // 2
    assert curv.metrics()[0].bytes_up == 4 * 3 * 3 * shared  # w, F, F⊙w of three clients
    traffic = run.metrics()[0].bytes_up
    flat = sum(t.numel() for t in load_checkpoint(run.final).state.values() if t.is_floating_point())
    assert traffic == 4 * 2 * (flat - layout.width)


def test_traffic_and_state_are_the_tables() -> None:
    """Vectors of P beyond the model that go down, go up, and stay (spec section 0.6)."""
    expected = {
        "fedavg": (0, 0, 0), "fedprox": (0, 0, 0), "moon": (0, 0, 1), "feddyn": (0, 0, 1), "feddc": (1, 1, 2),
        "fedspeed": (0, 0, 1), "scaffold": (1, 1, 1), "fedcurv": (2, 2, 2), "fedfor": (1, 0, 0),
        "fedavgm": (0, 0, 0), "fedadam": (0, 0, 0), "man": (0, 0, 0), "fedsam": (0, 0, 0),
        "fedcm": (1, 0, 0), "fedsmoo": (1, 1, 2), "fedlesam": (0, 0, 1), "fedtoga": (1, 0, 1),
        "fednsam": (0, 0, 0), "fedmoswa": (1, 1, 1), "swa": (0, 0, 0), "fedntd": (0, 0, 0),
        "fedlc": (0, 0, 0), "feddecorr": (0, 0, 0), "fedacg": (0, 0, 0),
        # one of each of these is a number, or of FedWMSAM's broadcast
        "fedgf": (2, 1, 0), "fedgloss": (1, 0, 1), "fedexp": (0, 1, 0), "fedwmsam": (3, 2, 1),
    }  # fmt: skip
    for name, counts in expected.items():
        record = METHODS[name]
        assert (len(record.broadcast), len(record.uploads), len(record.memory)) == counts, name
    nova = METHODS["fednova"].uploads
    assert [v.name for v in nova if not v.replaces_model] == ["nova.a"]  # P + 1


def test_feddc_and_scaffold_keep_their_books(tmp_path: Path) -> None:
    """The server's memory is the mean over all clients of theirs, also when some have never taken part."""
    for method, mine, theirs in (("scaffold", "scaffold.c_k", "scaffold.c"), ("feddc", "dc.g_k", "dc.g")):
        settings = settings_of(method, partition="iid", clients=5, participation=0.6, rounds=3)
        run = trained(tmp_path, settings, name=method)
        size = 2410
        memory = Memory.after(run.folder / "state", size * len(METHODS[method].memory), 3)
        place = [v.name for v in METHODS[method].memory].index(mine)
        rows = [memory.recall(client) for client in range(5)]
        found = [torch.zeros(size) if r is None else r[place * size : (place + 1) * size] for r in rows]
        assert sum(r is None for r in rows) < 3
        mean = torch.stack(found).double().mean(0)
        torch.testing.assert_close(memory.server(3)[theirs], mean, rtol=0, atol=1e-6)


def _memory(run: RunFolder, method: str, round: int) -> Memory:
    held = len(METHODS[method].memory)
    return Memory.after(run.folder / "state", 2410 * held, round)


def test_fedmoswas_c_goes_to_the_mean_of_those_that_took_part(tmp_path: Path) -> None:
    settings = settings_of("fedmoswa", partition="iid", clients=5, participation=0.6)
    runs = [
        trained(tmp_path, settings.model_copy(update={"rounds": rounds}), name=f"r{rounds}")
        for rounds in (2, 3)
    ]
    before, after = (_memory(run, "fedmoswa", rounds) for run, rounds in zip(runs, (2, 3), strict=True))
    rows = [after.recall(client) for client in runs[1].metrics()[-1].clients or ()]
    mean = torch.stack([row for row in rows if row is not None]).double().mean(0)
    assert len(rows) == 3
    wanted = 0.6 * before.server(2)["scaffold.c"] + 0.4 * mean
    torch.testing.assert_close(after.server(3)["scaffold.c"], wanted, rtol=0, atol=1e-6)


def test_a_mean_gradient_is_one_whatever_the_local_rate_is(tmp_path: Path) -> None:
    """With all clients FedWMSAM's momentum after a round is its c; under FedSWA's falling rate, too."""
    for name in ("fedwmsam", "fedwmsam+fedswa"):
        settings = settings_of(name, clients=4, participation=1.0, partition="dirichlet_equal", rounds=1)
        server = _memory(trained(tmp_path, settings, name=name), "fedwmsam", 1).server(1)
        torch.testing.assert_close(server["wm.momentum"], server["wm.c"], rtol=1e-4, atol=1e-6)


def test_published_scaffold_gives_every_client_as_many_steps(tmp_path: Path) -> None:
    settings = settings_of("scaffold", reading="code", alpha=0.3, batch_size=10)
    federation = prepare(settings, {})
    sizes = [len(rows) for rows in federation.rows]
    assert len({-(-size // 10) for size in sizes}) > 1
    run = trained(tmp_path, settings, federation=federation)
    assert run.metrics()[0].gradients == 3 * 5  # ⌈50/10⌉ steps by each of three
    plain = trained(tmp_path, settings.model_copy(update={"reading": "paper"}), name="paper")
    assert plain.metrics()[0].gradients == sum(-(-size // 10) for size in sizes)


# Two quadratics ½w² and ½·4(w − 3)²: the federation's optimum is 2.4, FedAvg's fixed point is not


def federated(method: str, rounds: int = 400, **given: Any) -> float:
    """Return θ after rounds of 5 local steps at rate 0.05, the records' own terms in plain scalars."""
    record, clients = METHODS[method], ((1.0, 0.0), (4.0, 3.0))
    zero = torch.zeros(1, dtype=torch.float64)
    chosen = options(method, **given)
    theta, memory = zero.clone(), [{v.name: zero for v in record.memory} for _ in clients]
    state_ = {v.name: zero for v in record.server_state}
    for round in range(1, rounds + 1):
        received = {n: state_[n] for n in record.broadcast}
        sums: dict[str, Tensor] = {}
        ends = []
        for k, (a, b) in enumerate(clients):
            w = theta.clone()
            parts = {"memory": memory[k], "received": received, "lr": torch.tensor(0.05)}

            def slope(w: Tensor, keep_buffers: bool = False, a: float = a, b: float = b) -> Tensor:
                return a * (w - b)

            for _ in range(5):
                at = step(method, w, theta, parts, **given)
                rows = step(method, w[None], theta[None], parts, **given)
                g = record.gradient_at(slope, stacked(rows))[0] if record.gradient_at else slope(w)
                leaf = w.clone().requires_grad_()
                leaf_at = step(method, leaf, theta, parts, **given)
                for term in record.parameter_terms:
                    g = g + torch.autograd.grad(term(leaf_at), leaf)[0]
                for correction in record.after_clip:
                    g = g + correction(stacked(at))
                w = w - 0.05 * g
            end = ending(
                method, w[None], theta[None], steps=5, lr=0.05, received=received, given=given,
                memory={n: v[None] for n, v in memory[k].items()},
            )  # fmt: skip
            done = {n: v[0] for finish in record.finish for n, v in finish(end).items()}
            memory[k] = {n: done[n] for n in memory[k]}
            sums = {n: sums.get(n, zero) + v for n, v in done.items()}
            ends.append(w)
        mean = torch.stack(ends).mean(0)
        if record.server:
            at_server = serving(
                method, mean, theta, state_, participants=2, clients=2, sums=sums, round=round, given=given
            )
            theta, state_ = record.server(at_server)
        else:
            theta = mean
    assert chosen
    return theta.item()


@pytest.mark.parametrize(
    ("method", "given", "value"),
    [
        ("fedprox", {"prox_mu": 0.5}, 2.2454),
        ("fedprox", {"prox_mu": 0.0}, 2.2447),
        ("feddyn", {"dyn_alpha": 0.5}, 2.4),
        ("feddyn", {"dyn_alpha": 0.5, "dyn_quadratic": "loss"}, 2.4),
        ("feddc", {"dc_alpha": 0.5}, 2.4),
        ("scaffold", {}, 2.4),
        ("fedspeed", {"dyn_alpha": 0.5, "speed_rho": 0.0}, 2.4),
    ],
)
def test_the_pair_of_quadratics(method: str, given: dict[str, Any], value: float) -> None:
    assert federated(method, **given) == pytest.approx(value, abs=5e-5)
