"""What a request without words asks for: what the command without options does."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from fedscope.cli import clients, hessian, plot_landscape, report, sharpness
from fedscope.cli.hessian import request_of
from fedscope.cli.options.request_options import groups_of, options_of
from fedscope.errors import UserError
from fedscope.workflows.clients.clients_request import FAST, ClientsRequest
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.option_fields import Bounds, Need, asked, check_effects, option
from fedscope.workflows.report_page import ReportRequest
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest
from fedscope.workflows.sources.targets import Targets


def test_curvature_is_asked_for_as_by_the_command() -> None:
    with hessian.command.make_context("hessian", []) as context:
        assert request_of(Targets(Path()), None, context.params) == Request()
    of_clients = clients.command.make_context("clients", []).params
    assert asked(ClientsRequest, of_clients, only=FAST) == ClientsRequest()
    assert (
        asked(SharpnessRequest, sharpness.command.make_context("sharpness", []).params) == SharpnessRequest()
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Request(top_k=0), "top_k is 0; give a number at least 1"),
        (lambda: Request(influence=0), "influence is 0; give a number at least 1"),
        (lambda: Request(tol=2.0), "tol is 2; give a number at most 1 and above 0"),
        (lambda: CrossClientRequest(rtol=0.0), "rtol is 0; give a number above 0"),
        (lambda: ClientsRequest(probes=1), "probes is 1; give a number at least 2"),
        (lambda: SharpnessRequest(rho=-1.0), "rho is -1; give a number above 0"),
        (lambda: Plane(adaptive=1.0), "adaptive is 1; give a number above 0 and below 1"),
        (lambda: Targets(Path(), seed=-1), "seed is -1; give a number at least 0"),
    ],
)
def test_a_value_beyond_its_bounds_is_refused_in_python_too(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


def test_a_value_at_its_bounds_is_taken() -> None:
    least = Request(top_k=1, influence=1, tol=1.0)
    assert (least.top_k, least.influence, least.tol) == (1, 1, 1.0)
    assert ClientsRequest(probes=2).probes == 2


@dataclass(frozen=True)
class Baking:
    """A request with every kind of option."""

    loaves: int = option(2, "How many.", "Oven", bounds=Bounds(least=1))
    heat: float = option(0.5, "Of the oven.", "Oven", bounds=Bounds(above=0, below=1))
    crust: Literal["soft", "hard"] = option(
        "soft", "Which.", "Bread", needs=(Need(lambda r: r.oven, "without --oven"),)
    )
    oven: bool = option(True, "Use it.", "Oven")
    seeds: tuple[str, ...] = option((), "On top.", "Bread", "topping", metavar="SEED")
    slices: int | None = option(3, "Of each.", "Bread", metavar="N|all")


def test_a_field_of_a_request_is_an_option_of_its_command() -> None:
    groups = groups_of(Baking, {"Oven": ("--first", ...), "Bread": (..., "--last")})
    assert groups == {
        "Oven": ["--first", "--loaves", "--heat", "--oven"],
        "Bread": ["--crust", "--topping", "--slices", "--last"],
    }
    command: click.Command = click.command("bake")(options_of(Baking)(lambda **_: None))
    line = ["--loaves", "1", "--topping", "poppy", "--topping", "flax", "--slices", "all", "--no-oven"]
    context = command.make_context("bake", line)
    assert asked(Baking, context.params) == Baking(1, oven=False, seeds=("poppy", "flax"), slices=None)
    assert asked(Baking, command.make_context("bake", []).params) == Baking()
    for wrong in (["--loaves", "0"], ["--heat", "1"], ["--crust", "thin"]):
        with pytest.raises(click.BadParameter):
            command.make_context("bake", wrong)
    said = "--crust has no effect without --oven; leave it out, or add --oven"
    with pytest.raises(UserError, match=said):
        check_effects(Baking(oven=False), {"crust": "--crust"})
    check_effects(Baking(oven=False), {"heat": "--heat"})
    check_effects(Baking(), {"crust": "--crust"})


@pytest.mark.parametrize("option", ["weights", "data", "pairs", "aim"])
def test_a_way_to_compare_clients_that_is_not_there_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=f"{option} is 'globl'; choose one of"):
        CrossClientRequest(**dict[str, Any]({option: "globl"}))


@pytest.mark.parametrize(
    ("command", "request_", "names"),
    [
        (
            report.command,
            ReportRequest(Targets(Path())),
            "grid span top_k probes client_probes rounds bn",
        ),
        (plot_landscape.command, Plane(), "directions grid span bn adaptive precision"),
    ],
)
def test_pages_and_planes_are_asked_for_as_by_their_commands(
    command: click.Command, request_: object, names: str
) -> None:
    options = command.make_context("fedscope", []).params
    for name in names.split():
        assert str(options[name]) == str(getattr(request_, name)), name
