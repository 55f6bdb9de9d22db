"""What a request without words asks for: what the command without options does."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from fedscope.cli import hessian, plot_landscape, report
from fedscope.cli.options.published_code import CROSSING, RESAMPLING, request_of
from fedscope.errors import UserError
from fedscope.workflows.landscape.named_slices import Plane
from fedscope.workflows.report_page import ReportRequest
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sources.targets import Targets


def test_curvature_is_asked_for_as_by_the_command() -> None:
    with hessian.command.make_context("hessian", []) as context:
        plain = {field.name for field in fields(Request)} & set(context.params)
        names = {*plain, *CROSSING, *RESAMPLING}
        assert request_of(Targets(Path()), **{name: context.params[name] for name in names}) == Request()


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
