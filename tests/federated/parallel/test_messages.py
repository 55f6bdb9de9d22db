"""Several tensors in one message come out as they went in."""

import torch
from torch import Tensor

from fedscope.federated.parallel.workers import packed, size, unpack


def test_a_message_is_its_tensors_bit_for_bit() -> None:
    numbers = torch.arange(12, dtype=torch.float32).view(3, 4)
    sent: list[Tensor] = [
        torch.tensor([float("nan"), -0.0, 1e-45]),
        torch.tensor(7).expand(1),  # of stride 0
        torch.tensor(2**62 + 1),
        numbers[:, ::2],  # with gaps
        torch.zeros(3, 0),
        torch.tensor([True]),  # what follows begins at an odd byte
        numbers.double().T,
        torch.zeros(0, dtype=torch.int64),
        numbers.bfloat16().requires_grad_(),
    ]
    message = packed(sent)
    assert (message.dtype, len(message)) == (torch.uint8, size(sent))
    found = [torch.full_like(tensor, 1, requires_grad=False) for tensor in map(torch.Tensor.contiguous, sent)]
    unpack(message, found)
    for before, after in zip(sent, found, strict=True):
        assert before.dtype == after.dtype
        same = before.detach().contiguous().numpy(force=True) if before.dtype != torch.bfloat16 else None
        if same is None:
            assert torch.equal(before, after)
        else:
            assert same.tobytes() == after.contiguous().numpy().tobytes()


def test_a_view_is_filled_in_its_place() -> None:
    whole = torch.zeros(2, 4)
    unpack(packed([torch.ones(2, 2)]), [whole[:, 1:3]])
    assert whole.tolist() == [[0, 1, 1, 0]] * 2
