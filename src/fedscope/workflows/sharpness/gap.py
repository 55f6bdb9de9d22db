"""The generalisation gap of one checkpoint, from the samples of its sharpness to those of the test split."""

import math

import torch

from fedscope.choices import BatchNormMode
from fedscope.landscape.sharpness.objective import Perturbed, error_rate
from fedscope.records.entries import Record
from fedscope.statistics.intervals import data_stderr, finite_population
from fedscope.workflows.sources.problem import Problem

Level = tuple[float, float, float]  # loss, its standard error, accuracy


def gap_entry(train: Problem, test: Problem, bn: BatchNormMode) -> Record:
    """Return loss and accuracy of both, and their differences."""
    (loss, stderr, accuracy), (test_loss, test_stderr, test_accuracy) = _level(train, bn), _level(test, bn)
    return {
        "train_loss": loss,
        "test_loss": test_loss,
        "train_accuracy": accuracy,
        "test_accuracy": test_accuracy,
        "train_samples": train.batches.samples,
        "test_samples": test.batches.samples,
        "loss": test_loss - loss,
        "stderr": math.hypot(stderr, test_stderr),
        "accuracy": accuracy - test_accuracy,
    }


def _level(problem: Problem, bn: BatchNormMode) -> Level:
    objective = Perturbed(problem.model, problem.loss_fn, problem.batches, bn=bn)
    nowhere = torch.zeros_like(objective.weights)
    losses, wrong = objective.values(nowhere), objective.values(nowhere, error_rate)
    factor = finite_population(problem.batches.samples, problem.batches.population)
    stderr = factor**0.5 * data_stderr(losses, objective.sizes)
    return float(objective.mean(losses)), stderr, 1 - float(objective.mean(wrong))
