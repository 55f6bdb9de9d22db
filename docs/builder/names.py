"""The reference of the Python names: all of ``fedscope.__all__``, and what plug-ins are written with."""

import inspect
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import PurePosixPath

import fedscope
from builder.blocks import Blocks
from builder.fields import meanings
from builder.markdown import fence, prose, table
from fedscope import testing
from fedscope.federated.record import views

FOLDER = "reference/python"
# The page that the names of a module are on; the first that fits.
GROUPS = {
    "fedscope.landscape.loss": "operators",
    "fedscope.landscape.operators": "operators",
    "fedscope.landscape.spectral": "spectra",
    "fedscope.landscape.heterogeneity": "clients",
    "fedscope.landscape.sharpness": "sharpness",
    "fedscope.landscape.paths": "clients",
    "fedscope.landscape.gradients": "clients",
    "fedscope.landscape.surfaces": "surfaces",
    "fedscope": "runs",
}
TITLES = {
    "runs": "Training, measuring and drawing runs",
    "operators": "Data and operators",
    "spectra": "Eigenvalues, trace, density",
    "clients": "Between clients",
    "sharpness": "Sharpness by other definitions",
    "surfaces": "Landscapes",
    "extending": "Methods, tests and loggers of your own",
}
EXTENDING = {
    "fedscope.federated.record.method": ("Method", "Required"),
    "fedscope.federated.record.options": ("Option",),
    "fedscope.federated.record.vectors": ("Vector",),
    "fedscope.federated.record.views": tuple(
        name
        for name, kind in vars(views).items()
        if inspect.isclass(kind) and kind.__module__ == views.__name__
    ),
    "fedscope.loggers.logger": ("Logger",),
    "fedscope.testing": tuple(testing.__all__),
    "fedscope.errors": ("UserError",),
}


def home(name: str) -> tuple[str, str]:
    """Return the page that a name of ``fedscope`` is on, and the module that defines it."""
    kind = getattr(fedscope, name)
    # a package that can be called is the function of its name
    module = f"fedscope.api.{name}" if inspect.ismodule(kind) else str(kind.__module__)
    return next(page for prefix, page in GROUPS.items() if f"{module}.".startswith(f"{prefix}.")), module


def groups() -> dict[str, list[tuple[str, str]]]:
    """Return the names by page, each with the module that defines it; a page without names is left out."""
    found: dict[str, list[tuple[str, str]]] = {page: [] for page in TITLES}
    for name in fedscope.__all__:
        page, module = home(name)
        found[page].append((name, module))
    found["runs"].sort(key=lambda entry: entry[0][0].isupper())  # functions first
    found["runs"] += [("TrainSettings", "fedscope.api.train_run"), ("On", "fedscope.api.sources")]
    found["extending"] = [(name, module) for module, names in EXTENDING.items() for name in names]
    return {page: names for page, names in found.items() if names}


def titles() -> dict[str, str]:
    """Return the pages by path, with their titles."""
    return {f"{FOLDER}/{page}.md": TITLES[page] for page in groups()}


def pages(blocks: Blocks) -> dict[str, str]:
    """Return the pages by path."""
    return {f"{FOLDER}/{page}.md": _page(TITLES[page], names, blocks) for page, names in groups().items()}


def index() -> str:
    """Return a table of the pages and their names."""
    rows = [
        [
            f"[{TITLES[page]}](python/{page}.md)",
            ", ".join(f"[`{name}`](python/{page}.md#{module}.{name})" for name, module in names),
        ]
        for page, names in groups().items()
    ]
    return table(["page", "names"], rows)


def _fields(module: str, name: str) -> str:
    """Return a table of the fields of a dataclass that plug-ins fill or read; nothing of another name."""
    kind = getattr(import_module(module), name)
    said = meanings(kind) if inspect.isclass(kind) and is_dataclass(kind) and module in EXTENDING else {}
    rows = [[f"`{field}`", prose(text)] for field, text in said.items() if text]
    return table(["field", "holds"], rows) if rows else ""


def _page(title: str, names: list[tuple[str, str]], blocks: Blocks) -> str:
    parts = [f"# {title}\n"]
    others = [f"`{name}`" for name, _ in names if name not in fedscope.__all__]
    if len(others) == len(names):
        parts.append("Each is imported from the module in its heading.\n")
    else:
        parts.append(f"Imported from `fedscope`{', but for ' * bool(others)}{' and '.join(others)}.\n")
    for name, module in names:
        short = f"    options:\n      heading: {name}\n" if name in fedscope.__all__ else ""
        parts.append(f"::: {module}.{name}\n{short}")
        parts.append(_fields(module, name))
        example = blocks.using(name)
        if example is not None:
            path = PurePosixPath("../..") / example.page
            parts.append(f"**In use**, on the page [{example.title}]({path}), which the tests run:\n")
            parts.append(fence("python", example.code))
    return "\n".join(parts)
