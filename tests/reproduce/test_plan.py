"""What is to be done for a recipe, before and after some of it was."""

from pathlib import Path

from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import recipe
from fedscope.reproduce.runs.computations import run_all


def test_a_plan_that_is_refreshed_sees_the_run_and_has_its_results_left(tmp_path: Path) -> None:
    place = BuildSettings(tmp_path / "registry", tmp_path / "gallery")
    plan = Plan([recipe("man/figure4a", "smoke")], Choices(rows=("fedavg",)), place)
    assert (len(plan.trainings), len(plan.measures)) == (1, 0)
    assert plan.estimate().seconds > 0
    assert run_all(plan.training_jobs(), workers=1, threads=1, device="cpu", say=lambda _: None) == {}
    assert plan.measures == {}
    plan = plan.refreshed(partial=False)
    assert plan.trainings == []
    ((path, wanted),) = plan.measures.values()
    assert path.is_file()
    assert wanted.kind == "hessian"
    assert plan.estimate().seconds > 0
    assert run_all(plan.measuring_jobs(), workers=1, threads=1, device="cpu", say=lambda _: None) == {}
    plan = plan.refreshed(partial=False)
    assert plan.measures == {}
    assert plan.estimate().seconds == 0
