"""Forged runs, every hash of them right: what was forged, the file that contradicts itself, and the claim."""

import os
import shutil
import zlib
from pathlib import Path

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunFolder
from tests.checkpoints.forging import (
    Forge,
    both,
    copied,
    cut,
    described,
    first,
    measured,
    outdated,
    recounted,
    remembered,
    removed,
    shortened,
    told,
    turned,
    unfinished,
    uninvited,
    weighted,
    worst,
    written,
)
from tests.records.test_round_quantities import DIAGNOSTICS

FORGED: dict[str, tuple[Forge, str, str]] = {
    "created at no time": (described(created="~ soon"), "", "is no time"),
    "diverged long ago": (described(diverged=1), "manifest.json", "would be the last"),
    "diverged and finished": (described(diverged=2), "manifest.json", "finished"),
    "clients deleted": (described(clients_deleted=True), "manifest.json", "some are left over"),
    "another name": (described(name="other"), "manifest.json", "named 'other'"),
    "another seed": (
        lambda run: described(settings=run.manifest().settings.model_copy(update={"seed": 1}))(run),
        "final.pt", "settings",
    ),
    "a round twice": (measured(2, round=1), "metrics.jsonl", "not of round 2"),
    "a cosine above one": (
        measured(1, diagnostics={**DIAGNOSTICS, "server": {"step": 1.0, "cosine": 1.5, "distance": 1.0}}),
        "", "cosine",
    ),
    "negative seconds": (measured(1, seconds=-5.0), "", "seconds"),
    "a round too many": (
        lambda run: run.write_metrics([*run.metrics(), Round(round=3, accuracy=0.0)]),
        "metrics.jsonl", "3 rounds of 2",
    ),
    "a round too few": (cut, "", "1 of 2"),
    "final: missing": (removed("final.pt"), "final.pt", "missing"),
    "last: missing": (both(unfinished, removed("last.pt")), "final.pt", "missing"),
    "last: ahead": (
        both(unfinished, cut), "last.pt", "knows nothing",
    ),
    "final: round": (told("final.pt", round=1), "final.pt", "is of round 1 of 2"),
    "final: average": (told("final.pt", average="all"), "final.pt", "average 'all'"),
    "final: a client's": (told("final.pt", kind="client", client=0), "final.pt", "kind 'client'"),
    "final: of client": (told("final.pt", client=0), "final.pt", "client 0"),
    "final: samples": (told("final.pt", samples=7), "final.pt", "claims 7 samples"),
    "final: weights": (
        weighted("final.pt", lambda state: state["fc2.bias"].add_(1)), "round-0002.pt", "is not the model",
    ),
    "final: of another network": (
        lambda run: told("final.pt", model=run.manifest().model.model_copy(update={"classes": 9}))(run),
        "final.pt", "model",
    ),
    "final: of other data": (
        lambda run: told("final.pt", data=run.manifest().data.model_copy(update={"fingerprint": "0"}))(run),
        "final.pt", "data",
    ),
    "kept: round": (told("round-0002.pt", round=1), "round-0002.pt", "holds round 1"),
    "kept: missing": (removed("round-0002.pt"), "round-0002.pt", "missing"),
    "kept: before its round": (
        both(described(extended=(1,)), shortened),
        "round-0002.pt", "round 2 of 1",
    ),
    "best: not the best": (worst, "best.pt", "was the best"),
    "best: missing": (removed("best.pt"), "best.pt", "missing"),
    "all: round": (told("all.pt", round=1), "all.pt", "round 2 is done"),
    "all: missing": (removed("all.pt"), "all.pt", "missing"),
    "all of a round: average": (
        told("round-0002/all.pt", average="sel"), "round-0002/all.pt", "average 'sel'",
    ),
    "all of a round: missing": (removed("round-0002/all.pt"), "round-0002/all.pt", "missing"),
    "initial: round": (told("initial.pt", round=1), "initial.pt", "holds round 1"),
    "initial: missing": (removed("initial.pt"), "initial.pt", "missing"),
    "anchor: round": (told("round-0002/anchor.pt", round=2), "round-0002/anchor.pt", "holds round 2"),
    "anchor: weights": (
        weighted("round-0001/anchor.pt", lambda state: state["fc2.bias"].add_(1)),
        "round-0001/anchor.pt", "is not the model in initial.pt",
    ),
    "anchor: missing": (removed("round-0001/anchor.pt"), "round-0001/anchor.pt", "missing"),
    "rows: missing": (removed("rows.zz"), "rows.zz", "missing"),
    "rows: others": (written("rows.zz", zlib.compress(bytes(4 * 60))), "rows.zz", "their hash"),
    "rows: larger than said": (written("rows.zz", zlib.compress(bytes(1 << 20))), "rows.zz", "their hash"),
    "rows: counts": (recounted((60, 0, 0)), "rows.zz", "their hash"),
    "rows: none": (described(rows=None), "rows.zz", "says nothing"),
    "rows: a checkpoint's": (told("final.pt", rows="0" * 64), "final.pt", "rows are not the manifest's"),
    "rows: of a round": (copied("rows.zz", "round-0001/rows.zz"), "round-0001/rows.zz", "says nothing"),
    "a client's number": (copied("clients/0000.pt", "clients/0001.pt"), "clients/0001.pt", "holds client 0"),
    "a client's samples": (told("clients/0000.pt", samples=999), "clients/0000.pt", "999 samples"),
    "a client's round": (told("clients/0000.pt", round=9), "clients/0000.pt", "round 9"),
    "a client's copy": (
        lambda run: weighted(f"clients/{first(run):04d}.pt", lambda state: state["fc2.bias"].add_(1))(run),
        "round-000", "is not the model",
    ),
    "a client that took no part": (uninvited, "round-0001/clients/", "took no part"),
    "a client's earlier model": (outdated, "clients/", "took part in round 2"),
    "a client that there is not": (
        both(copied("clients/0000.pt", "clients/0003.pt"), told("clients/0003.pt", client=3)),
        "clients/0003.pt", "there are 3",
    ),
    "a client's model: missing": (removed("clients/0000.pt"), "clients/0000.pt", "missing"),
    "a client's upload: missing": (
        lambda run: removed(f"round-0001/clients/{first(run):04d}.pt")(run), "round-0001/clients/", "missing",
    ),
    "a client too many": (copied("clients/0000.pt", "clients/0003.pt"), "clients/0003.pt", "holds client 0"),
    "state: checks": (remembered("state/round-0002/state.json", checks=[]), "state.json", "no check"),
    "state: no list": (removed("state/round-0002/state.json"), "state.json", "missing"),
    "state: no rows": (removed("latest/round-0002/clients.f32"), "latest/round-0002", "clients.f32"),
    "state: no server": (removed("state/round-0002/server.pt"), "state.json", "server.pt"),
    "state: two servers": (
        copied("state/round-0002/server.pt", "latest/round-0002/server.pt"), "state.json", "no vectors",
    ),
    "state: a turned bit": (turned("state/round-0002/clients.f32"), "state.json", "check"),
    "state: lost before the end": (
        both(unfinished, lambda run: shutil.rmtree(run.folder / "state")), "state/round-0002", "missing",
    ),
    "latest: lost before the end": (
        both(unfinished, lambda run: shutil.rmtree(run.folder / "latest")), "latest/round-0002", "missing",
    ),
    "a tag with content": (written("tags/good", b"x"), "tags/good", "no tag"),
}  # fmt: skip


def forged(honest: RunFolder, root: Path, how: str) -> RunFolder:
    """Return a copy of the honest run, forged; files that are not written again are the same on the disk."""
    run = RunFolder(Path(shutil.copytree(honest.folder, root / honest.name, copy_function=os.link)))
    FORGED[how][0](run)
    return run
