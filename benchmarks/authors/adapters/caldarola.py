"""The programs of FedSAM and of FedGloSS: a server, and clients that share one model."""

from importlib import import_module
from typing import Any

from problem import Problem, State
from torch import Tensor

# entry → module and class of the client, of the server
CLASSES = {
    "sam": ("sam_client.SAMClient", "fedavg_server.Server"),
    "asam": ("asam_client.ASAMClient", "fedavg_server.Server"),
    "swa": ("client.Client", "fedavg_server.Server"),
    "fedgloss": ("fedgloss_client.FedGloSSClient", "fedgloss_server.FedGloSSServer"),
}
SWA_START = 0  # its round, counted from 0, that begins with setting up the average


def run(problem: Problem, entry: str) -> list[State]:
    """Run the method ``entry``; with ``swa`` the average of models, where there is one."""
    settings = problem.settings
    client_name, server_name = CLASSES[entry]
    model: Any = problem.network()
    model.size, model.device = 0, "cpu"
    clients = [client(problem, client_name, k, model) for k in range(settings.clients)]
    server = server_of(problem, server_name, model)
    states: list[State] = []
    averaged, cycle = 0, int(problem.option("swa.cycle")) if entry == "swa" else 1
    for round, sampled in enumerate(problem.participants):
        server.selected_clients = [clients[k] for k in sampled]
        if entry == "swa" and round == SWA_START:
            server.setup_swa_model()
        if cycle > 1:
            low = settings.lr * problem.option("swa.end")
            schedule = import_module("utils.main_utils").schedule_cycling_lr
            server.update_clients_lr(schedule(round, cycle, settings.lr, low))
        server.train_model(num_epochs=settings.epochs, batch_size=settings.batch_size)
        server.update_model()
        if entry == "swa" and round > SWA_START and (round - SWA_START) % cycle == 0:
            server.update_swa_model(1 / (averaged + 1))
            averaged += 1
        kept: dict[str, Tensor] = server.swa_model.state_dict() if averaged else server.model
        states.append({name: values.clone() for name, values in kept.items()})
    return states


def client(problem: Problem, name: str, k: int, model: Any) -> Any:
    """Return a client of the program, with the problem's batches."""
    settings, options = problem.settings, problem.settings.options
    made = _class("clients", name)
    given: list[Any] = [
        0, k, settings.lr, settings.weight_decay, settings.batch_size, settings.momentum,
        list(zip(*problem.clients[k], strict=True)), [], model,
    ]  # fmt: skip
    if "gloss.rho" in options:
        made.train_transforms = {"problem": lambda images: images}
        given += ["problem", problem.option("gloss.local_rho"), 0.0, 1 / problem.option("dyn.alpha")]
    elif "sam.rho" in options:
        given += [problem.option("sam.rho"), 0.0]
    elif "asam.rho" in options:
        given += [problem.option("asam.rho"), problem.option("asam.offset")]
    found = made(*given, device="cpu")
    found.trainloader = problem.loader(k)
    return found


def server_of(problem: Problem, name: str, model: Any) -> Any:
    """Return the server of the program."""
    made, rounds = _class("servers", name), problem.settings.rounds
    if "gloss.rho" not in problem.settings.options:
        return made(model)
    return made(
        model, "sgd", 1.0, problem.option("gloss.rho"), problem.option("gloss.local_rho"), 0.0, 0, rounds,
        1 / problem.option("dyn.alpha"), problem.settings.clients,
    )  # fmt: skip


def _class(folder: str, name: str) -> Any:
    module, _, found = name.partition(".")
    return getattr(import_module(f"{folder}.{module}"), found)
