"""FedAvg the way the papers' scripts run it: a loop over the clients in one process.

Per client a deep copy of the model and a local training; the state dicts are averaged. Kinder than most
scripts: no DataLoader, normalised tensors in memory.
"""

import copy

import torch
from shared import Rounds, accuracy, arguments, network, read_work, train_locally


def main() -> None:
    """Time the rounds after the first."""
    options = arguments(threads={"type": int, "default": 1})
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    work = read_work(options.work)
    settings, model, rounds, score = work.settings, network(work), Rounds(), 0.0
    for _ in range(settings["rounds"]):
        states, steps, samples = [], 0, 0
        for client in torch.randperm(settings["clients"])[: work.cohort].tolist():
            local = copy.deepcopy(model)
            steps += train_locally(local, work.inputs[client], work.labels[client], settings)
            samples += settings["epochs"] * len(work.labels[client])
            states.append(local.state_dict())
        mean = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
        model.load_state_dict(mean)
        score = accuracy(model, work)
        rounds.end(steps, samples)
    rounds.report(accuracy=score)


if __name__ == "__main__":
    main()
