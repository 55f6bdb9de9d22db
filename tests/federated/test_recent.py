"""The trainer's rounds against the second oracle: the methods of 2022 to 2026, in float64."""

from pathlib import Path

import pytest
import torch

from fedscope.federated.methods import parse
from tests.federated import recent
from tests.federated.test_reference import CLIP, MOMENTUM, PAIR, Row, trained_and_toy

DYN = {"dyn.alpha": "0.3"}
FULL = {"speed.server": "active", "speed.alpha": "0.7", "speed.normalised": "false", "speed.rho": "0.2"}
ROWS = [
    Row("fedcm", {"cm.alpha": "0.3"}, CLIP),
    Row("fedcm", {"cm.alpha": "0.3"}, MOMENTUM),
    Row("mofedsam", {"cm.alpha": "0.3", "sam.rho": "0.2"}, CLIP),
    Row("fedspeed", {**DYN, **FULL}, CLIP),
    Row("fedspeed", {**DYN, **FULL, "speed.normalised": "true"}, PAIR),
    Row("fedsmoo", DYN, CLIP),
    Row("fedsmoo", {**DYN, "smoo.rho": "0.3"}, PAIR),
    Row("fedtoga", DYN, CLIP),
    Row("fedtoga", {**DYN, "toga.kappa": "3", "toga.neighbour": "false"}, PAIR),
    Row("fedgloss", {**DYN, "gloss.rho": "0.1"}, CLIP),
    Row("fedgloss", {**DYN, "gloss.rho": "0.1", "gloss.warmup": "2", "gloss.start": "0.02"}),
    Row("fedlesam", {"lesam.rho": "0.5"}, CLIP),
    Row("fedlesam-s", {"lesam.rho": "0.5"}, CLIP),
    Row("fedlesam-d", {**DYN, "lesam.rho": "0.5"}, CLIP),
    Row("fedgf", {"gf.rho": "0.2", "gf.global_rho": "0.3", "gf.threshold": "0.18"}, CLIP),
    Row("fedgf", {"gf.threshold": "0.2", "gf.window": "1"}),
    Row("fedswa", {"swa.gamma": "0.7"}, MOMENTUM),
    Row("fedswa", {"swa.rate_start": "2", "swa.rate_end": "0.5"}),
    Row("fedmoswa", {}, CLIP),
    Row("fedacg", {"acg.beta": "0.1"}, CLIP),
    Row("fednsam", {"sam.rho": "0.2"}, CLIP),
    Row("fedwmsam", {"wm.rho": "0.1"}, CLIP),
    Row("fedwmsam", {"wm.alpha": "0.5"}, PAIR),
    Row("fedntd", {}, CLIP),
    Row("fedntd", {"ntd.beta": "3", "ntd.tau": "2"}),
    Row("fedsol", {}, CLIP),
    Row("fedlc"),
    Row("fedlc", {"lc.tau": "0.3"}, CLIP),
    Row("fedrs", {"rs.alpha": "0.2"}, CLIP),
    Row("feddecorr", {}, CLIP),
    Row("feddecorr", {"decorr.form": "paper", "decorr.beta": "3"}),
    Row("fedexp", {"exp.epsilon": "1e-6"}),
    Row("fedexp", {"exp.epsilon": "0.01", "exp.per_client": "true", "exp.decay": "0.5"}, PAIR),
    Row("swa", {"swa.start": "2"}),
    Row("swa", {"swa.start": "3", "swa.cycle": "2", "swa.end": "0.1"}, {"rounds": 6}),
    Row("swa", {"swa.start": "4", "swa.cycle": "3", "swa.lowest": "before"}, {**MOMENTUM, "rounds": 8}),
    Row("ema", {"ema.beta": "0.6"}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_round_is_the_oracles(row: Row, tmp_path: Path) -> None:
    states, toy, options = trained_and_toy(row, tmp_path, double=True)
    names = [name for name, _ in toy.module.named_parameters()]
    ours = [torch.cat([state[name].flatten() for name in names]) for state in states]
    first, *later = (
        float((a - b).abs().max())
        for a, b in zip(ours, recent.METHODS[row.method](toy, dict(options)).run(), strict=True)
    )
    assert first < 1e-12
    assert max(later) < (2e-8 if parse(row.method).memory else 1e-12)


def test_the_table_has_every_method_of_the_oracle() -> None:
    assert {row.method for row in ROWS} == set(recent.METHODS)
