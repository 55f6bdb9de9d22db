"""The papers' experiments by name: every setting of a table's column, and which of them no source gives.

They are in ``presets.toml``. What the user sets replaces them, and is recorded in the manifest.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedscope.checkpoints.file.schema import PresetUse
from fedscope.checkpoints.file.settings import Settings
from fedscope.data.partition.draw_partition import PARAMETERS
from fedscope.errors import UserError, suggestion
from fedscope.federated.methods import parse
from fedscope.federated.record.options import Reading

Table = Mapping[str, Any]
MERGED = ("options", "when", "code", "provisional")  # tables that a group adds to, entry by entry
ABOUT = (*MERGED, "source", "table", "methods", "seeds")  # what is not a setting
ELSEWHERE = (  # no departure
    "method", "seed", "save_clients", "keep_every", "keep_steps", "compile", "stack", "probe_curvature",
    "probe_samples",
)  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """One experiment of a paper."""

    name: str
    source: str
    table: str
    methods: tuple[str, ...]  # each a method, or a method and its options
    seeds: tuple[int, ...]
    settings: Table
    options: Table  # of any of the methods
    when: Mapping[str, Table]  # options for a method that contains all parts of the key
    code: Table  # settings under --reading code
    provisional: Mapping[str, str]  # setting or option → why its value is only a proposal

    def resolve(
        self, fields: Mapping[str, object], given: Mapping[str, str]
    ) -> tuple[dict[str, object], dict[str, str], PresetUse]:
        """Return the settings, the method's options, and the manifest's entry on the preset.

        ``fields`` and ``given`` are settings and options that the user has set; the others are the preset's.
        """
        method = parse(str(fields.get("method", self.methods[0].split()[0])))
        bundle = self.code if fields.get("reading") == "code" else {}
        base = {"method": method.name, "seed": self.seeds[0], **self.settings, **bundle}
        known = {option.name for option in method.options}
        options = {name: str(value) for name, value in self._options(method.name).items() if name in known}
        reading: Reading = "code" if fields.get("reading") == "code" else "paper"
        ours, users = method.values(options, reading), method.values({**options, **given}, reading)
        in_table = [text.split()[1:] for text in self.methods if text.split()[0] == method.name]
        published = {pair for pairs in in_table for pair in pairs}
        changed = [] if in_table else [f"method: {method.name} is not in the table"]
        changed += [
            f"{name} {_before(base, name)}{' (provisional)' * (name in self.unknown)} → {value}"
            for name, value in fields.items()
            if name not in ELSEWHERE and value != _before(base, name)
        ]
        changed += [
            f"{name} {ours[name]}{' (provisional)' * (name in self.unknown)} → {users[name]}"
            for name, text in given.items()
            if ours[name] != users[name] and f"{name}={text}" not in published
        ]
        set_ = {*fields, *(name for name in given if ours[name] != users[name])}
        proposed = {
            name: why
            for name, why in self.unknown.items()
            if name not in set_ and (name in known or name in base)
        }
        use = PresetUse(name=self.name, overridden=tuple(changed), provisional=proposed)
        return {**base, **fields}, {**options, **given}, use

    @property
    def unknown(self) -> dict[str, str]:
        """The provisional values, with the reason; an empty reason cancels a group's."""
        return {name: why for name, why in self.provisional.items() if why}

    def commands(self) -> list[str]:
        return [
            " ".join(
                [f"fedscope train --preset {self.name} --method {method}", *(f"--set {o}" for o in options)]
            )
            for method, *options in map(str.split, self.methods)
        ]

    def describe(self) -> dict[str, object]:
        return {**asdict(self), "provisional": self.unknown, "commands": self.commands()}

    def _options(self, method: str) -> Table:
        options, parts = dict(self.options), set(method.split("+"))
        for condition, more in self.when.items():
            if set(condition.split("+")) <= parts:
                options |= more
        return options


def _before(base: Table, name: str) -> object:
    value = base.get(name, Settings.model_fields[name].default)
    return "unset" if value is None else value


@cache
def presets() -> dict[str, Preset]:
    text = (files("fedscope.federated") / "presets.toml").read_text(encoding="utf-8")
    groups: dict[str, dict[str, Any]] = {}
    found = {}
    for group, entry in tomllib.loads(text).items():
        rows = entry.pop("presets")
        groups[group] = _over(groups.get(entry.pop("like", ""), {}), entry)
        for row, differs in rows.items():
            name = f"{group}/{row}" if row else group
            found[name] = _preset(name, _over(groups[group], differs))
    return found


def preset(name: str) -> Preset:
    if name not in presets():
        hint = suggestion(name, presets()) or "; `fedscope presets list` shows all"
        raise UserError(f"unknown preset {name!r}{hint}")
    return presets()[name]


def _over(base: Table, more: Table) -> dict[str, Any]:
    merged = {key: {**base.get(key, {}), **more[key]} for key in MERGED if key in more}
    return {**base, **more, **merged}


def _preset(name: str, entry: Table) -> Preset:
    settings = {key: value for key, value in entry.items() if key not in ABOUT}
    if "alpha" not in PARAMETERS[settings["partition"]]:
        settings["alpha"] = None
    about = {key: entry.get(key, {}) for key in MERGED}
    return Preset(
        name,
        entry["source"],
        entry["table"],
        tuple(entry["methods"]),
        tuple(entry["seeds"]),
        settings,
        **about,
    )
