"""Fixtures over the shared cases; dense Hessians are computed once per session."""

from collections.abc import Callable

import pytest
from torch import Tensor

from .cases import Case, convnet, mlp, partly_used

_BUILDERS: dict[str, Callable[[], Case]] = {"mlp": mlp, "convnet": convnet, "partly_used": partly_used}


@pytest.fixture(params=sorted(_BUILDERS))
def case(request: pytest.FixtureRequest) -> Case:
    return _BUILDERS[request.param]()


@pytest.fixture(scope="session")
def _matrices() -> dict[str, Tensor]:
    return {name: build().dense() for name, build in _BUILDERS.items()}


@pytest.fixture
def dense(case: Case, _matrices: dict[str, Tensor]) -> Tensor:
    return _matrices[case.name]
