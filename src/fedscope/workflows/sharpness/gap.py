"""The generalisation gap of one checkpoint, from the samples of its sharpness to those of the test split."""

import torch

from fedscope.choices import BatchNormMode
from fedscope.landscape.sharpness.perturbed_loss import Perturbed, error_rate
from fedscope.records.entries import Record
from fedscope.records.number_types import or_null
from fedscope.statistics.standard_errors import combined, data_stderr, drawn_stderr, finite_population
from fedscope.workflows.sources.problem import Problem

Level = tuple[float, tuple[float, float], float]  # loss, its (standard error, degrees of freedom), accuracy


def gap_entry(train: Problem, test: Problem, bn: BatchNormMode) -> Record:
    """Return loss and accuracy of both, whose batches tell errors, and their differences."""
    (loss, error, accuracy), (test_loss, test_error, test_accuracy) = _level(train, bn), _level(test, bn)
    stderr, dof = combined(error, test_error)
    return {
        "train_loss": loss,
        "test_loss": test_loss,
        "train_accuracy": accuracy,
        "test_accuracy": test_accuracy,
        "train_samples": train.batches.samples,
        "test_samples": test.batches.samples,
        "loss": test_loss - loss,
        "stderr": stderr,
        "dof": or_null(dof),
        "accuracy": accuracy - test_accuracy,
    }


def _level(problem: Problem, bn: BatchNormMode) -> Level:
    objective = Perturbed(problem.model, problem.loss_fn, problem.batches, bn=bn)
    nowhere = torch.zeros_like(objective.weights)
    losses, wrong = objective.values(nowhere), objective.values(nowhere, error_rate)
    factor = finite_population(problem.batches.samples, problem.batches.population)
    error = drawn_stderr(data_stderr(losses, objective.sizes), factor), len(objective.sizes) - 1
    return float(objective.mean(losses)), error, 1 - float(objective.mean(wrong))
