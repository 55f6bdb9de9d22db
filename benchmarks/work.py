"""The work file of a group: what fedscope prepares from the settings, for those who know no fedscope."""

import math
from pathlib import Path

import torch
from workloads import Group

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.setup import federation

COUNTS = ("rounds", "steps", "samples")  # what a contestant reports of the rounds after the first


def write_work(group: Group, data_dir: Path | None, path: Path) -> dict[str, int]:
    """Write what every contestant trains on; return its sizes and what a contestant must report.

    Raises:
        ValueError: the clients are of unequal size, so that contestants that sample others do other work.
    """
    prepared = federation.prepare(parse(Settings, group.settings, "settings"), {}, data_dir)
    settings, data, rows = group.settings, prepared.dataset, prepared.rows
    if len({len(held) for held in rows}) != 1:
        raise ValueError(f"{group.name}: clients of {min(map(len, rows))} to {max(map(len, rows))} samples")
    content = {
        "settings": dict(settings),
        "mean": prepared.pipeline.mean,
        "std": prepared.pipeline.std,
        "train_images": data.train.images[torch.stack(rows)],  # (clients, n, C, H, W)
        "train_labels": data.train.labels[torch.stack(rows)],
        "test_images": data.test.images,
        "test_labels": data.test.labels,
        "classes": len(data.classes),
        "initial": prepared.model.state_dict(),
    }
    torch.save(content, path)
    cohort = math.floor(settings["clients"] * settings["participation"] + 1e-9)
    rounds, held = settings["rounds"] - 1, len(rows[0])
    passes = rounds * cohort * settings["epochs"]
    return {
        "cohort": cohort,
        "samples_per_client": held,
        "test_samples": len(data.test),
        "rounds": rounds,
        "steps": passes * -(-held // settings["batch_size"]),
        "samples": passes * held,
    }
