"""The generated reference has every command, option, field and public name."""

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

import fedscope
from builder import commands, methods, names, pages, records
from builder.fields import anchor, fields, meanings
from fedscope.federated.methods import METHODS
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord

ROOT = Path(__file__).parents[2]


def test_every_option_of_every_command_is_there_once() -> None:
    made = commands.pages(pages.blocks(ROOT))
    for name, command, context in commands.commands():
        top, _, inner = name.partition(" ")
        page = made[f"{commands.FOLDER}/{top}.md"]
        assert f"`fedscope {name}`" in page
        for param in command.get_params(context):
            if isinstance(param, click.Option) and not param.hidden and param.opts[0] not in commands.SHARED:
                assert page.count(f"{{ #{inner}{param.opts[0]} }}") == 1, (name, param.opts)


def test_options_stand_in_the_groups_of_the_help() -> None:
    page = commands.pages(pages.blocks(ROOT))[f"{commands.FOLDER}/hessian.md"]
    group = page.split("## How precisely")[1].split("\n## ")[0]
    assert re.findall(r"### `(--[\w-]+)", group) == ["--tol", "--probes", "--trace-rtol", "--products"]


def test_every_public_name_is_there_and_in_use() -> None:
    blocks = pages.blocks(ROOT)
    made = "\n".join(names.pages(blocks).values())
    for name in fedscope.__all__:
        _, module = names.home(name)
        assert f"::: {module}.{name}\n" in made
        block = blocks.using(name)
        assert block is not None, f"no block of the pages uses {name}; how_to/python.md is the place"


def test_every_public_name_and_member_says_what_it_is() -> None:
    for name, module in (entry for group in names.groups().values() for entry in group):
        kind = getattr(import_module(module), name)
        assert inspect.getdoc(kind), name
        if not inspect.isclass(kind):
            continue
        for member, value in vars(kind).items():
            own = isinstance(value, property | classmethod) or getattr(value, "__name__", "") == member
            if not member.startswith("_") and own:
                assert inspect.getdoc(getattr(kind, member)), f"{name}.{member}"


def test_every_method_has_a_page_with_its_equation_and_options() -> None:
    made = methods.pages(ROOT)
    assert set(made) == {f"methods/{name}.md" for name in METHODS}
    for name, method in METHODS.items():
        page = made[f"methods/{name}.md"]
        assert all(f"`{option.name}`" in page for option in method.options)
        assert "## Equations" in page
        assert re.search(r"gradients of the task loss per step \| [12] ", page), name


def documented(model: type[BaseModel]) -> dict[str, tuple[type[BaseModel], ...]]:
    return {field.name: field.models for field in records.told(model)}


def undocumented(content: Any, choices: tuple[type[BaseModel], ...]) -> list[str]:
    """The keys of JSON that no field of the models explains."""
    if isinstance(content, list):
        return [fault for item in content for fault in undocumented(item, choices)]
    if not isinstance(content, dict):
        return []
    known = {name: models for model in choices for name, models in documented(model).items()}
    if not known:
        return []  # an object of numbers or texts
    found = [name for name in content if name not in known] if set(content) & set(known) else []
    for name, value in content.items():
        found += [f"{name}.{fault}" for fault in undocumented(value, known.get(name, choices))]
    return found


@pytest.mark.slow
def test_every_key_that_is_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = fedscope.train(name="a", model="mlp_digits", clients=3, rounds=1, epochs=1, threads=1)
    measured = fedscope.measure(
        run, samples=64, density=True, layers=True, influence=3, clients=True, tol=0.1
    )
    view = fedscope.landscape(run, samples=64, grid=5, metrics=["accuracy"], directions="random")
    for content, model in ((measured.to_dict(), HessianRecord), (view.to_dict(), LandscapeRecord)):
        text = json.loads(json.dumps(content))
        assert undocumented(text, (model,)) == []
    assert undocumented({**text, "other": 1}, (LandscapeRecord,)) == ["other"]


def test_every_field_of_every_record_has_a_meaning() -> None:
    for _, (title, _, models) in records.RECORDS.items():
        reached = list(records.reached(models))
        assert reached, title
        assert len({anchor(model) for model in reached}) == len(reached)
        assert all(field.meaning for model in reached for field in records.told(model))


def test_a_field_without_a_comment_ends_the_build() -> None:
    class Silent(BaseModel):
        said: int  # what it is [s]
        # on the line above
        above: int
        unsaid: int

    assert meanings(Silent) == {"said": "what it is [s]", "above": "on the line above", "unsaid": ""}
    with pytest.raises(ValueError, match=r"Silent\.unsaid has no comment"):
        fields(Silent, {})
    told = fields(Silent, {"unsaid": "by the command line"})
    assert [(field.meaning, field.unit) for field in told][:1] == [("what it is", "s")]
    assert told[2].meaning == "by the command line"
