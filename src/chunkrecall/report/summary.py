"""Means over queries, with what they were taken over."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import fsum
from typing import Any

from chunkrecall.metric import Cutoff, cutoff_name, found_at
from chunkrecall.report.query_score import QueryScore, measured
from chunkrecall.statistics import ExactMean

MEASURES = ("recall", "hit", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One measure at one cutoff over all queries.

    `scored + undefined + errored + not_run + unlabelled == total`.
    """

    mean: float | None
    """Per-query mean (macro) over `averaged_over` queries; None when there is none."""
    bound_low: float | None
    """The mean if every errored query had got 0."""
    bound_high: float | None
    """The mean if every errored query had got 1."""
    ceiling: float | None
    """The largest mean possible at this cutoff, where labels outnumber k; values that a policy
    assigned stay as they are."""
    pooled: float | None
    """Labels found over labels, all scored queries together (micro); recall only."""
    averaged_over: int
    """How many queries entered the mean, those with an assigned value included."""
    scored: int
    undefined: int
    errored: int
    not_run: int
    unlabelled: int
    total: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def summarize(
    queries: Sequence[QueryScore],
    cutoffs: Sequence[Cutoff],
    *,
    unlabelled: int,
    has_ceiling: bool,
) -> dict[str, Summary]:
    """A summary for each measure and cutoff, by names such as `recall@5`.

    `coverage@5` is among them where the matcher measured it.

    Args:
        queries: The rows to average.
        cutoffs: The cutoffs.
        unlabelled: How many retrievals belong to no labelled query.
        has_ceiling: Whether one chunk can satisfy one label only, so that k caps recall.
    """
    statuses = Counter(query.status for query in queries)
    scored = [
        (query.sorted_ranks(), len(query.labels))
        for query in queries
        if query.status == "scored" and not query.repeats
    ]
    repeated = [query for query in queries if query.status == "scored" and query.repeats]
    assigned = [(query.status, query.assigned) for query in queries if query.assigned is not None]
    summaries = {}
    for k in cutoffs:
        # Few pairs of labels found and labels stand for many queries.
        counts = Counter([(found_at(ranks, k), size) for ranks, size in scored])
        for measure in MEASURES:
            mean, most, pooled = _means(measure, k, counts, repeated)
            # Bounds put every errored query at 0 or 1, whatever a policy assigned to it.
            low = sum(int(value) for status, value in assigned if status != "errored")
            others = sum(status != "errored" for status, _ in assigned)
            errored = statuses["errored"]
            total = sum(int(value) for _, value in assigned)
            exact = mean.mean(extra=total, extra_count=len(assigned))
            ceiling = most.mean(extra=total, extra_count=len(assigned))
            is_capped = most.sum() < most.count
            bound_low = mean.mean(extra=low, extra_count=others + errored)
            bound_high = mean.mean(extra=low + errored, extra_count=others + errored)
            summaries[cutoff_name(k, measure)] = Summary(
                mean=None if exact is None else float(exact),
                bound_low=None if bound_low is None else float(bound_low),
                bound_high=None if bound_high is None else float(bound_high),
                ceiling=float(ceiling)
                if ceiling is not None and has_ceiling and is_capped
                else None,
                pooled=pooled if measure == "recall" else None,
                averaged_over=mean.count + len(assigned),
                scored=statuses["scored"],
                undefined=statuses["undefined"],
                errored=errored,
                not_run=statuses["not_run"],
                unlabelled=unlabelled,
                total=len(queries) + unlabelled,
            )
    if any(query.label_coverage for query in queries):
        for k in cutoffs:
            like = summaries[cutoff_name(k)]
            summaries[cutoff_name(k, "coverage")] = _coverage(queries, k, like)
    return summaries


def _coverage(queries: Sequence[QueryScore], k: Cutoff, like: Summary) -> Summary:
    """The mean coverage, over the queries that the mean recall is over."""
    name = cutoff_name(k, "coverage")
    values = [(query.status, query.coverage.get(name)) for query in queries]
    known = [value for _, value in values if value is not None]
    others = [value for status, value in values if value is not None and status != "errored"]
    size = len(others) + like.errored
    return replace(
        like,
        mean=fsum(known) / len(known) if known else None,
        bound_low=fsum(others) / size if size else None,
        bound_high=(fsum(others) + like.errored) / size if size else None,
        ceiling=None,
        pooled=None,
    )


def mean_per_label_set(queries: Iterable[QueryScore], k: Cutoff) -> float | None:
    """The mean recall over the distinct sets of labels, of each the mean over its queries."""
    sets: defaultdict[frozenset[str], ExactMean] = defaultdict(ExactMean)
    for query in queries:
        if query.status == "scored":
            found = query.found_counts(k)
            sets[frozenset(query.labels)].add(sum(found), len(query.labels) * len(found))
    means = [mean for one in sets.values() if (mean := one.mean()) is not None]
    return float(sum(means) / len(means)) if means else None


def _means(
    measure: str,
    k: Cutoff,
    counts: Mapping[tuple[int, int], int],
    repeated: Sequence[QueryScore],
) -> tuple[ExactMean, ExactMean, float | None]:
    """The mean, that of the largest values possible (recall only), and the pooled share."""
    mean, most = ExactMean(), ExactMean()
    found_labels = Fraction(0)
    labels = 0
    for (found, size), queries in counts.items():
        if measure == "recall":
            mean.add(found, size, times=queries)
            most.add(size if k is None else min(k, size), size, times=queries)
            found_labels += found * queries
            labels += size * queries
        else:
            mean.add(*measured(measure, found, size), times=queries)
    for query in repeated:  # each counts once, with the mean of its repeats
        size = len(query.labels)
        fractions = [measured(measure, found, size) for found in query.found_counts(k)]
        mean.add(sum(value for value, _ in fractions), fractions[0][1] * len(fractions))
        if measure == "recall":
            most.add(size if k is None else min(k, size), size)
            found_labels += Fraction(sum(value for value, _ in fractions), len(fractions))
            labels += size
    return mean, most, float(found_labels / labels) if labels else None
