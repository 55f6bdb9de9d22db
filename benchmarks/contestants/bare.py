"""The bare loop: forward, cross-entropy, backward, SGD step over fixed batches that lie in memory.

What a plain PyTorch loop gives on this machine: no clients, no shuffling, no data pipeline, no averaging,
no evaluation, no files. A "round" is one pass over the samples that fedscope's clients train on in a round.
"""

import contextlib

import torch
from shared import Rounds, arguments, read_work, sgd
from torch.nn.functional import cross_entropy

from fedscope.models import catalogue

FORMATS = {"default": torch.contiguous_format, "channels_last": torch.channels_last}


def main() -> None:
    """Time the passes after the first."""
    options = arguments(
        precision={"choices": ["fp32", "bf16"], "default": "fp32"},
        memory_format={"choices": list(FORMATS), "default": "default"},
        threads={"type": int, "default": 1},
    )
    torch.set_num_threads(options.threads)
    work, layout = read_work(options.work), FORMATS[options.memory_format]
    settings = work.settings
    generator = torch.Generator().manual_seed(0)
    model = catalogue.build(settings["model"], work.classes, work.inputs.shape[2], generator)
    model.load_state_dict(work.initial)
    model = model.to(memory_format=layout).train()  # type: ignore[call-overload]
    size = settings["batch_size"]
    batches = [
        (inputs.contiguous(memory_format=layout), labels)
        for shard in zip(work.inputs, work.labels, strict=True)
        for inputs, labels in zip(*(tensor.split(size) for tensor in shard), strict=True)
    ]
    rounds, optimizer = Rounds(), sgd(model, settings)
    for _ in range(settings["rounds"]):
        samples = 0
        for inputs, labels in batches * settings["epochs"]:
            optimizer.zero_grad()
            with autocast(options.precision):
                loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            samples += len(labels)
        rounds.end(len(batches) * settings["epochs"], samples)
    rounds.report()


def autocast(precision: str) -> contextlib.AbstractContextManager[None]:
    """Return the context of a forward pass in ``precision``."""
    if precision == "fp32":
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[None] = torch.autocast("cpu", torch.bfloat16)
    return context


if __name__ == "__main__":
    main()
