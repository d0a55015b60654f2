"""Several runs of one retriever over one dataset as one report, with what did not stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chunkrecall.metric import Cutoff, cutoff_name, found_at
from chunkrecall.render import count, quoted, share

if TYPE_CHECKING:
    from chunkrecall.report.query_score import QueryScore
    from chunkrecall.report.report import Report

_NAMED = 5


def merge_repeats(reports: Sequence[Report]) -> Report:
    """One report of the repeats of a run: each query's scores are means over its repeats.

    A query counts as scored where any repeat was answered, and its mean is over those. Its list,
    ranks and misses are those of the first answered repeat; `calls` has every answered repeat's
    recall, `union` that of all of them together.

    Args:
        reports: Of the same dataset and rules, in the order of their runs; at least one.
    """
    first = reports[0]
    if len(reports) == 1:
        return first
    rows = [_merged(rows) for rows in zip(*(report.queries for report in reports), strict=True)]
    seen = dict.fromkeys(note for report in reports for note in report.notes)
    merged = replace(first, queries=tuple(rows), notes=tuple(seen), repeats=len(reports))
    return replace(merged, notes=(*_notes(merged, reports), *merged.notes))


def _merged(rows: Sequence[QueryScore]) -> QueryScore:
    scored = [row for row in rows if row.status == "scored"]
    if not scored:
        return rows[0]
    failed = [row for row in rows if row.error is not None]
    explanation = scored[0].explanation
    if failed:
        told = f"{len(failed)} of {len(rows)} repeats failed: {failed[0].error}"
        explanation = told if explanation is None else f"{explanation}; {told}"
    least = [
        min((rank for rank in ranks if rank is not None), default=None)
        for ranks in zip(*(row.label_ranks for row in scored), strict=True)
    ]
    return replace(
        scored[0],
        repeats=tuple(row.label_ranks for row in scored),
        calls=tuple(row.recall for row in scored),
        union={cutoff_name(k): _recall(least, k) for k in scored[0].cutoffs},
        explanation=explanation,
    )


def _recall(ranks: Sequence[int | None], k: Cutoff) -> float:
    return found_at(sorted(rank for rank in ranks if rank is not None), k) / len(ranks)


def _notes(merged: Report, reports: Sequence[Report]) -> list[str]:
    """How far the repeats are apart: as means, and the queries that differ most."""
    name = cutoff_name(merged.cutoffs[-1])
    means = [m for report in reports if (m := report.summary[name].mean) is not None]
    notes = []
    if means:
        notes.append(
            f"{len(reports)} repeats of every query; the mean {name} of a repeat lies between "
            f"{share(min(means))} and {share(max(means))}"
        )
    unstable = merged.unstable
    if unstable:
        shown = [_range(query) for query in unstable[:_NAMED]]
        rest = f" and {len(unstable) - _NAMED} more" if len(unstable) > _NAMED else ""
        are = "is" if len(unstable) == 1 else "are"
        notes.append(
            f"{count(len(unstable), 'query', 'queries')} {are} unstable: {', '.join(shown)}{rest}"
        )
    return notes


def _range(query: QueryScore) -> str:
    """Like `'q12' (recall@5 0.000 to 1.000, found in 5 of 10)`, where the spread is largest."""
    name, _ = max(query.spread.items(), key=lambda item: item[1] or 0.0)
    values = [call[name] or 0.0 for call in query.calls]
    hits = sum(value > 0 for value in values)
    return (
        f"{quoted(query.query_id, limit=40)} ({name} {share(min(values))} to {share(max(values))}, "
        f"a hit in {hits} of {len(values)})"
    )
