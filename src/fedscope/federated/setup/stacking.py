"""How many clients are trained as one stack where the settings do not say: the rule of ``--stack auto``.

A stack changes the last bits, so the number follows from the settings and the data alone, never from a
measured time, the machine or the number of workers. Stacks gain where a client's step is so small that most
of its time is PyTorch's own; within the bounds below they were at least 1.4 times as fast. Convolutions with
weights of each client's own are slower together.
"""

from collections import Counter
from collections.abc import Sequence, Sized

from torch import nn

from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.record.method import Method
from fedscope.federated.record.network import is_dense
from fedscope.federated.setup.local_work import full_work

LEAST, MOST = 16, 64  # clients of a stack
PARAMETERS = 100_000  # of the network, at most: the vectors of a stack stay near the processor
PRODUCTS = 8_000_000  # parameters times batch, at most: more keep a processor busy with one client
STEPS = 1_000  # of all clients in all rounds, at least: the first stack loads a second's worth of code
BYTES = 256 << 20  # that the vectors and the batches of a stack may take
VECTORS = 10  # per client, as long as the parameters: model, gradient, momentum, a method's own, temporaries


def automatic_stack(settings: Settings, method: Method, model: nn.Module, rows: Sequence[Sized]) -> int:
    """Return the size of the stacks in which clients with these ``rows`` train; 1: each by itself.

    All of a round's equally large clients make one stack, or several of one size, at least two from 32
    clients on, which two workers then share.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    batch = min(settings.batch_size, max(map(len, rows)))
    together = _together(settings, rows)
    fits = BYTES // (4 * VECTORS * (size + batch * _widest(model)))
    parts = max(-(-together // MOST), min(2, together // LEAST), 1)
    stack = min(-(-together // parts), fits)
    small = size <= PARAMETERS and size * batch <= PRODUCTS
    plain = settings.precision == "fp32" and not settings.compile and not method.trains_alone
    pays = plain and small and is_dense(model) and _steps(settings, rows) >= STEPS
    return stack if pays and stack >= LEAST else 1


def _widest(model: nn.Module) -> int:
    layers = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    return max((max(layer.in_features, layer.out_features) for layer in layers), default=0)


def _participants(settings: Settings) -> float:
    sampled = settings.clients if settings.sampling == "all" else settings.clients * settings.participation
    return min(sampled, settings.clients_limit or sampled)


def _together(settings: Settings, rows: Sequence[Sized]) -> int:
    """Return how many participants of a round have a participant's size and work, itself among them.

    The mean over participants and rounds, Σ_s n_s²/N · m/N: of N clients n_s have s samples, and m take part,
    less the stragglers.
    """
    alike = sum(count**2 for count in Counter(map(len, rows)).values())
    share = _participants(settings) * (1 - settings.stragglers) / len(rows)
    return int(alike / len(rows) * share + 1e-9)


def _steps(settings: Settings, rows: Sequence[Sized]) -> float:
    passes = sum(-(-len(held) // settings.batch_size) for held in rows) / len(rows)
    per_epoch = 1.0 if settings.local_steps else min(passes, settings.steps_limit or passes)
    return settings.rounds * _participants(settings) * full_work(settings) * per_epoch
