"""The two tiers of the tests: which tests a tier runs, and how often these draw.

`make test` runs the fast tier, `make test-rest` what it left out, `make test-all` both at once, as does a
plain ``pytest``. A test is left out of the fast tier by the marker ``slow``, on it or on its file, or by the
table below, which holds what is a matter of parameters. A test with the marker ``drawn``, and each of
Hypothesis, is of both: it draws less in the fast tier, and again in the rest.
"""

import math
import os
import re
from typing import Literal

import pytest

Tier = Literal["fast", "rest", "all"]
TIERS: tuple[Tier, ...] = ("fast", "rest", "all")
NOMINAL = 0.95  # of intervals
EXAMPLES = 25  # of a property, in the fast tier

SIX = ("fedprox", "fedsam", "scaffold", "fedbn", "fedadam", "gradaug")  # that fill every slot of a method
OTHERS = rf"\[(?!({'|'.join(SIX)})[\],+])"  # the parameters of whole runs that only the rest makes
LEFT_OUT = (  # patterns of the beginnings of names
    rf"tests/federated/test_golden\.py::test_golden_losses{OTHERS}",
    rf"tests/federated/test_laws\.py::test_(memory_survives_an_interruption|sums_train){OTHERS}",
    rf"tests/federated/test_laws\.py::test_a_stack_is_its_clients_one_by_one{OTHERS}",
    r"tests/federated/test_reference\.py::test_every_round_is_the_oracles\[(?!fedbn).*model=resnet_digits",
    # whole commands and processes, of which the fast tier has shorter ones
    r"tests/api/test_landscape\.py::test_runs",
    r"tests/api/test_registry\.py::test_a_report",
    r"tests/cli/runs/test_whose_shown\.py::test_a_run_",
    r"tests/cli/terminal/test_answers\.py::test_a_part",
    r"tests/cli/test_clients\.py::test_what_is_under_way",
    r"tests/cli/test_influence\.py::test_a_runs_samples",
    r"tests/cli/test_outlook\.py::test_a_report",
    r"tests/cli/test_own_tasks\.py::test_random_rows",
    r"tests/cli/test_own_training\.py::test_(workers|names)",
    r"tests/cli/test_pretrained\.py::test_",
    r"tests/cli/test_rows\.py::test_digits",
    r"tests/cli/test_slices\.py::test_local_steps",
    r"tests/cli/test_zoo\.py::test_networks",
    r"tests/federated/setup/test_stacking\.py::test_a_run_has_the_number",
    r"tests/landscape/loss/test_copies\.py::test_a_sharded",
    r"tests/reproduce/recipes/test_of_clients\.py::test_a_gap",
    r"tests/test_contracts\.py::test_a_forbidden",
    r"tests/test_process\.py::test_repeated",
    r"tests/workflows/clients/test_measure_clients\.py::test_the_clients_are_weighted",
    r"tests/figures/test_style\.py::test_the_same_input_gives_the_same_bytes\[(?!\.png|.*_landscape)",
    # whose lines others of the fast tier execute, each at least twice
    r"tests/test_extras\.py::test_the_core_needs_no_extra",
    r"tests/test_process\.py::test_larger_blocks",
    r"tests/checkpoints/test_kills\.py::test_eight_writers",
    r"tests/cli/options/test_without_effect\.py::test_more_samples",
    r"tests/cli/runs/test_whose_shown\.py::test_a_shells_order",
    r"tests/cli/terminal/test_answers\.py::test_another_plane_is_not_answered\[(?!more0)",
    r"tests/cli/terminal/test_readable\.py::test_without_utf_8.*\[(methods list-|train .*environment1)",
    r"tests/cli/terminal/test_verbosity\.py::test_quiet_leaves",
    r"tests/cli/test_evaluation\.py::test_points_are_found",
    r"tests/cli/test_main\.py::test_an_interrupt_during_an_import_is_one_line\[torch",
    r"tests/cli/test_own_training\.py::test_clients_of_ones_own",
    r"tests/cli/test_plot_runs\.py::test_sharpness_is_what",
    r"tests/cli/test_slices\.py::test_the_curvature_stands",
    r"tests/cli/test_train\.py::test_a_preset_is_the_start",
    rf"tests/federated/test_lora\.py::test_methods_of_parameters_run_and_others{OTHERS}",
    r"tests/federated/server/test_diagnostics\.py::test_the_files_of_a_run",
    r"tests/federated/server/test_run_rounds\.py::test_an_interrupted_run_continues",
    r"tests/federated/setup/test_stacking\.py::test_an_older_run",
    r"tests/federated/test_extending\.py::test_the_same_bits",
    r"tests/federated/costs/test_expected\.py::test_a_run_counts",
    r"tests/figures/surface/test_surfaces\.py::test_(names_of_axes_in_space|every_count)",
    r"tests/landscape/heterogeneity/test_client_diagonals\.py::test_kept_bases",
    r"tests/models/test_catalogue\.py::test_(weights_come|published_sizes)",
    r"tests/landscape/operators/test_parallel\.py::test_two_processes",
    r"tests/landscape/operators/test_product_cache\.py::test_a_file_whose_end.*[1-46-9]\]",
    r"tests/landscape/paths/test_peak\.py::test_intervals_hold_near_0_and_are_never_empty\[(0\.5|1\.0)",
    r"tests/landscape/published/test_pyhessian\.py::test_it_agrees_within_its_tolerance\[convnet",
    r"tests/reproduce/runs/test_measurements\.py::test_products_by_finite",
    r"tests/workflows/clients/test_measure_clients\.py::test_(another_question|recalibrated|with_their_own)",
    r"tests/workflows/curvature/test_hessian_command\.py::test_(more_is_measured|records_of_several)",
)
KEPT = (  # of what is slow by its file: the beginnings of names that the fast tier has
    "tests/test_newcomer.py",
    "tests/test_readme.py::test_a",
    "tests/test_readme.py::test_every",
    "tests/test_readme.py::test_it",
    "tests/test_readme.py::test_the_flattest",
    "tests/test_readme.py::test_the_smallest",
    "tests/test_readme.py::test_what",
    "tests/api/test_measure.py::test_a_misspelt_keyword_is_refused",
    "tests/api/test_measure.py::test_a_state_dict_and_a_file_need_a_network",
    "tests/api/test_measure.py::test_networks_are_called_as_one_names_them",
    "tests/cli/options/test_published_code.py::test_what",
    "tests/cli/test_analysis.py::test_a_client_that_is_not_finite",
    "tests/cli/test_analysis.py::test_a_fault_in_the_users_own_code",
    "tests/cli/test_analysis.py::test_a_state_dict_that_does_not_fit",
    "tests/cli/test_analysis.py::test_cross_client_needs_clients",
    "tests/cli/test_analysis.py::test_json_is_the_contract",
    "tests/cli/test_analysis.py::test_lambda_max_and_trace_are_the_dense_ones",
    "tests/cli/test_analysis.py::test_other_data_than_the_checkpoints",
    "tests/cli/test_analysis.py::test_the_landscape_is_drawn",
    "tests/cli/test_analysis.py::test_weights_that_are_not_finite",
    "tests/cli/test_report.py::test_a_landscape_becomes_a_page",
    "tests/cli/test_report.py::test_bad_input_is_one_line",
    "tests/cli/test_report.py::test_without_computing",
    "tests/workflows/curvature/test_influential_samples.py::test_of_the_test_split",
    "tests/workflows/curvature/test_influential_samples.py::test_parts_and_rows",
    "tests/workflows/curvature/test_influential_samples.py::test_where_no_sample",
    "tests/workflows/curvature/test_measure_curvature.py::test_finite_differences_are_of",
    "tests/workflows/curvature/test_measure_curvature.py::test_labels",
    "tests/workflows/curvature/test_measurement_plan.py::test_few",
    "tests/workflows/curvature/test_measurement_plan.py::test_rows",
    "tests/workflows/curvature/test_measurement_plan.py::test_the",
    "tests/workflows/curvature/test_measurement_plan.py::test_too",
    "tests/workflows/curvature/test_measurement_plan.py::test_what",
)

_chosen: Tier = "all"


def choose(tier: Tier) -> None:
    """Take a tier, before any module of tests is imported."""
    global _chosen
    _chosen = tier


def draws(few: int = 20, most: int = 300) -> int:
    """Return how often a test of a share or a mean repeats its draw: ``few`` times in the fast tier."""
    return few if _chosen == "fast" else int(os.environ.get("FEDSCOPE_DRAWS", most))


def examples(most: int = 100) -> int:
    """Return how many examples Hypothesis tries."""
    return min(EXAMPLES, most) if _chosen == "fast" else most


def slack(repetitions: int, share: float = NOMINAL) -> float:
    """Return by how much the share of so many draws may be off; 0.03 with 300 draws."""
    return 2.4 * math.sqrt(share * (1 - share) / repetitions)


def nominal(hits: int, repetitions: int) -> bool:
    """Whether intervals that held the truth in ``hits`` of the draws claim what they hold."""
    return abs(hits / repetitions - NOMINAL) <= slack(repetitions)


def is_left_out(item: pytest.Item) -> bool:
    """Whether the fast tier does without a test."""
    if any(re.match(pattern, item.nodeid) for pattern in LEFT_OUT):
        return True
    return item.get_closest_marker("slow") is not None and not item.nodeid.startswith(KEPT)


def is_drawn(item: pytest.Item) -> bool:
    """Whether a test draws more in the rest than in the fast tier."""
    by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return bool(by_hypothesis) or item.get_closest_marker("drawn") is not None


def runs(item: pytest.Item) -> bool:
    """Whether the chosen tier has a test."""
    if _chosen == "fast":
        return not is_left_out(item)
    return _chosen == "all" or is_left_out(item) or is_drawn(item)
