"""Runs that travel to an S3 server, and from a web server: processes and threads of this machine."""

import functools
import logging
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import Remote, remote, runs_at
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import push_run
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from tests.checkpoints.cases import small_run
from tests.checkpoints.travel.test_travel import quiet, tree
from tests.processes import processes, started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("here"))


def contents(run: RunFolder) -> set[bytes]:
    return {content for content in tree(run.folder).values() if content}


def pulled(root: Path, place: Remote, report: Callable[[int, int | None, str], None] = quiet) -> int:
    return pull_run(RunRegistry(root), place, "small", report).moved


def ended_at(file: int) -> Callable[[int, int | None, str], None]:
    def report(_done: int, _total: int | None, files: str) -> None:
        if int(files.split()[0]) >= file:
            raise KeyboardInterrupt

    return report


def serve_s3(sender: Connection) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sender.send(server.get_host_and_port()[1])
    threading.Event().wait()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a bucket of an S3 server, a process of its own that the environment leads to."""
    receiver, sender = Pipe(duplex=False)
    process = processes().Process(target=serve_s3, args=(sender,))
    process.start()
    sender.close()
    try:
        address = f"http://127.0.0.1:{receiver.recv()}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", address)
            patch.setenv("AWS_ACCESS_KEY_ID", "key")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            yield "s3://bucket"
    finally:
        process.kill()
        process.join()


def test_there_and_back_by_s3(s3: str, run: RunFolder, tmp_path: Path) -> None:
    place = remote(f"{s3}/there/and/back/")
    assert push_run(run, place, quiet).moved == len(contents(run))
    assert push_run(run, place, quiet).moved == 0
    assert runs_at(place) == ["small"]
    assert pulled(tmp_path, remote(f"{s3}/there/and/back")) == len(contents(run))
    assert tree(tmp_path / "small") == tree(run.folder)
    assert list(verify_run(RunFolder(tmp_path / "small"))) == []


def test_s3_goes_on_after_an_end_midway(s3: str, run: RunFolder, tmp_path: Path) -> None:
    place = remote(f"{s3}/ended")
    with pytest.raises(KeyboardInterrupt):
        push_run(run, place, ended_at(3))
    assert runs_at(place) == []
    assert push_run(run, place, quiet).moved < len(contents(run))
    with pytest.raises(KeyboardInterrupt):
        pulled(tmp_path, place, ended_at(3))
    assert RunRegistry(tmp_path).folders() == []
    assert pulled(tmp_path, place) < len(contents(run))
    assert tree(tmp_path / "small") == tree(run.folder)


def test_what_s3_refuses(s3: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no bucket"):
        push_run(run, remote("s3://another"), quiet)
    with pytest.raises(UserError, match="no pushed run"):
        pulled(tmp_path, remote(f"{s3}/empty"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(UserError, match="denies access") as told:
        pulled(tmp_path, remote(f"{s3}/empty"))
    assert "SECRET" not in str(told.value)


class Web:
    """A web server of a folder; ``asked`` has the objects that were asked for, ``refuse`` answers them."""

    def __init__(self, folder: Path):
        self.asked: list[str] = []
        self.refuse: Callable[[SimpleHTTPRequestHandler], bool] = lambda _handler: False
        web = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if "/objects/" in self.path:
                    web.asked.append(self.path)
                if not web.refuse(self):
                    super().do_GET()

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def web(run: RunFolder, tmp_path: Path) -> Iterator[Web]:
    """A web server of a folder to which ``run`` was pushed."""
    push_run(run, remote(str(tmp_path / "place")), quiet)
    web = Web(tmp_path / "place")
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.server.shutdown()
    web.server.server_close()
    thread.join()


def test_from_a_web_server(web: Web, run: RunFolder, tmp_path: Path) -> None:
    place = remote(web.url)
    assert runs_at(place) == ["small"]
    assert pulled(tmp_path / "there", place) == len(contents(run)) == len(web.asked)
    assert tree(tmp_path / "there" / "small") == tree(run.folder)
    with pytest.raises(UserError, match="only be pulled from"):
        push_run(small_run(tmp_path / "more", "more"), place, quiet)


def status(code: int) -> Callable[[SimpleHTTPRequestHandler], bool]:
    def refuse(handler: SimpleHTTPRequestHandler) -> bool:
        handler.send_error(code)
        return True

    return refuse


def cut_off(handler: SimpleHTTPRequestHandler) -> bool:
    """Answer an object with less than was announced."""
    if "/objects/" not in handler.path:
        return False
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.close_connection = True
    return True


def endless(handler: SimpleHTTPRequestHandler) -> bool:
    """Answer an object without an end."""
    if "/objects/" not in handler.path:
        return False
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(bytes(1 << 20))
    except OSError:
        return True


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (status(401), "denies access"),
        (status(403), "denies access"),
        (status(404), "no pushed run"),
        (status(500), "cannot be reached"),
        (cut_off, "damaged or missing|cannot be reached"),
        (endless, "damaged or missing"),
    ],
)  # fmt: skip
def test_what_a_web_server_refuses(
    refuse: Callable[[SimpleHTTPRequestHandler], bool], says: str, web: Web, tmp_path: Path
) -> None:
    web.refuse = refuse
    with pytest.raises(UserError, match=says) as told:
        pulled(tmp_path / "there", remote(web.url))
    assert "\n" not in str(told.value)
    assert RunRegistry(tmp_path / "there").folders() == []


def test_a_server_that_is_not_there(web: Web, tmp_path: Path) -> None:
    place = remote("http://127.0.0.1:9/runs")
    with pytest.raises(UserError, match="cannot be reached"):
        pulled(tmp_path / "there", place)


def test_a_pull_that_is_killed_goes_on_where_it_was(
    web: Web, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL while one object hangs, the others having arrived; these are not asked for again."""
    monkeypatch.chdir(tmp_path)
    slow = min(file.name for file in (tmp_path / "place" / "objects").rglob("*") if file.is_file())
    released = threading.Event()

    def hang(handler: SimpleHTTPRequestHandler) -> bool:
        return slow in handler.path and not released.wait(60)

    web.refuse = hang
    arrived = tmp_path / "there" / ".small.pull" / "small"
    with started("runs", "pull", "small", web.url, "--registry", "there") as command:
        while not arrived.exists() or len({*tree(arrived).values()} - {b""}) < len(contents(run)) - 1:
            assert command.code is None, command.finish()
            time.sleep(0.01)
        os.kill(command.pid, signal.SIGKILL)
        command.finish()
    released.set()
    assert RunRegistry(tmp_path / "there").folders() == []
    web.refuse, web.asked = lambda _handler: False, []
    assert pulled(tmp_path / "there", remote(web.url)) == 1
    assert [slow in asked for asked in web.asked] == [True]
    assert tree(tmp_path / "there" / "small") == tree(run.folder)


DENIED = SimpleNamespace(status_code=401)


class Raising:
    """A backend of which every call raises an error."""

    def __init__(self, error: Exception):
        self.error = error

    def info(self, _path: str) -> None:
        raise self.error


def foreign(name: str, module: str, **fields: object) -> Exception:
    """Return an error as a backend raises it, with what it tells beside its class."""
    return type(name, (Exception,), {"__module__": module, **fields})("SECRET")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (foreign("HttpError", "gcsfs.retry", code=403), "denies access"),
        (foreign("HfHubHTTPError", "huggingface_hub.errors", response=DENIED), "denies access"),
        (foreign("DefaultCredentialsError", "google.auth.exceptions"), "denies access"),
        (foreign("HttpError", "gcsfs.retry", code=500), r"reached \(HttpError\)"),
        (foreign("ClientPayloadError", "aiohttp.client_exceptions"), "again"),
        (TimeoutError("SECRET"), "again"),
        (PermissionError("SECRET"), "denies access"),
    ],
)  # fmt: skip
def test_what_other_backends_say_is_one_line_without_their_words(error: Exception, says: str) -> None:
    place = remote("hf://datasets/somebody/runs")
    place._files = Raising(error)  # type: ignore[union-attr]
    with pytest.raises(UserError, match=says) as told:
        place.size("objects/a")
    assert "SECRET" not in str(told.value)


def test_what_a_backend_logs_is_not_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remote("hf://datasets/somebody/runs")
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.getLogger("ours").warning("seen")
    for name in ("gcsfs", "s3fs", "aiobotocore.httpsession", "fsspec.asyn"):
        logging.getLogger(name).warning("a traceback of forty lines")
    assert capsys.readouterr().err == "seen\n"


def test_a_fault_of_ours_is_not_the_store_s() -> None:
    place = remote("hf://datasets/somebody/runs")
    place._files = Raising(TypeError("a fault"))  # type: ignore[union-attr]
    with pytest.raises(TypeError):
        place.size("objects/a")


def test_a_backend_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UserError, match=r"gs: needs gcsfs: pip install 'fedscope\[remote\]'"):
        remote("gs://bucket/runs")


def test_the_hub_s_client_is_in_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(scheme: str, **_: object) -> None:
        raise ImportError(scheme)

    monkeypatch.setattr("fsspec.filesystem", absent)  # the hub's is remembered by fsspec once it was used
    with pytest.raises(UserError, match=r"hf: needs huggingface_hub: pip install 'fedscope\[hub\]'"):
        remote("hf://datasets/somebody/runs")


def test_the_hub_takes_one_file_at_a_time() -> None:
    assert remote("hf://datasets/somebody/runs").workers == 1
