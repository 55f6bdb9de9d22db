"""Small networks and samples for losses along paths."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

State = dict[str, Tensor]


def samples(count: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return noisy pictures of three patterns, and which each is of."""
    patterns = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(123), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(3, (count,), generator=generator)
    noise = torch.randn(count, 1, 4, 4, generator=generator, dtype=torch.float64)
    return patterns[targets] + noise, targets


def network(norm: bool = False) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 6), nn.ReLU()]
    if norm:
        layers.insert(1, nn.BatchNorm2d(4))
    return nn.Sequential(*layers, nn.Linear(6, 3)).double().eval()


def trained(count: int, norm: bool = False, steps: int = 100) -> tuple[nn.Module, list[State]]:
    """Return a network and the states of several, each trained from its own start on samples of its own."""
    states = []
    for seed in range(count):
        torch.manual_seed(seed)
        model = network(norm).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        inputs, targets = samples(seed=seed)
        for _ in range(steps):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        states.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return network(norm), states


@torch.no_grad()
def losses(model: nn.Module, state: State, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the samples' losses of a state, the plain way."""
    own = copy.deepcopy(model).eval()
    own.load_state_dict(state)
    return cross_entropy(own(inputs), targets, reduction="none")


def between(one: State, other: State, t: float) -> State:
    """Return a state on the line: means linear, variances geometric."""
    return {
        name: tensor
        if not tensor.is_floating_point()
        else tensor ** (1 - t) * other[name] ** t
        if name.endswith("running_var")
        else torch.lerp(tensor, other[name], t)
        for name, tensor in one.items()
    }
