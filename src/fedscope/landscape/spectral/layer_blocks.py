"""λ_max of parts of a network: the largest eigenvalue of each layer's diagonal block of the curvature."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.spectral_results import Eigenpairs

Restricted = Callable[[Sequence[str]], Operator]
"""Patterns of names ↦ the operator of the parameters that match one, see ``LossOperator``."""


def layer_eigenpairs(
    restricted: Restricted,
    layers: Sequence[str],
    *,
    k: int = 1,
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Eigenpairs]:
    """Return the k largest eigenpairs of each layer's block, by pattern.

    By Cauchy's interlacing theorem the j-th value of a block is at most the j-th of the whole. The layers'
    Krylov bases are not kept: ``subspace`` is None. The data's errors are told by the batches.

    Args:
        restricted: makes the operator, such as
            ``lambda names: Hessian(model, loss_fn, batches, parameters=names)``.
        layers: a pattern each, such as ``layer1.*`` (:mod:`fnmatch`).
        k: pairs of each, as many as a small layer has at most.
        tol: residual relative to the layer's own |λ_max|.
        generator: draws the seed of the starting vectors; a layer's does not depend on which others are
            asked for.
        seed: given instead; 0 if neither is given.
        progress: called after every product with the number of all so far.

    Raises:
        UserError: a pattern without a match, k below 1, or both ``generator`` and ``seed``.
    """
    found: dict[str, Eigenpairs] = {}
    seed = seed_of(generator, seed)
    for place, layer in enumerate(layers):
        operator, spent = restricted([layer]), sum(pairs.matvecs for pairs in found.values())
        pairs = top_eigenpairs(
            operator,
            k=min(k, operator.shape[0]),
            tol=tol,
            seed=seed,
            by_sample=False,
            progress=continued(progress, spent, len(layers) - place),
        )
        found[layer] = replace(pairs, subspace=None)  # a basis of each layer would be kept for nobody
    return found


def layer_patterns(names: Sequence[str]) -> list[str]:
    """Return a pattern for each module with own parameters, in order, such as ``layer1.0.bn1.*``.

    A module that has parameters and submodules is taken together with them, which have their own beside it.
    """
    return list(dict.fromkeys(f"{name.rpartition('.')[0]}.*" if "." in name else name for name in names))


def block_patterns(names: Sequence[str]) -> list[str]:
    """Return a pattern for each block of a stack of blocks, in order, such as ``transformer.h.0.*``.

    A block is what stands under a number: one of a transformer's, or of a residual stage's. A module outside
    of such blocks has a pattern of its own, as in :func:`layer_patterns`.
    """
    found = list[str]()
    for name in names:
        parts = name.split(".")
        end = next((place for place, part in enumerate(parts) if part.isdecimal()), None)
        found += layer_patterns([name]) if end is None else [f"{'.'.join(parts[: end + 1])}.*"]
    return list(dict.fromkeys(found))
