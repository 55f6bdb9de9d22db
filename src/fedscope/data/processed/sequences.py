"""Documents as sequences of tokens, and what follows each token.

A document is tokenised whole, with the tokenizer's own marks and the end-of-text token behind it, and is cut
into windows of T inputs. Every token but the first is predicted exactly once; no window is of two documents.
The last window is padded behind its end: a causal network's other outputs do not see that, and no target
stands there.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedscope import pretrained
from fedscope.data.processed.documents import Document
from fedscope.errors import UserError, shortened
from fedscope.extras import needed
from fedscope.task_loss import IGNORED


def tokenizer(model: str, what: str) -> Any:
    with needed("transformers", what):
        from transformers import AutoTokenizer
    pretrained.sought(model)
    name = pretrained.name(model)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # whatever its files, or the hub, make of it
        reason = shortened(error)
        raise UserError(f"{what}: {name} has no tokenizer that can be loaded ({reason})") from error


def length_for(model: str, asked: int | None, what: str) -> int:
    """Return the tokens of a sequence: ``asked``, or LENGTH but no more than the network has positions."""
    with needed("transformers", what):
        from transformers import AutoConfig
    pretrained.sought(model)
    try:
        config: Any = AutoConfig.from_pretrained(pretrained.name(model), trust_remote_code=False)
    except Exception as error:  # whatever its files, or the hub, make of it
        raise UserError(f"--model {model}: {type(error).__name__}: {shortened(error)}") from error
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int):  # positions that are relative, say
        return asked or pretrained.LENGTH
    if asked and asked > most:
        fitting = f"{what.rpartition(':')[0]}:{most}"
        raise UserError(f"{model} takes sequences of at most {most} tokens; give {fitting} or fewer")
    return asked or min(pretrained.LENGTH, most)


def windows(documents: Sequence[Document], tokens: Any, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs and targets (N, ``length``), and which document each window is of (N,); all int64.

    Targets are the tokens after the inputs', or ``IGNORED`` where the document has ended.
    """
    inputs, targets, owners = list[list[int]](), list[list[int]](), list[int]()
    end = tokens.eos_token_id
    for number, document in enumerate(documents):
        ids = list(tokens(document.text, verbose=False)["input_ids"])
        if end is not None and ids[-1:] != [end]:
            ids.append(end)
        for start in range(0, len(ids) - 1, length):
            piece = ids[start : start + length + 1]
            empty = length + 1 - len(piece)
            inputs.append(piece[:-1] + [0 if end is None else end] * empty)
            targets.append(piece[1:] + [IGNORED] * empty)
            owners.append(number)
    if not owners:
        raise UserError("the documents are too short: each has fewer than two tokens")
    return tuple(torch.tensor(rows, dtype=torch.int64) for rows in (inputs, targets, owners))  # type: ignore[return-value]
