"""What a recorder keeps of one labelled query."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chunkrecall.metric import cutoff_name, found_at
from chunkrecall.recording.stages import Stage

if TYPE_CHECKING:
    from chunkrecall.records import Ranking
    from chunkrecall.report import QueryScore, Report

_MOST_CALLS = 1_000

Ranks = tuple[int | None, ...]


@dataclass(slots=True, eq=False)
class Call:
    """One retrieval that has started."""

    key: Hashable
    name: str
    query_id: str | None
    started: float
    scope: object
    enclosing: Call | None = None
    """The retrieval it was started in, as far as the handler knows; it may prove dead."""
    is_inner: bool = False
    """Whether that is certain, not only likely."""
    is_open: bool = True
    inner: list[Stage] = field(default_factory=list)
    waiting: list[tuple[Call, Ranking]] = field(default_factory=list)
    """Likely inner retrievals that have ended; they are outermost if this one never ends."""


@dataclass(slots=True, eq=False)
class QueryState:
    """The last retrieval of one labelled query, and the ranks of those before it."""

    last: Ranking
    unscored: Call | None = None
    """The last retrieval, until somebody asks for its score or another one replaces it."""
    calls: list[Ranks] = field(default_factory=list)  # a deque takes 600 bytes for one
    """The first ranks of the labels in each call."""
    union_ranks: Ranks | None = None
    """The smallest of them over all calls."""
    stage: Stage | None = None
    rankings: dict[str, Ranking] = field(default_factory=dict)
    """The last call's ranking of each stage, by its name."""

    def add_ranks(self, ranks: Ranks) -> None:
        """Count one more call."""
        if len(self.calls) == _MOST_CALLS:
            del self.calls[0]
        self.calls.append(ranks)
        self.union_ranks = _least(self.union_ranks, ranks)


def with_calls(report: Report, states: dict[str, QueryState]) -> Report:
    """The report with each call's recall, and the union's, on queries retrieved several times."""
    rows = []
    for row in report.queries:
        state = states.get(row.query_id)
        if state is not None and len(state.calls) > 1 and state.union_ranks is not None:
            calls = tuple(_recall(row, ranks) for ranks in state.calls)
            row = replace(row, calls=calls, union=_recall(row, state.union_ranks))  # noqa: PLW2901
        rows.append(row)
    return replace(report, queries=tuple(rows))


def _recall(row: QueryScore, label_ranks: Ranks) -> dict[str, float | None]:
    """Recall at the row's cutoffs, had its labels these first ranks."""
    ranks = sorted(rank for rank in label_ranks if rank is not None)
    size = len(label_ranks)
    return {cutoff_name(k): found_at(ranks, k) / size if size else None for k in row.cutoffs}


def _least(best: Ranks | None, ranks: Ranks) -> Ranks:
    """For each label the smaller of two ranks, where None is none at all."""
    if best is None or best == ranks:
        return ranks
    return tuple(
        b if a is None else a if b is None else min(a, b) for a, b in zip(best, ranks, strict=True)
    )
