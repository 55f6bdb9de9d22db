"""What a kill leaves: no process that goes on, all of the logs, and no job that begins twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.workflows.sweep.jobs import Job
from fedscope.workflows.sweep.local import run_all
from fedscope.workflows.sweep.tied import __file__ as tied

SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
SWEEP = """
import sys
from pathlib import Path
from fedscope.workflows.sweep.jobs import Job
from fedscope.workflows.sweep.local import run_all
program = (sys.executable, "-c", sys.argv[2])
run_all([Job("a", ("x",))], Path(sys.argv[1]), workers=1, say=print, program=program)
"""


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Say whether a process is there, and not one that has ended and that nobody has asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems send no signal")
def test_a_killed_sweep_leaves_no_process(tmp_path: Path) -> None:
    sweep = subprocess.Popen([sys.executable, "-c", SWEEP, str(tmp_path), SLEEPER])
    log = tmp_path / "a.log"
    until(lambda: log.exists() and log.read_text().count("\n") == 2)
    child = int(log.read_text().split("\n")[1])
    assert runs(child)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    try:
        until(lambda: not runs(child))
    finally:
        if runs(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems send no signal")
def test_a_process_whose_parent_is_dead_already_does_not_begin() -> None:
    words = [sys.executable, tied, "-1", sys.executable, "-c", "print('begun')"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_log_keeps_what_earlier_starts_printed(tmp_path: Path) -> None:
    job, heard = Job("g/a", ("why not",)), list[str]()
    for code in ("print('first'); raise SystemExit(3)", "raise SystemExit(4)", "print('last')"):
        faults = run_all([job], tmp_path, workers=1, say=heard.append, program=(sys.executable, "-c", code))
    assert heard == ["1/1 g/a: first", "1/1 g/a: ended with code 4", "1/1 g/a: done"]
    line = "$ fedscope 'why not'\n"
    assert job.log(tmp_path).read_text() == f"{line}first\n{line}{line}last\n"
    assert faults == {}


def test_a_job_that_is_done_when_its_turn_comes_does_not_begin(tmp_path: Path) -> None:
    """The first job marks the second one done, as another sweep of the same file may."""
    second = Job("b", ("x",))
    second.finish(tmp_path)
    state = tmp_path / "b.state"
    written = state.read_text()
    state.unlink()
    code = f"import pathlib; pathlib.Path({str(state)!r}).write_text({written!r})"
    program = (sys.executable, "-c", code)
    assert run_all([Job("a", ("x",)), second], tmp_path, workers=1, say=print, program=program) == {}
    assert (tmp_path / "a.log").exists()
    assert not (tmp_path / "b.log").exists()
