"""Nothing outside ``fedscope.storage`` writes, deletes, renames, locks or reads a file by itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "fedscope"
METHODS = {
    "write_text", "write_bytes", "read_text", "read_bytes", "mkdir", "makedirs", "rmdir",
    "removedirs", "rmtree", "unlink", "rename", "renames", "touch", "chmod", "chown", "symlink",
    "symlink_to", "hardlink_to", "link", "truncate", "copyfile", "copyfileobj", "copy2", "copytree",
    "move", "mkstemp", "mkdtemp", "flock", "lockf", "NamedTemporaryFile", "TemporaryDirectory",
    "TemporaryFile", "open", "fdopen", "savefig", "open_memmap", "memmap", "savez",
    "savez_compressed", "savetxt", "tofile", "save_file", "write_image", "write_html",
    "FileHandler", "SummaryWriter", "connect",
}  # fmt: skip
CALLS = {"np.save", "torch.save", "os.remove", "os.replace", "shutil.move", "shutil.copy", "Image.save"}
OWN = {"write_text", "write_bytes", "read_text", "read_bytes", "touch", "move"}  # of storage, called by name

# to a handle that storage has opened, of what comes with the package or the system, or no file
KNOWN = {
    ("checkpoints/file/code.py", "path.read_bytes"),
    ("checkpoints/file/checkpoint.py", "torch.save"),
    ("checkpoints/registry/index.py", "sqlite3.connect"),  # right after a look at what lies there
    ("checkpoints/travel/pull.py", "shutil.copyfileobj"),
    ("checkpoints/travel/places.py", "self._files.open"),  # of fsspec: elsewhere than here
    ("checkpoints/travel/history.py", "TemporaryDirectory"),  # of a history without files
    ("workflows/catalogues.py", "file.read_bytes"),
    ("data/loading/array_cache.py", "np.memmap"),
    ("data/loading/array_cache.py", "np.save"),
    ("data/reading/decoding.py", "Image.open"),
    ("data/reading/encoded_images.py", "np.save"),
    ("federated/setup/paper_presets.py", "read_text"),
    ("loggers/trackers.py", "SummaryWriter"),  # in a folder that storage has made
    ("reproduce/recipes/spec.py", "path.read_text"),
    ("workflows/train/train_runs.py", "TemporaryDirectory"),  # of a trial's registry
    ("testing/method_laws.py", "tempfile.TemporaryDirectory"),  # of a registry that lives as long as a law
    ("reproduce/recipes/spec.py", "read_text"),
    ("figures/embedded_record.py", "Image.open"),
    ("report/html_page.py", "figure.savefig"),
    ("report/html_page.py", "read_text"),
    ("figures/style.py", "figure.savefig"),
    ("landscape/operators/products/graph_cache.py", "file.read_text"),
    ("landscape/operators/products/graph_cache.py", "read_text"),
    ("landscape/operators/product_cache.py", "np.savez"),
    ("landscape/surroundings.py", "file.read_bytes"),
    ("landscape/operators/basis/row_space.py", "tempfile.TemporaryFile"),  # that has no name
    ("own.py", "file.read_bytes"),
    ("pretrained.py", "path.open"),  # of what transformers reads by itself
    ("process.py", "status.read_text"),
}


def by_itself(source: str) -> Iterator[str]:
    """Yield the calls that may touch a file without storage."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Name):
            if name in METHODS - OWN:
                yield name
        elif isinstance(node.func, ast.Attribute):
            own = node.func.value
            plain = name if isinstance(own, ast.Name | ast.Attribute) else node.func.attr
            one = len(node.args) == 1 and not node.keywords
            if node.func.attr in METHODS or plain in CALLS or (node.func.attr == "replace" and one):
                yield plain


def test_only_storage_touches_files() -> None:
    found = {
        (path.relative_to(SOURCES).as_posix(), call)
        for path in SOURCES.rglob("*.py")
        if not path.is_relative_to(SOURCES / "storage")
        for call in by_itself(path.read_text())
    }
    assert found == KNOWN


@pytest.mark.parametrize(
    "line",
    ["open(p, 'w')", "p.open('w')", "p.write_text(t)", "(a / b).write_bytes(t)", "os.open(p, 1)",
     "p.unlink()",
     "shutil.rmtree(p)", "p.replace(q)", "os.replace(p, q)", "p.rename(q)", "p.touch()", "p.mkdir()",
     "fcntl.flock(f, 1)", "np.save(p, a)", "torch.save(a, p)", "sqlite3.connect(p)", "figure.savefig(p)",
     "p.read_text()"],
)  # fmt: skip
def test_the_search_finds(line: str) -> None:
    assert list(by_itself(line))


@pytest.mark.parametrize("line", ["write_text(p, t, below=r)", "t.replace('a', 'b')", "replace(a, b=c)"])
def test_the_search_finds_no_more(line: str) -> None:
    assert not list(by_itself(line))
