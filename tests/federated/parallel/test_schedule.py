"""Stacks, windows and assignment."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.federated.parallel.schedule import assign, stacks, windows
from tests import tiers

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@settings(max_examples=tiers.examples(), deadline=None)
@given(SIZES, st.integers(1, 5))
def test_stacks_hold_every_client_once_and_one_size_each(sizes: list[int], longest: int) -> None:
    made = stacks(range(len(sizes)), sizes.__getitem__, longest)
    assert sorted(client for stack in made for client in stack) == list(range(len(sizes)))
    assert all(len({sizes[c] for c in stack}) == 1 and len(stack) <= longest for stack in made)
    assert [stack[0] for stack in made] == sorted(stack[0] for stack in made)
    if longest == 1:
        assert made == [[client] for client in range(len(sizes))]


def test_windows_keep_the_order() -> None:
    assert [list(w) for w in windows([[0], [1], [2]], 2)] == [[[0], [1]], [[2]]]


@settings(max_examples=tiers.examples(), deadline=None)
@given(SIZES, st.integers(1, 6))
def test_the_heaviest_first_is_within_its_bound(loads: list[int], workers: int) -> None:
    taken = assign(loads, workers)
    assert sorted(place for places in taken for place in places) == list(range(len(loads)))
    assert all(
        [loads[p] for p in places] == sorted((loads[p] for p in places), reverse=True) for places in taken
    )
    longest = max(sum(loads[p] for p in places) for places in taken)
    assert longest <= sum(loads) / workers + max(loads)
    assert assign([7, 7, 6, 6, 5], 2) == [[0, 2, 4], [1, 3]]
