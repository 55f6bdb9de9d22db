"""``fedscope`` and ``python`` for shell scripts, without seconds of imports at every line.

A server forks from the process that has imported everything; each command is a process of its own, forked
from the server, with the caller's folder, environment and files. What the shell starts is a small client.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from fedscope.cli.main import run
from tests.processes import nothing_waits_for_the_disk, processes

CLIENT = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(call)
    answer = server.recv(1)
sys.exit(answer[0] if answer else 137)
"""


@contextmanager
def programs(folder: Path) -> Iterator[Path]:
    """Write ``fedscope`` and ``python`` into ``folder``, to be found first on a script's ``PATH``."""
    address = folder / "socket"
    for program in ("fedscope", "python"):
        client = folder / program
        client.write_text(CLIENT.format(python=sys.executable, address=str(address), program=program))
        client.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(str(address))
        listener.listen()
        server = processes().Process(target=_serve, args=(listener,))
        server.start()
    try:
        yield folder
    finally:
        server.kill()
        server.join()


def _serve(listener: socket.socket) -> None:
    gc.freeze()
    nothing_waits_for_the_disk()
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(client)
        client.close()


def _reap(_signal: int, _frame: object) -> None:
    """Wait for commands that have ended, so that what they cost is counted."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(client: socket.socket) -> None:
    """Do what one client asks, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(client, 4, 3)
    call = b""
    while len(call) < int.from_bytes(size, "big"):
        call += client.recv(1 << 20)
    program, arguments, folder, environment = json.loads(call)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # the inherited ones remember whether they can seek
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    torch.set_num_threads(1)
    code = 1
    try:
        code = _call(program, arguments)
    except Exception:
        traceback.print_exc()
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        client.sendall(bytes([code & 255]))
        os._exit(code)


def _call(program: str, arguments: list[str]) -> int:
    """Return the exit code of ``fedscope …`` or ``python …``: a file, ``-m MODULE`` or ``-c CODE``."""
    try:
        if program == "fedscope":
            run(arguments)
        elif arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        elif arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
