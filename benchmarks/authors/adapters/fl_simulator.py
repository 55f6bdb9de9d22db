"""FL-Simulator, and the programs of FedLESAM and FedWMSAM, which are written into it."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from problem import Problem, State
from programs import clipping_at

NAMES = {  # its argument → the option of fedscope's methods that holds it
    "lamb": ("prox.mu", "dyn.alpha"),
    "lamb1": ("toga.beta",),
    "alpha": ("cm.alpha", "wm.alpha"),
    "rho": ("sam.rho", "speed.rho", "smoo.rho", "lesam.rho", "wm.rho", "toga.rho"),
    "beta1": ("adam.beta1",),
    "beta2": ("adam.beta2",),
    "epsilon": ("adam.eps",),
    "global_learning_rate": ("adam.gamma", "scaffold.gamma"),
}


def run(problem: Problem, entry: str) -> list[State]:
    """Run the server class ``entry``."""
    import server  # type: ignore[import-not-found]
    import utils  # type: ignore[import-not-found]

    settings, states = problem.settings, []
    batches = SimpleNamespace(DataLoader=lambda dataset, **_: problem.loader_of(dataset))

    class Server(getattr(server, entry)):  # type: ignore[misc]
        """The program's server with given participants, whose models are kept instead of tested."""

        def _activate_clients_(self, t: int) -> list[int]:
            return problem.participants[t]

        def _test_(self, t: int, selected_clients: list[int]) -> None:
            states.append(problem.named(self.server_model_params_list.clone()))

        def _save_results_(self) -> None: ...

        def _summary_(self) -> None: ...

    module = problem.network()
    for name in ("client.client", "server.server"):
        loading = import_module(name)
        loading.data = batches  # type: ignore[attr-defined]
        loading.Dataset = lambda x, y, **_: list(zip(x, y, strict=True))  # type: ignore[attr-defined]
    with clipping_at(settings.clip):
        Server(
            device=torch.device("cpu"),
            model_func=problem.network,
            init_model=module,
            init_par_list=utils.get_mdl_params(module),
            datasets=SimpleNamespace(
                client_x=[x for x, _ in problem.clients], client_y=[y for _, y in problem.clients]
            ),
            method=entry,
            args=arguments(problem),
        ).train()
    return states


def arguments(problem: Problem) -> Any:
    """Return the program's arguments for the problem's settings and options."""
    settings = problem.settings
    found: dict[str, Any] = {
        "dataset": "CIFAR10", "total_client": settings.clients, "comm_rounds": settings.rounds,
        "local_epochs": settings.epochs, "batchsize": settings.batch_size,
        "weight_decay": settings.weight_decay, "local_learning_rate": settings.lr,
        "lr_decay": settings.lr_decay, "global_learning_rate": 1.0, "seed": 0, "use_RI": False, "gamma": 1.0,
        "active_ratio": settings.participation, "lamb": 1.0, "method": "", "mode": "", "non_iid": True,
        "split_rule": "", "split_coef": 0.0, "out_file": "out",
        "mean_size": sum(problem.sizes()) / settings.clients,  # which only our patches read
    }  # fmt: skip
    for name, options in NAMES.items():
        for option in options:
            if option in settings.options:
                found[name] = problem.option(option)
    return SimpleNamespace(**found)
