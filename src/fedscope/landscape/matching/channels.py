"""Axes of tensors as sequences of channels, and what is known of channels that stand in for each other.

An axis of length L is a sequence of pieces. A piece is a group of channels, in order, ``each`` positions per
channel; or positions that stay where they are (``FIXED``); or positions that are all equal, such as padded
zeros, which any order leaves as they are (``EQUAL``). A group starts with one axis of one tensor. Where two
axes meet, as summands, or as a weight's inputs and its operand's channels, their pieces are made the same:
a group is cut in two, given the meaning of another one, or fixed. So a permutation of a group moves all axes
that hold it together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

FIXED, EQUAL = -1, -2


@dataclass(frozen=True)
class Piece:
    """Consecutive positions of an axis."""

    group: int  # or FIXED, or EQUAL
    length: int  # positions
    each: int = 1  # positions per channel

    @property
    def movable(self) -> bool:
        return self.group >= 0


Axis = tuple[Piece, ...]


def fixed(length: int) -> Axis:
    return (Piece(FIXED, length),) if length else ()


def length_of(axis: Axis) -> int:
    return sum(piece.length for piece in axis)


def is_still(axis: Axis) -> bool:
    return not any(piece.movable for piece in axis)


class Channels:
    """Groups of channels, and which of them turned out to be others, in part or as a whole."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._meaning: dict[int, Axis] = {}
        self.pinned: set[str] = set()  # operations that left channels where they are

    def new(self, size: int) -> Axis:
        if size == 1:
            return fixed(1)
        self.sizes.append(size)
        return (Piece(len(self.sizes) - 1, size),)

    def resolved(self, axis: Axis) -> Axis:
        """Return the axis in terms of groups that stand for themselves; fixed neighbours as one."""
        found: list[Piece] = []
        for piece in self._expanded(axis):
            if found and not piece.movable and piece.group == found[-1].group:
                found[-1] = Piece(piece.group, found[-1].length + piece.length)
            else:
                found.append(piece if piece.movable else Piece(piece.group, piece.length))
        return tuple(found)

    def _expanded(self, axis: Axis) -> Axis:
        found: list[Piece] = []
        for piece in axis:
            meaning = self._meaning.get(piece.group)
            if meaning is None:
                found.append(piece)
            else:
                parts = (Piece(p.group, p.length * piece.each, p.each * piece.each) for p in meaning)
                found += self._expanded(tuple(parts))
        return tuple(found)

    def fix(self, axis: Axis, why: str = "") -> Axis:
        """Leave all channels of an axis where they are, and return the axis; ``why``: by which operation."""
        for piece in self.resolved(axis):
            if piece.movable and piece.group not in self._meaning:
                self._meaning[piece.group] = fixed(self.sizes[piece.group])
                if why:
                    self.pinned.add(why)
        return fixed(length_of(axis))

    def joined(self, one: Axis, other: Axis) -> Axis:
        found: list[Piece] = []
        left, right = self.resolved(one), self.resolved(other)
        while left and right:
            p, q = left[0], right[0]
            if p.length != q.length:
                left, right = self._cut(left, q.length), self._cut(right, p.length)
                left, right = self._expanded(left), self._expanded(right)
                continue
            found.append(self._same(p, q))
            left, right = self.resolved(left[1:]), self.resolved(right[1:])
        return self.resolved(tuple(found))

    def cut(self, axis: Axis, places: Sequence[int]) -> list[Axis]:
        """Return an axis cut before each of some ascending places, groups being cut with it."""
        found, rest, before = list[Axis](), self.resolved(axis), 0
        for place in places:
            head: list[Piece] = []
            want = place - before
            while want:
                rest = self._cut(self.resolved(rest), want)
                head.append(rest[0])
                want -= rest[0].length
                rest = rest[1:]
            found.append(tuple(head))
            before = place
        return [*found, rest]

    def _cut(self, axis: Axis, most: int) -> Axis:
        """Return the axis with a first piece of at most so many positions."""
        piece = axis[0]
        if piece.length <= most:
            return axis
        if not piece.movable:
            rest = Piece(piece.group, piece.length - most)
            return (Piece(piece.group, most), rest, *axis[1:])
        if most % piece.each:  # within a channel
            self.fix((piece,), "a cut within a channel")
        else:
            first = most // piece.each
            parts = (self.new(first), self.new(self.sizes[piece.group] - first))
            self._meaning[piece.group] = parts[0] + parts[1]
        return self._cut(self._expanded(axis), most)

    def _same(self, p: Piece, q: Piece) -> Piece:
        if p.group == EQUAL or q.group == EQUAL:
            return q if p.group == EQUAL else p
        if p.group == q.group:
            return p
        if not (p.movable and q.movable) or max(p.each, q.each) % min(p.each, q.each):
            self.fix((p, q))
            return Piece(FIXED, p.length)
        fine, coarse = (p, q) if p.each <= q.each else (q, p)
        self._meaning[fine.group] = (Piece(coarse.group, self.sizes[fine.group], coarse.each // fine.each),)
        return coarse


def merged(channels: Channels, axes: Sequence[Axis]) -> Axis:
    """Return consecutive axes as one, as ``view`` does; two that can both move are fixed."""
    whole = fixed(1)
    for axis in axes:
        outer, inner = channels.resolved(whole), channels.resolved(axis)
        if length_of(outer) == 1:
            whole = inner
        elif length_of(inner) == 1:
            whole = outer
        elif is_still(outer):  # the same channels, as often as the outer axis is long
            still = is_still(inner)
            whole = fixed(length_of(outer) * length_of(inner)) if still else inner * length_of(outer)
        elif is_still(inner):
            n = length_of(inner)
            whole = tuple(
                replace(piece, length=piece.length * n, each=piece.each * n)
                if piece.movable
                else Piece(FIXED, piece.length * n)
                for piece in outer
            )
        else:
            channels.fix(outer + inner, "a view")
            whole = fixed(length_of(outer) * length_of(inner))
    return whole


def divided(channels: Channels, axis: Axis, lengths: Sequence[int]) -> list[Axis]:
    """Return an axis as several of these lengths, as ``view`` does; what that would tear apart is fixed."""
    found: list[Axis] = []
    for place, length in enumerate(lengths):
        axis = channels.resolved(axis)
        inner = length_of(axis) // length
        if place == len(lengths) - 1:
            found.append(axis)
        elif length == 1:
            found.append(fixed(1))
        elif inner == 1:
            found.append(axis)
            axis = fixed(1)
        elif all(piece.movable and piece.each % inner == 0 for piece in axis):
            found.append(tuple(Piece(p.group, p.length // inner, p.each // inner) for p in axis))
            axis = fixed(inner)
        elif pattern := _period(axis, length):
            found.append(fixed(length))
            axis = pattern
        else:
            channels.fix(axis, "a view")
            found.append(fixed(length))
            axis = fixed(inner)
    return found


def _period(axis: Axis, times: int) -> Axis:
    """Return what an axis is ``times`` repetitions of; nothing where it is none."""
    if is_still(axis):
        return fixed(length_of(axis) // times)
    count = len(axis) // times
    pattern = axis[:count]
    return pattern if pattern * times == axis else ()
