"""The GPT-2 of ``commands.py``: 2 million parameters, on chains of words.

    python command_networks.py STEPS FILE.pt

writes its weights after STEPS steps of Adam. Of 512 words each has four that follow it nine times in ten.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn

WORDS, SEQUENCES, LENGTH, BATCH = 512, 32, 64, 16


class NextWord(nn.Module):
    """Ids (B, T) ↦ logits (B, V, T − 1) of the words that follow."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        still: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        torch.manual_seed(0)
        self.own = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=WORDS, n_positions=LENGTH, n_embd=160, n_layer=6, n_head=4, bos_token_id=0,
                eos_token_id=0, attn_implementation="eager", **still,
            )
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        """Return them."""
        logits: Tensor = self.own(input_ids=ids, use_cache=False).logits
        return logits[:, :-1].transpose(1, 2)


def gpt2() -> nn.Module:
    """Return the network before its training."""
    return NextWord()


def text() -> list[tuple[Tensor, Tensor]]:
    """Return the batches: ids, and the words that follow."""
    draws = torch.Generator().manual_seed(1)
    follow = torch.randint(WORDS, (WORDS, 4), generator=draws)
    columns = [torch.randint(WORDS, (SEQUENCES,), generator=draws)]
    for _ in range(LENGTH - 1):
        chosen = follow[columns[-1], torch.randint(4, (SEQUENCES,), generator=draws)]
        other = torch.randint(WORDS, (SEQUENCES,), generator=draws)
        columns.append(torch.where(torch.rand(SEQUENCES, generator=draws) < 0.9, chosen, other))
    ids = torch.stack(columns, dim=1)
    return [(rows, rows[:, 1:]) for rows in ids.split(BATCH)]


def trained(steps: int) -> nn.Module:
    """Return the network after so many steps on all sequences at once."""
    model, batches = gpt2(), text()
    ids, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids), targets).backward()
        optimizer.step()
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.save(trained(int(sys.argv[1])).state_dict(), sys.argv[2])
