"""`fedscope` itself: the commands, each with a line of help, in the order a newcomer needs them."""

import click

from fedscope import __version__
from fedscope.cli.options.command import HELP, LazyGroup

COMMANDS = {
    "demo": ("demo", "Train two methods, measure and draw them, in a few minutes."),
    "train": ("train", "Train a federated method and register its checkpoints."),
    "hessian": ("hessian", "Measure the curvature of a checkpoint."),
    "sharpness": ("sharpness", "Measure sharpness in its other definitions, and how it goes with the gap."),
    "clients": ("clients", "Measure where the clients of a round part from each other and the global model."),
    "plot-landscape": ("plot_landscape", "Draw the loss landscape around checkpoints."),
    "plot-hessian": ("plot_hessian", "Draw spectra and clients' matrices from records of `hessian`."),
    "plot-runs": ("plot_runs", "Draw runs: accuracy, traffic, and sharpness by round, by layer, by method."),
    "report": ("report", "Make one interactive HTML file of runs: metrics, curves, landscapes, spectra."),
    "runs": ("runs.runs", "List, show, compare, verify, carry and add runs of the registry."),
    "methods": ("methods", "List the methods, or show one: objective, state, traffic, options, sources."),
    "models": ("models", "List the networks, or show one: source, input, layers, parameters, costs."),
    "data": ("data", "List the data sets, show one, check that one is here and whole, draw a partition."),
    "presets": ("presets", "List the papers' experiments, or show one."),
    "figures": ("figures", "Rebuild the papers' tables and figures: list, build, index."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings=HELP,
    examples={
        "fedscope demo": "the whole thread on bundled data",
        "fedscope train --method fedavg+man --name flat": "train a run named flat",
        "fedscope hessian flat": "λ_max and trace of its final model",
        "fedscope report flat": "all about it in one HTML file",
    },
)
@click.version_option(__version__, prog_name="fedscope")
def main() -> None:
    """How flat, and how consistent across clients, are the minima of federated-learning methods?"""
