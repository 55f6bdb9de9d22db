"""Which settings printed accuracies are likely of: the entry ``search`` of an artefact."""

from fedscope.records.number_types import Count, Many
from fedscope.validation import Plain


class SearchCell(Plain):
    """A method's accuracy under a candidate, beside the printed one."""

    row: str  # label of the method in the paper
    quantity: str  # its name
    expected: float  # at the best number of rounds, mean over seeds [%]
    printed: float  # in the paper [%]


class SearchResult(Plain):
    """A candidate's training against the numbers of a printed column, at the rounds that fit best."""

    column: str  # label of the printed column
    candidate: str  # label of the settings
    # posterior under equal priors, of those that are long enough; None: too short, or the only one
    share: float | None
    rounds: Count  # T that fits best; of one that is too short its end [rounds]
    low: Count  # 2.5 % of the posterior of T are at most here [rounds]
    high: Count  # 97.5 % of it [rounds]
    end: Count  # of the training; T beyond it are not compared [rounds]
    short: bool  # whether the training ends below the printed accuracies
    log_evidence: float  # of the printed numbers, over all T
    p: float  # of numbers that fit no better, if these settings and T are right
    entries: Many[SearchCell]  # a number each


class SearchRecord(Plain):
    """Which settings and numbers of rounds the printed accuracies are likely of."""

    results: Many[SearchResult]  # by printed column; the likeliest first
    spread: dict[str, float]  # relative, between trainings, by quantity: pooled from the printed deviations
    trainings: Count  # in a printed mean
    correlation: float  # between the two numbers of a training
    common: float  # share of the variance that a seed gives to all methods alike
    dof: float  # degrees of freedom
    open: dict[str, str]  # settings that were not tried, and why
