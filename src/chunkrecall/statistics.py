"""Means that are exact: per-query recalls are fractions, and so is their mean until it is shown."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction


class ExactMean:
    """Sum of fractions found/total, kept by denominator, so that 4/5 on paper is 4/5 here."""

    __slots__ = ("_numerators", "count")

    def __init__(self) -> None:
        self._numerators: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        """How many values have been added."""

    def add(self, found: int, total: int, *, times: int = 1) -> None:
        """Add the value found/total, as often as `times` says."""
        self._numerators[total] += found * times
        self.count += times

    def sum(self) -> Fraction:
        """The exact sum."""
        return sum(
            (Fraction(found, total) for total, found in self._numerators.items()), Fraction(0)
        )

    def mean(self, *, extra: int = 0, extra_count: int = 0) -> Fraction | None:
        """The exact mean with `extra_count` further values that sum to `extra`; None of nothing."""
        size = self.count + extra_count
        return (self.sum() + extra) / size if size else None
