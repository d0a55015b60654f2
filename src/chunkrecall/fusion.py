"""Several runs over the same queries taken together: their union, and reciprocal-rank fusion.

Reciprocal-rank fusion gives a chunk the sum of 1 / (constant + rank) over the lists that have it
(Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
learning methods", SIGIR 2009, which sets the constant to 60).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal, TypeAlias, TypeVar

from chunkrecall.metric import check_k
from chunkrecall.records import Chunks, Ranking, Run
from chunkrecall.report import QueryScore, Report

Source: TypeAlias = "Run | Report"
_Source = TypeVar("_Source", Run, Report, "Run | Report")
Identity = Literal["text", "id"]

RRF_CONSTANT = 60


def reciprocal_rank_fusion(
    sources: Sequence[Source],
    *,
    constant: int = RRF_CONSTANT,
    by: Identity = "text",
    depth: int | None = None,
    name: str = "reciprocal-rank fusion",
) -> Run:
    """One run whose lists merge those of several by rank; scores are not looked at.

    A chunk repeated in one list counts at its first rank there. Ties go to the chunk that stands
    in the earlier source. A query that failed in a source is fused from the others.

    Args:
        sources: Runs, or reports that keep their texts; at least one.
        constant: Added to every rank, at least 0.
        by: What makes two chunks the same: their text, or their id where they have one.
        depth: How many chunks a fused list keeps; None for all.
        name: The run's name.

    Raises:
        ValueError: No source, a negative constant, or a report without texts.
    """
    if constant < 0:
        raise ValueError(f"constant must be at least 0, got {constant!r}")
    if by not in ("text", "id"):
        raise ValueError(f"by must be 'text' or 'id', got {by!r}")
    cut = check_k(depth)
    lists = [lists_of(source) for source in _some(sources)]
    query_ids = list(dict.fromkeys(query_id for one in lists for query_id in one))
    rankings = [
        Ranking(
            query_id=query_id,
            chunks=_fused([one[query_id] for one in lists if query_id in one], constant, by, cut),
        )
        for query_id in query_ids
    ]
    complete = all(source.complete for source in sources if isinstance(source, Run))
    settings = {"fusion": "reciprocal rank", "constant": constant, "by": by}
    return Run(name=name, rankings=rankings, settings=settings, complete=complete)


def union_report(reports: Sequence[Report], *, name: str = "union") -> Report:
    """The report of all retrievers together: a label counts at the best rank that any gave it.

    At cutoff k it reads up to k chunks of each retriever, so its recall is what a perfect reranker
    over all of them could reach. A query counts as scored where any retriever answered.

    Raises:
        ValueError: No report, or reports of different queries or labels.
    """
    first = _some(reports)[0]
    rows: list[QueryScore] = []
    for same in zip(*(_rows(report, first) for report in reports), strict=True):
        answered = [row for row in same if row.status == "scored"]
        if not answered:
            rows.append(same[0])
            continue
        if any(set(row.labels) != set(answered[0].labels) for row in answered):
            raise ValueError(
                f"query {same[0].query_id!r} has different labels in the reports: score the runs "
                "with one dataset and one matcher"
            )
        ranks = [
            min((r for row in answered if (r := row.ranks[label]) is not None), default=None)
            for label in answered[0].labels
        ]
        rows.append(replace(answered[0], label_ranks=tuple(ranks), retrieved=(), retrieved_ids=()))
    return replace(first, name=name, queries=tuple(rows), stages={}, run=None, notes=())


def lists_of(source: Source) -> dict[str, Chunks]:
    """The ranked chunks of each answered query, by its id.

    Raises:
        ValueError: A report that keeps no texts.
    """
    if isinstance(source, Run):
        return {one.query_id: one.chunks for one in source.rankings if one.error is None}
    found = {}
    for row in source.queries:
        if row.retrieved_count and not row.retrieved:
            raise ValueError(f"report {source.name!r} keeps no texts: make it with keep_texts=True")
        if row.status not in ("errored", "not_run"):
            found[row.query_id] = Chunks(row.retrieved, row.retrieved_ids or None)
    return found


def _fused(lists: Sequence[Chunks], constant: int, by: Identity, depth: int | None) -> Chunks:
    points: dict[Hashable, Fraction] = {}
    place: dict[Hashable, tuple[int, int]] = {}
    for number, chunks in enumerate(lists):
        seen: set[Hashable] = set()
        for index in range(len(chunks)):
            key = _identity(chunks, index, by, number)
            if key in seen:
                continue
            seen.add(key)
            # Exact, so that a tie does not depend on the order of adding.
            points[key] = points.get(key, Fraction(0)) + Fraction(1, constant + index + 1)
            place.setdefault(key, (number, index))
    order = sorted(points, key=lambda key: (-points[key], place[key]))[:depth]
    taken = [lists[place[key][0]][place[key][1]] for key in order]
    return Chunks.of(
        [replace(chunk, score=float(points[key])) for chunk, key in zip(taken, order, strict=True)]
    )


def _identity(chunks: Chunks, index: int, by: Identity, number: int) -> Hashable:
    chunk_id = None if chunks.chunk_ids is None else chunks.chunk_ids[index]
    text = chunks.texts[index]
    kinds = [("id", chunk_id), ("text", text)] if by == "id" else [("text", text), ("id", chunk_id)]
    # A chunk with neither is equal to no other.
    return next(((kind, value) for kind, value in kinds if value), (number, index))


def _rows(report: Report, first: Report) -> tuple[QueryScore, ...]:
    by_id = {row.query_id: row for row in report.queries}
    if set(by_id) != {row.query_id for row in first.queries}:
        raise ValueError(
            f"reports {first.name!r} and {report.name!r} are of different queries: score both "
            "runs with one dataset"
        )
    return tuple([by_id[row.query_id] for row in first.queries])


def _some(sources: Sequence[_Source]) -> Sequence[_Source]:
    if isinstance(sources, (Run, Report)) or not sources:
        raise ValueError("give a list of at least one run or report")
    return sources
