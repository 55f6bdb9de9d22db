"""Images with their classes, as a pretrained network's own image processor prepares them.

A folder is ``CLASS/FILE``, or ``train/CLASS/FILE`` beside ``test/CLASS/FILE``; or a data set that Hugging
Face's ``save_to_disk`` wrote, with a column of images and one of labels.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedscope import pretrained
from fedscope.errors import UserError, shortened
from fedscope.extras import needed

_LAYOUT = "CLASS/FILE, or train/CLASS/FILE beside test/CLASS/FILE, or a data set of save_to_disk"
_SAVED = ("dataset_dict.json", "state.json")
_BATCH = 64  # images that are prepared at once


def pictures(path: Path, model: str) -> tuple[dict[str, tuple[Tensor, Tensor]], tuple[str, ...]]:
    """Return inputs (N, C, H, W) float32 and classes (N,) by split, and the classes' names.

    ``model`` is the network ``hf:NAME`` whose processor prepares them.
    """
    parts = _loaded(path)
    names = _classes(parts, path)
    processor, found = _processor(model, path), dict[str, tuple[Tensor, Tensor]]()
    for split in ("train", "test"):
        if split in parts:
            part = parts[split]
            image, label = _columns(part.features, path)
            images = [
                _prepared(processor, part[at : at + _BATCH][image]) for at in range(0, len(part), _BATCH)
            ]
            found[split] = torch.cat(images), _labels(part[label], f"images:{path}, {split}")
    return found, names


def _labels(column: Iterable[int | None], where: str) -> Tensor:
    """Return the classes of all rows (N,)."""
    numbers = torch.tensor([-1 if number is None else int(number) for number in column], dtype=torch.int64)
    without = (numbers < 0).nonzero().flatten().tolist()
    if without:
        raise UserError(f"{where}: row {without[0]} has no label; leave such rows out")
    return numbers


def _loaded(path: Path) -> Mapping[str, Any]:
    with needed("train", f"images:{path}"):
        from datasets import disable_progress_bars, load_dataset, load_from_disk
        from PIL import Image
    disable_progress_bars()
    saved = any((path / name).is_file() for name in _SAVED)
    known = Image.registered_extensions()
    if not saved and not any(file.suffix.lower() in known for file in path.rglob("*")):
        raise UserError(f"images:{path} holds no images; it takes a folder of {_LAYOUT}")
    try:
        if saved:
            loaded: Any = load_from_disk(str(path))
        else:
            loaded = load_dataset("imagefolder", data_dir=str(path.absolute()))
    except Exception as error:  # whatever it makes of another folder
        raise UserError(f"images:{path} is no folder of {_LAYOUT}: {shortened(error)}") from error
    parts = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    if not len(parts.get("train", ())):
        raise UserError(f"images:{path} has the splits {', '.join(parts)}; one must be train")
    return parts


def _classes(parts: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    features = {split: parts[split].features for split in ("train", "test") if split in parts}
    names = {split: tuple(found[_columns(found, path)[1]].names) for split, found in features.items()}
    if len(set(names.values())) > 1:
        train, test = (", ".join(names[split]) for split in ("train", "test"))
        raise UserError(
            f"images:{path}: train has the classes {train}, test has {test}; cast both to one ClassLabel"
        )
    return names["train"]


def _columns(features: Mapping[str, Any], path: Path) -> tuple[str, str]:
    images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    labels = [name for name, kind in features.items() if type(kind).__name__ == "ClassLabel"]
    if len(images) != 1 or len(labels) != 1:
        raise UserError(
            f"images:{path} needs one column of images and one of labels; it has {', '.join(features)}; "
            f"a folder may be {_LAYOUT}"
        )
    return images[0], labels[0]


def _processor(model: str, path: Path) -> Any:
    with needed("transformers", f"images:{path}"):
        from transformers import AutoImageProcessor
        from transformers.utils import logging
    pretrained.sought(model)
    name, level = pretrained.name(model), logging.get_verbosity()
    try:
        logging.set_verbosity_error()
        return AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # whatever its files, or the hub, make of it
        reason = shortened(error)
        raise UserError(
            f"images:{path}: {name} has no image processor that can be loaded ({reason})"
        ) from error
    finally:
        logging.set_verbosity(level)


def _prepared(processor: Any, images: list[Any]) -> Tensor:
    found: Tensor = processor([image.convert("RGB") for image in images], return_tensors="pt")["pixel_values"]
    return found.float()
