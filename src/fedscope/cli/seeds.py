"""`fedscope train --seeds`: one run per seed, NAME-s0, NAME-s1…, that are continued together."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedscope.checkpoints.registry.registry import Registry
from fedscope.errors import UserError
from fedscope.federated.parallel import workers


def names(name: str | None, seeds: Sequence[int] | None) -> list[str]:
    """Return what the runs are called; nothing where the name is left to the trainer."""
    if name is None:
        return []
    return [name] if seeds is None else [f"{name}-s{seed}" for seed in seeds]


def each_seed(
    seeds: Sequence[int],
    fields: dict[str, object],
    store: Registry,
    name: str | None,
    train: Callable[..., dict[str, Any]],
    *,
    resume: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the result of ``train`` for every seed; with ``resume``, runs that are there are continued.

    A seed that was not begun before the interruption is trained with the settings of one that was.

    Raises:
        UserError: there is none of the runs to continue; or torchrun starts this.
    """
    if workers.under_torchrun():
        raise UserError("--seeds trains one run after the other; with torchrun start one for each --seed")
    there = [run for run in names(name, seeds) if resume and store.has(run)]
    if resume and not there:
        raise UserError(f"--resume needs the --name of runs such as NAME-s{seeds[0]}; {name} has none")
    suffixes = tuple(f"-s{seed}" for seed in seeds)
    for seed, suffix in zip(seeds, suffixes, strict=True):
        chosen = {**fields, "seed": seed}
        if name is None:
            result = train(chosen, name=None, suffixes=suffixes)
            name = str(result["run"]).removesuffix(suffix)
        else:
            run, like = f"{name}{suffix}", there[0] if there else None
            result = train(chosen, name=run, resume=run in there, like=like)
        yield result
