"""Flower: a ServerApp with FedAvg and the Simulation Runtime, one Ray actor of one CPU per core.

Data and network stay in the actors; the server evaluates centrally after each round and its clock counts.
"""

import torch
from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from shared import Rounds, accuracy, arguments, network, read_work


def totals(replies: list[RecordDict], _weight: str) -> MetricRecord:
    """Add up the clients' counts."""
    return MetricRecord({name: sum(r["metrics"][name] for r in replies) for name in ("steps", "samples")})


class Counting(FedAvg):
    """FedAvg that keeps the counts of the round for the clock."""

    counts: MetricRecord

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.counts = metrics
        return arrays, metrics


def main() -> None:
    """Time the rounds after the first."""
    options = arguments(actors={"type": int, "default": 2})
    torch.set_num_threads(options.actors)  # of the server, which evaluates while the actors wait
    work = read_work(options.work)
    settings, model, rounds, scores = work.settings, network(work), Rounds(), [0.0]
    strategy = Counting(
        fraction_train=settings["participation"],
        fraction_evaluate=0.0,
        min_train_nodes=work.cohort,
        min_available_nodes=settings["clients"],
        train_metrics_aggr_fn=totals,
    )

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        scores.append(accuracy(model, work))
        if round:
            rounds.end(int(strategy.counts["steps"]), int(strategy.counts["samples"]))
        return MetricRecord({"accuracy": scores[-1]})

    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, _context: Context) -> None:
        strategy.start(
            grid,
            ArrayRecord(model.state_dict()),
            num_rounds=settings["rounds"],
            train_config=ConfigRecord({"work": str(options.work)}),
            evaluate_fn=evaluate,
        )

    run_simulation(
        server_app,
        client_app,
        settings["clients"],
        backend_config={
            "init_args": {"num_cpus": options.actors, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    rounds.report(accuracy=scores[-1])


if __name__ == "__main__":
    main()
