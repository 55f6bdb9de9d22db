"""Which jobs a file makes, and what runs of them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from fedscope.workflows.sweep import file
from fedscope.workflows.sweep.file import Slurm, SweepFile, read
from fedscope.workflows.sweep.jobs import Job, freeze, frozen, run_all, write_array


def echo(words: Sequence[str]) -> str | None:
    """Stand for fedscope: print the words on both streams, and fail where the first one is "bad"."""
    print("out", *words)
    print("err", *words, file=sys.stderr)
    return "because" if words[0] == "bad" else None


def sweep(**fields: object) -> SweepFile:
    return SweepFile.read(fields)


def expand(
    asked: SweepFile, registry: Path, out: Path, threads: int | None,
    off: Callable[[str, str], str | None] = lambda command, flag: None,
) -> list[Job]:  # fmt: skip
    return [Job(*one) for one in file.expand(asked, registry, out, threads, off).items()]


def words(job: Job) -> str:
    return " ".join(job.words)


def test_every_checkpoint_and_every_combination_is_a_job(tmp_path: Path) -> None:
    jobs = {
        "lambda": {"command": "hessian", "options": {"samples": 64, "top_k": 2, "recompute": True},
                   "each": {"tol": [0.1, 0.01], "seed": [0, 1]}},
    }  # fmt: skip
    found = expand(sweep(checkpoints=["a@5", "b"], jobs=jobs), Path("reg"), Path("out"), 2)
    assert len(found) == 8
    assert found[1].name == "lambda/a@5-tol0.1-seed1"
    assert words(found[1]) == (
        "hessian a@5 --samples 64 --top-k 2 --recompute --tol 0.1 --seed 1 --registry reg --threads 2 "
        "--json out/lambda/a@5-tol0.1-seed1.json"
    )


def test_jobs_take_all_cores_unless_told_otherwise() -> None:
    (job,) = expand(sweep(jobs={"a": {"command": "train"}}), Path("reg"), Path("out"), None)
    assert "--threads" not in job.words


def test_a_training_has_a_name_and_no_checkpoint() -> None:
    jobs = {"runs": {"command": "train", "each": {"method": ["fedavg", "feddyn+man"]}}}
    found = expand(sweep(checkpoints=["a"], jobs=jobs), Path("reg"), Path("out"), 1)
    assert [job.name for job in found] == ["runs/fedavg", "runs/feddyn+man"]
    assert "--name runs-feddyn+man" in words(found[1])
    assert " a " not in words(found[0])


def test_a_training_asks_for_no_run_of_the_file_s_patterns() -> None:
    found = expand(sweep(checkpoints=["z*"], jobs={"a": {"command": "train"}}), Path("reg"), Path("out"), 1)
    assert [job.name for job in found] == ["a/a"]


def test_every_landscape_has_a_picture_of_its_own() -> None:
    jobs = {"j": {"command": "plot-landscape"}}
    found = expand(sweep(checkpoints=["a", "b"], jobs=jobs), Path("reg"), Path("out"), 1)
    assert ["--out out/j/a.png" in words(found[0]), "--out out/j/b.png" in words(found[1])] == [True, True]


def test_patterns_are_runs_of_the_registry(run: RunFolder) -> None:
    jobs = {"j": {"command": "hessian"}, "k": {"command": "clients", "checkpoints": ["./x.pt"]}}
    found = expand(sweep(checkpoints=["t*y@best"], jobs=jobs), run.root, Path("out"), 1)
    assert [job.words[:2] for job in found] == [("hessian", "tiny@best"), ("clients", "./x.pt")]
    assert found[1].name == "k/x.pt"
    with pytest.raises(UserError, match=r"no run in the registry .* is named like 'z\*'"):
        expand(sweep(checkpoints=["z*"], jobs=jobs), run.root, Path("out"), 1)


def test_a_file_of_each_job_s_own() -> None:
    jobs = {"j": {"command": "plot-landscape", "options": {"out": "{job}.pdf", "recompute": False}}}
    (found,) = expand(sweep(checkpoints=["a"], jobs=jobs), Path("reg"), Path("out"), 1)
    assert "--out out/j/a.pdf" in words(found)
    assert "--recompute" not in words(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[jobs.a]\ncommand = 'hesian'", "jobs.a.command takes one of train, hessian"),
        ("[jobs.a]\ncommand = 'hessian'\nchekpoints = []", "chekpoints is no field of it; did you"),
        ("checkpoints = ['a']", "jobs is missing"),
        ("[jobs.a]\ncomand = 'hessian'", "jobs.a.comand is no field of it; did you mean 'command'?"),
        ("[jobs.a", "; name a .toml file, or mend it there"),
        ("[jobs.a]\ncommand = 'hessian'", "jobs.a has no checkpoint; name some"),
        ("checkpoints = ['a']\n[jobs.a]\ncommand = 'hessian'\neach = { tol = [] }", "each.tol has no value"),
        ("[jobs.a]\ncommand = 'train'\noptions = { name = 'x' }", "jobs.a: the sweep itself gives --name"),
        ("[jobs.a]\ncommand = 'train'\noptions = { seeds = '0,1' }", "instead of --seeds write each = {"),
        ("checkpoints = ['a']\n[jobs.a]\ncommand = 'hessian'\neach = { tol = [1, 1] }", "are called a/a"),
    ],
)  # fmt: skip
def test_a_wrong_file_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        expand(read(path), Path("reg"), Path("out"), 1)
    assert said in str(refused.value)


def test_what_failed_runs_again_and_what_is_done_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [Job("g/bad", ("bad", "y")), Job("g/good", ("good", "why not"))]
    heard: list[str] = []
    assert run_all(jobs, tmp_path, echo, heard.append) == {"g/bad": "because"}
    assert heard == ["1/2 g/bad: because", "2/2 g/good: done"]
    assert [job.done(tmp_path) for job in jobs] == [False, True]
    line = "$ fedscope good 'why not'\nout good why not\nerr good why not\n"
    assert jobs[1].log(tmp_path).read_text() == line
    assert list(run_all(jobs, tmp_path, echo, heard.append)) == ["g/bad"]
    assert heard[2:] == ["1/1 g/bad: because"]
    assert jobs[0].log(tmp_path).read_text() == 2 * "$ fedscope bad y\nout bad y\nerr bad y\nError: because\n"
    assert jobs[1].log(tmp_path).read_text() == line
    assert not Job("g/good", ("good", "z")).done(tmp_path)  # another command line
    jobs[1].forget(tmp_path)
    assert not jobs[1].done(tmp_path)
    assert capsys.readouterr() == ("", "")


def test_an_interruption_leaves_the_rest_to_the_next_call(tmp_path: Path) -> None:
    def interrupted(words: Sequence[str]) -> str | None:
        if words[0] == "b":
            raise KeyboardInterrupt
        return None

    jobs = [Job(name, (name,)) for name in "abc"]
    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, tmp_path, interrupted, print)
    assert [job.done(tmp_path) for job in jobs] == [True, False, False]
    assert run_all(jobs, tmp_path, echo, print) == {}
    assert all(job.done(tmp_path) for job in jobs)


def test_a_job_that_is_done_when_its_turn_comes_does_not_begin(tmp_path: Path) -> None:
    first, second = Job("a", ("x",)), Job("b", ("x",))

    def another_sweep(words: Sequence[str]) -> str | None:
        second.finish(tmp_path)
        return None

    assert run_all([first, second], tmp_path, another_sweep, print) == {}
    assert first.log(tmp_path).exists()
    assert not second.log(tmp_path).exists()


def training(
    run: RunFolder, *options: str, name: str = "", threads: Sequence[str] = ("--threads", "1")
) -> Job:
    common = ("--registry", str(run.root), *threads, "--name", name or run.name)
    return Job("g/a", ("train", *options, *common, "--json", "out/g/a.json"))


LINE = ("--rounds", "9", "--nesterov")


def test_a_training_whose_run_is_there_goes_on(run: RunFolder, tmp_path: Path) -> None:
    new, there = training(run, *LINE, name="none"), training(run, *LINE)
    assert new.now() == new.words
    rest = ("--registry", str(run.root), "--name", run.name, "--json", "out/g/a.json")
    assert there.now() == ("train", "--resume", *LINE, *rest)  # the threads are the run's
    assert training(run, *LINE, threads=()).now() == there.now()
    there.begin(tmp_path)
    assert there.kept(tmp_path) is None  # it is no run of this sweep's
    there.finish(tmp_path)
    assert there.done(tmp_path)
    there.forget(tmp_path)
    assert there.done(tmp_path)  # --again trains nothing
    assert not training(run, *LINE, "--seed", "1").done(tmp_path)
    new.finish(tmp_path)
    assert not new.done(tmp_path)  # its run was deleted


def test_a_run_that_began_with_options_that_are_gone_is_refused(run: RunFolder, tmp_path: Path) -> None:
    begun = training(run, *LINE, "--workers", "2", "--log", "wandb")
    with pytest.raises(UserError, match=r"g/a: the run tiny is there, and this sweep has not begun it; dele"):
        begun.check(tmp_path)
    begun.finish(tmp_path)
    before = begun.kept(tmp_path)
    with pytest.raises(UserError) as refused:
        training(run, "--lr", "0.05").check(tmp_path)
    assert str(refused.value) == (
        "g/a: the run tiny began with --rounds, --nesterov; restore the file, delete the run (`fedscope runs "
        "delete tiny`), or give the group of jobs another name"
    )
    training(run, *LINE, "--lr", "0.05").check(tmp_path)  # `train --resume` refuses what the run has not
    assert begun.kept(tmp_path) == before
    gone = training(run, *LINE, name="gone")
    gone.finish(tmp_path)
    training(run, name="gone").check(tmp_path)  # after its run is deleted a job begins anew


def test_measurements_take_other_options(tmp_path: Path) -> None:
    Job("g/a", ("hessian", "tiny", "--tol", "0.1")).finish(tmp_path)
    edited = Job("g/a", ("hessian", "tiny"))
    edited.check(tmp_path)
    assert not edited.done(tmp_path)


def test_an_array_has_the_jobs_that_are_left(tmp_path: Path) -> None:
    jobs = [Job(f"g/{i}", ("hessian", str(i))) for i in range(6)]
    jobs[3].finish(tmp_path)
    asked = Slurm.read(
        {"parallel": 4, "setup": ["module load x"], "options": {"time": "1:00", "exclusive": True, "mem": 0,
                                                                   "requeue": False}}
    )  # fmt: skip
    text = write_array(jobs, asked, tmp_path, "s").read_text()
    assert "#SBATCH --array=0-4%4\n" in text
    assert "#SBATCH --time=1:00\n" in text
    assert "#SBATCH --exclusive\n" in text
    assert "#SBATCH --mem=0\n" in text
    assert "requeue" not in text
    assert text.index("module load x") < text.index("--task")
    (listed,) = tmp_path.glob("jobs-*.json")
    assert str(listed) in text
    assert frozen(listed) == [*jobs[:3], *jobs[4:]]
    with pytest.raises(UserError, match=r"slurm\.options\.array is set by the sweep"):
        write_array(jobs, Slurm.read({"options": {"array": "0-3"}}), tmp_path, "s")
    for job in jobs:
        job.finish(tmp_path)
    with pytest.raises(UserError, match="all 6 jobs are done"):
        write_array(jobs, Slurm(), tmp_path, "s")


def test_the_batch_file_calls_its_task(tmp_path: Path) -> None:
    """The shell is real; a program that prints its words stands for Python."""
    path = write_array([Job("a", ("0",)), Job("b", ("0",))], Slurm.read({"setup": ["X=set"]}), tmp_path, "s")
    text = path.read_text().replace(sys.executable, "echo $X")
    path.write_text(text)
    done = subprocess.run(
        ["bash", str(path)], env={**os.environ, "SLURM_ARRAY_TASK_ID": "1"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.split() == [
        "set",
        "-m",
        "fedscope",
        "sweep",
        *map(str, tmp_path.glob("jobs-*.json")),
        "--task",
        "1",
    ]


def test_an_array_that_waits_keeps_its_jobs(tmp_path: Path) -> None:
    first, second = ([Job(name, ("hessian",))] for name in "ab")
    listed = freeze(first, tmp_path)
    assert freeze(second, tmp_path) != listed
    assert frozen(listed) == first
    assert freeze(first, tmp_path) == listed


def test_an_option_that_is_off_is_said_where_the_command_can_say_it() -> None:
    jobs = {"j": {"command": "train", "options": {"nesterov": False, "compile": False}}}
    off = {("train", "--nesterov"): "--no-nesterov"}
    (found,) = expand(sweep(jobs=jobs), Path("reg"), Path("out"), 1, lambda *one: off.get(one))
    assert found.words[:2] == ("train", "--no-nesterov")
    assert "--compile" not in found.words


def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    path = freeze([Job("a", ("train", "x"))], tmp_path)
    assert frozen(path) == [Job("a", ("train", "x"))]
    for content in ({"a": 1}, [{"name": "a", "words": ["runs", "delete", "x", "--yes"]}],
                    [{"name": "a", "words": []}], [{"name": "../a", "words": ["train"]}],
                    [{"name": "/a", "words": ["train"]}]):  # fmt: skip
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match="is no list of jobs"):
            frozen(path)


def test_sbatch_reads_one_option_of_each_line(tmp_path: Path) -> None:
    out = tmp_path / "my 50% sweep"
    asked = Slurm.read({"options": {"comment": "it's #1", "time": "1:00"}})
    text = write_array([Job("a", ("hessian",))], asked, out, "my sweep").read_text()
    assert '#SBATCH --job-name="my sweep"\n' in text
    assert f'#SBATCH --output="{tmp_path}/my 50%% sweep/slurm-%A-%a.log"\n' in text
    assert '#SBATCH --comment="it\'s #1"\n#SBATCH --time=1:00\n' in text


@pytest.mark.parametrize("name", ["s\nrm x", 's"', "s\\"])
def test_what_sbatch_would_read_as_something_else_is_refused(tmp_path: Path, name: str) -> None:
    jobs = [Job("a", ("hessian",))]
    for asked, called in ((Slurm(), name), (Slurm.read({"options": {"comment": name}}), "s"),
                          (Slurm.read({"options": {f"a{name}": 1}}), "s")):  # fmt: skip
        with pytest.raises(UserError, match="sbatch cannot take --"):
            write_array(jobs, asked, tmp_path, called)
    assert not (tmp_path / "array.sbatch").exists()


@pytest.mark.parametrize("group", ["../up", "a/b", "", "..", "a b"])
def test_a_group_lies_in_the_folder_of_its_sweep(group: str) -> None:
    with pytest.raises(UserError, match="is no name of a group of jobs"):
        expand(sweep(jobs={group: {"command": "train"}}), Path("reg"), Path("out"), 1)
