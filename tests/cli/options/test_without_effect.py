"""Options that have no effect beside others are refused, with what to leave out, before anything is read."""

import pytest

from fedscope.checkpoints.file.settings import Settings
from fedscope.workflows.unused import SETTINGS
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "hessian --entry foo",
            "--entry has no effect without --model and --data; leave it out, or add",
        ),
        ("hessian --kind clients", "--kind has no effect without --figure; leave it out, or add --figure"),
        ("hessian --probes 9 --trace-rtol 0.1", "--trace-rtol has no effect with --probes; leave it out"),
        (
            "hessian --pairs distinct --client-rtol 1",
            "--pairs, --client-rtol have no effect without",
        ),
        (
            "hessian --clients --client-probes 4 --client-rtol 1",
            "--client-rtol has no effect with --client-probes",
        ),
        ("hessian --engine power --tol 0.1", "--tol has no effect with --engine power"),
        ("hessian --only lambda_max --probes 9", "--probes has no effect with --only lambda_max; leave it"),
        ("hessian --only lambda_max --trace-rtol 0.1", "--trace-rtol has no effect with --only lambda_max"),
        ("hessian --reading code --trace-rtol 0.1", "--trace-rtol has no effect with --engine pyhessian"),
        ("hessian --engine pyhessian --trace-rtol 0.1", "--trace-rtol has no effect with --engine pyhessian"),
        ("plot-landscape --seconds 2", "--seconds has no effect but on a film"),
        ("clients --figure x.png --seconds 3", "--seconds has no effect but on a film"),
        ("clients --seconds 3", "--seconds has no effect but on a film"),
        ("plot-landscape --out l.html --kind heat", "--kind has no effect on an .html page"),
        ("plot-landscape --directions line --kind heat", "--kind has no effect on a line"),
        ("train --partition iid --alpha 3", "--alpha has no effect with --partition iid; leave it out"),
        ("train --memory reset", "--memory has no effect with fedavg, whose clients remember nothing"),
        ("train --optimizer-state client", "--optimizer-state has no effect without --momentum"),
        ("train --local-steps 3 --epochs 2", "--epochs has no effect with --local-steps; leave it out"),
        ("train --straggler-min 2", "--straggler-min has no effect without --stragglers; leave it out"),
        ("train --stragglers 1 --straggler-min 3", "--straggler-min 3 is above 2 epochs; lower it"),
        ("train --lr-schedule cosine --lr-decay 0.9", "--lr-decay has no effect with --lr-schedule cosine"),
        ("train --lr-min 0.01", "--lr-min has no effect without --lr-schedule cosine; leave it out, or add"),
        ("train --adam-eps 0.1", "--adam-eps has no effect without --optimizer adam"),
        ("train --optimizer adam --momentum 0.9", "use --momentum 0 with adam, which has --adam-beta1"),
        ("train --lr-schedule step", "--lr-schedule step needs --lr-step"),
        ("train --lr-step 3", "--lr-schedule step needs --lr-step, the rounds from one drop to the next; no"),
        ("train --lr-schedule cosine --lr-min 1", "--lr-min 1 is above --lr 0.05; lower it"),
        ("train --shift fixed10 --shift-probability 0.2", "no effect without --shift bernoulli"),
        ("train --shift-metric mean_current", "--shift-metric has no effect without --shift"),
        (
            "train --local-steps 6 --keep-steps 7:0:all",
            "--keep-steps has no effect beyond the 6 local steps; leave it out",
        ),
        (
            "train --stragglers 0.5 --epochs 1",
            "--stragglers has no effect where even a straggler does all the work, as --straggler-min is 1; ",
        ),
        ("train --stragglers 0.9 --straggler-min 2", "--stragglers has no effect where even a straggler"),
        (
            "train --stragglers 0.1 --clients 8",
            "--stragglers has no effect on so few clients in a round, of which the share is less than one",
        ),
        (
            "train --lr-schedule cosine --lr-warmup 3 --rounds 3",
            "--lr-schedule has no effect as the rate never falls in 3 rounds, 3 of them warm-up; leave",
        ),
        ("train --lr-schedule step --lr-step 5 --rounds 5", "--lr-schedule, --lr-step have no effect as"),
        ("train --lr-decay 0.9 --lr-warmup 4 --rounds 5", "--lr-decay has no effect as the rate never falls"),
        ("hessian --dry-run --recompute", "--recompute has no effect with --dry-run; leave it out"),
        ("sharpness --kind values", "--kind has no effect without --figure; leave it out, or add --figure"),
        ("sharpness --entry foo", "--entry has no effect without --model and --data"),
        ("sharpness --only fisher_rao --m 3", "--m has no effect without a worst case, such as --only sam"),
        (
            "sharpness --only sam --steps 3 --reading code",
            "--steps, --reading have no effect without Auto-PGD, such as --only worst_l2",
        ),
        ("sharpness --only sam --pairs 3", "--pairs has no effect where nothing is drawn in pairs"),
        ("sharpness --only trace --normalize-logits", "--normalize-logits has no effect without worst"),
        ("sharpness --target 0.2", "--target has no effect without --only pac_bayes"),
        ("runs delete tiny --clients --local-steps", "--local-steps has no effect with --clients, which"),
        ("train --rounds 3 --keep-every 5", "--keep-every has no effect beyond the 3 rounds"),
        ("data plot-partition --partition iid --alpha 3", "--alpha has no effect with --partition iid"),
        ("runs tag tiny --remove", "--remove has no effect without tags"),
        (
            "runs add x.pt --model m:f --dataset mine --augmentation man",
            "--augmentation has no effect with a network of your own on data that fedscope lacks",
        ),
    ],
)
def test_an_option_without_effect_is_refused(fedscope: Command, line: str, message: str) -> None:
    done = fedscope(*line.split())
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_what_stands_in_the_environment_or_at_its_default_is_not(fedscope: Command) -> None:
    done = fedscope("data", "plot-partition", "--partition", "iid", "--clients", "4", "--out", "p.svg")
    assert done.code == 0, done.err
    again = fedscope("report", "--no-clients", "--client-probes", "9", "--grid", "9", "--record", "none.json")
    assert again.err.startswith("Error: no such file")


def test_the_last_round_may_be_one_that_is_kept() -> None:
    rule = next(rule for rule in SETTINGS if rule.parameters == "keep_every")
    assert [rule.have_effect(Settings(keep_every=every, rounds=5)) for every in (5, 6)] == [True, False]


def test_a_share_of_stragglers_counts_the_clients_of_a_round() -> None:
    (rule,) = (rule for rule in SETTINGS if rule.parameters == "stragglers" and "few clients" in rule.why)
    settings = [Settings(stragglers=0.1, clients=20, participation=share) for share in (0.5, 0.4)]
    assert [rule.have_effect(one) for one in settings] == [True, False]


def test_more_samples_than_there_are_are_told(fedscope: Command) -> None:
    done = fedscope("plot-landscape", "--samples", "99999999", "--grid", "3", "--directions", "random")
    assert done.code == 0, done.err
    assert "tiny@2: on all 1,437 samples, fewer than --samples 99,999,999\n" in done.err
