import math

import pytest
import torch
from torch import Tensor

from fedscope.landscape import Batches
from fedscope.landscape.published.engines import pyhessian_spectrum
from tests.landscape.cases import Case, convnet


def test_it_agrees_within_its_tolerance(case: Case, dense: Tensor) -> None:
    pair, trace = pyhessian_spectrum(case.model, case.loss_fn, case.batches, max_iter=1000, tol=1e-6)
    eigenvalues = torch.linalg.eigvalsh(dense)
    largest = eigenvalues[eigenvalues.abs().argmax()]
    assert float(pair.values[0]) == pytest.approx(float(largest), rel=1e-3)
    remainder = dense @ pair.vectors[:, 0] - largest * pair.vectors[:, 0]
    assert float(remainder.norm()) < 0.05 * float(largest)
    off_diagonal = dense - torch.diag(dense.diagonal())
    error = math.sqrt(2 * float((off_diagonal**2).sum()) / trace.probes)
    assert abs(trace.value - float(dense.trace())) < 4 * error
    assert trace.probes == trace.matvecs > 1
    assert pair.matvecs > 1


def test_what_it_cannot_say_is_nan() -> None:
    case = convnet()
    pair, trace = pyhessian_spectrum(case.model, case.loss_fn, case.batches, max_iter=5)
    assert bool(pair.residuals.isnan())
    assert bool(pair.stderr_data.isnan())
    assert not pair.converged
    assert math.isnan(trace.stderr_probe)
    assert math.isnan(trace.stderr_data)


def test_it_leaves_the_model_and_the_global_generator_alone() -> None:
    case = convnet()
    before = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    state = torch.random.get_rng_state()
    first = pyhessian_spectrum(case.model, case.loss_fn, case.batches, max_iter=3, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert case.model.training
    assert all(p.grad is None and p.requires_grad for p in case.model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in case.model.state_dict().items())
    again = pyhessian_spectrum(case.model, case.loss_fn, case.batches, max_iter=3, seed=5)
    other = pyhessian_spectrum(case.model, case.loss_fn, case.batches, max_iter=3, seed=6)
    assert first[1].value == again[1].value != other[1].value


def test_batch_statistics_reach_it() -> None:
    case = convnet()
    whole = Batches(case.inputs, case.targets, 26)
    stored = pyhessian_spectrum(case.model, case.loss_fn, whole, max_iter=3)
    batch = pyhessian_spectrum(case.model, case.loss_fn, whole, max_iter=3, bn="batch")
    assert stored[1].value != pytest.approx(batch[1].value, rel=1e-3)
