"""Files of other programs that ``torch.save`` did not write, and the call that makes one of its files."""

import re
from pathlib import Path

from fedscope.errors import UserError
from fedscope.storage import open_regular

_IN_PARTS = (
    "was written by torch.distributed.checkpoint: convert the folder with `python -m "
    "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER OUT`"
)
_OTHERS = (  # name, first bytes, what it is and how it becomes a checkpoint
    (
        r"$.", rb"\x89HDF\r\n",
        "is HDF5, no file of torch.save: copy its arrays into a network of PyTorch, and write one with "
        "torch.save(network.state_dict(), OUT)",
    ),
    (
        r".*\.(?:mpk|msgpack)", rb"(?!\x89PNG)[\x81-\x8f\xde\xdf]",
        "is MessagePack, no file of torch.save: write one with torch.save(msgpack_load(FILE).coefs, OUT) "
        "(declearn.utils.serialize) or torch.save(Serializer.load(FILE), OUT) (fedbiomed.common.serializer)",
    ),
    (
        r".*\.(?:pbuf|pb|onnx)", rb"$.",
        "is protobuf, no file of torch.save: convert OpenFL's with `fx model save -i FILE -o OUT`",
    ),
    (
        r"$.", rb"(?:Array|ArrayRecord|RecordDict|Message) [0-9a-f]{64}[, ]",
        "is a record that Flower deflated, which names its arrays and does not hold them: write one with "
        "torch.save(result.arrays.to_torch_state_dict(), OUT)",
    ),
    (r".*\.distcp|\.metadata", rb"$.", _IN_PARTS),
)  # fmt: skip


def converted_by(path: Path) -> str:
    """Return what a file is, by its name or first bytes, and how it is converted; "" if unknown."""
    with open_regular(path) as handle:
        start = handle.read(1 << 12)
    return next(
        (said for name, first, said in _OTHERS if re.fullmatch(name, path.name) or re.match(first, start)), ""
    )


def check_whole(folder: Path) -> None:
    """Refuse a folder that torch.distributed.checkpoint wrote."""
    if (folder / ".metadata").is_file():
        raise UserError(f"{folder} {_IN_PARTS}")
