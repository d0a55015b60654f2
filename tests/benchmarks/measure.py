"""How everything here is timed: ours and a peer in turns, in one process, as ratios of medians.

Other programs share the machine, so seconds of two runs cannot be compared; seconds of one round
can. CPU time is taken unless waiting is what is measured.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    measure: str
    ours: str
    peer: str
    ratio: float | None
    target: str
    met: bool | None
    """None where there is no target."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured: all of it, or with --quick enough to see that it works."""

    queries: int = 10_000
    slow_queries: int = 500
    """Those that a sleeping retriever is asked."""
    rounds: int = 7
    interpreters: int = 15


QUICK = Settings(queries=1_000, slow_queries=160, rounds=3, interpreters=5)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way of computing the same thing."""

    prepare: Callable[[], Any]
    """Fresh inputs for each round, not timed: a str computes its hash only once."""
    run: Callable[[Any], Any]
    """What is timed."""
    read: Callable[[Any], object] = lambda outcome: outcome
    """What must be equal for all candidates."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of each candidate in each round."""

    seconds: dict[str, list[float]]

    def median_s(self, name: str) -> float:
        """The median over the rounds."""
        return median(self.seconds[name])

    def times_faster(self, name: str, peer: str) -> float:
        """How many times as fast the first is, the median over the rounds."""
        pairs = zip(self.seconds[peer], self.seconds[name], strict=True)
        return median(theirs / ours for theirs, ours in pairs)

    def extra_s(self, name: str, peer: str) -> float:
        """How much longer the first takes, the median over the rounds."""
        pairs = zip(self.seconds[name], self.seconds[peer], strict=True)
        return median(ours - theirs for ours, theirs in pairs)


def in_turns(
    candidates: dict[str, Candidate],
    *,
    rounds: int,
    clock: Callable[[], float] = process_time,
    agreeing: Collection[str] | None = None,
) -> Timings:
    """Time every candidate once a round, the order reversed from round to round.

    The garbage collector stays as a program has it. One more round goes first, untimed. All
    candidates must agree, or those named.

    Raises:
        ValueError: Two candidates do not agree on what they compute.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for number in range(rounds + 1):
        read: dict[str, object] = {}
        for name in names if number % 2 else reversed(names):
            candidate = candidates[name]
            inputs = candidate.prepare()
            gc.collect()
            started = clock()
            outcome = candidate.run(inputs)
            took = clock() - started
            read[name] = candidate.read(outcome)
            if number:
                seconds[name].append(took)
            del inputs, outcome
        values = [read[name] for name in names if agreeing is None or name in agreeing]
        if any(value != values[0] for value in values):
            raise ValueError(f"{', '.join(names)} do not compute the same")
    return Timings(seconds)


def faster_than(
    timings: Timings, measure: str, *, ours: str, peer: str, per: int, at_least: float | None
) -> Figure:
    """The row that says how many times as fast we are."""
    ratio = timings.times_faster(ours, peer)
    return Figure(
        measure=measure,
        ours=f"{per / timings.median_s(ours):,.0f} q/s",
        peer=f"{per / timings.median_s(peer):,.0f} q/s {peer}",
        ratio=ratio,
        target="" if at_least is None else f">= {at_least:g}",
        met=None if at_least is None else ratio >= at_least,
    )
