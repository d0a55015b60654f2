"""What each change would bring, computed from the lists at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chunkrecall.diagnosis.case import Case
from chunkrecall.diagnosis.result import Remedy
from chunkrecall.diagnosis.systematic import Key, Rule
from chunkrecall.fusion import reciprocal_rank_fusion, union_report
from chunkrecall.metric import Cutoff, depth_of
from chunkrecall.report import QueryScore, Report
from chunkrecall.scoring import score
from chunkrecall.statistics import ExactMean

if TYPE_CHECKING:
    from chunkrecall.diagnosis.causes import Finding
    from chunkrecall.diagnosis.rules import Rules
    from chunkrecall.diagnosis.terms import Terms

_LADDER = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)


class Gains:
    """Recall after some of the misses have become hits."""

    def __init__(self, report: Report, k: Cutoff) -> None:
        self._rows = [row for row in report.queries if row.status == "scored"]
        self._k = k
        self.before = self.recall(())

    def recall(self, recovered: Collection[Key]) -> float:
        """The mean recall at the cutoff, where these misses count as found; 0 without any query."""
        mean = ExactMean()
        for row in self._rows:
            found = sum(
                _within(rank, self._k) or (row.query_id, label) in recovered
                for label, rank in row.ranks.items()
            )
            mean.add(found, len(row.labels))
        exact = mean.mean()
        return 0.0 if exact is None else float(exact)

    def remedy(
        self, action: str, kind: str, recovered: Collection[Key], k: Cutoff = None
    ) -> Remedy:
        """The remedy that recovers these misses, measured at k."""
        return Remedy(
            action=action,
            kind=kind,
            k=k,
            recall=self.recall(recovered),
            before=self.before,
            recovers=len(recovered),
        )


def remedies(
    cases: Sequence[tuple[Case, Sequence[Finding]]],
    rules_that_help: Sequence[Rule],
    *,
    report: Report,
    others: Sequence[Report],
    rules: Rules,
    terms: Terms,
) -> Iterator[Remedy]:
    """Every remedy whose effect can be computed, and that has one."""
    k = rules.k
    gains = Gains(report, k)
    for rule in rules_that_help:
        yield gains.remedy(rule.action, "matching", rule.recovers, k)
    yield from _repeats(cases, gains, k)
    yield from _limits(cases, gains, k)
    yield from _depths([case for case, _ in cases], gains, k, terms)
    yield from _together(report, others, rules, gains, terms)


def _repeats(
    cases: Sequence[tuple[Case, Sequence[Finding]]], gains: Gains, k: Cutoff
) -> Iterator[Remedy]:
    crowded = {_key(case) for case, found in cases for one in found if one.cause == "crowded_out"}
    if crowded:
        yield gains.remedy("remove repeats before the cut (dedupe=True)", "repeats", crowded, k)


def _limits(
    cases: Sequence[tuple[Case, Sequence[Finding]]], gains: Gains, k: Cutoff
) -> Iterator[Remedy]:
    for cause, limit in (("filtered", "filter"), ("below_threshold", "threshold")):
        back = {
            _key(case)
            for case, found in cases
            for one in found
            if one.cause == cause and int(one.details["rank"]) <= depth_of(k)
        }
        if back:
            yield gains.remedy(f"lift the {limit}", "limits", back, k)


def _depths(cases: Sequence[Case], gains: Gains, k: Cutoff, terms: Terms) -> Iterator[Remedy]:
    """Recall at every deeper cutoff that was fetched, on a ladder and at the last rank in use."""
    ranks: Mapping[Key, int] = {
        _key(case): rank for case in cases if (rank := case.best_rank) is not None
    }
    if not ranks or k is None:
        return
    deepest = max(ranks.values())
    steps = [step for step in _LADDER if k < step < deepest] + [deepest]
    last = -1
    for step in steps:
        reached = {key for key, rank in ranks.items() if rank <= step}
        if len(reached) > max(last, 0) and step > k:
            last = len(reached)
            yield gains.remedy(terms.depth(step), "depth", reached, step)


def _together(
    report: Report, others: Sequence[Report], rules: Rules, gains: Gains, terms: Terms
) -> Iterator[Remedy]:
    missed = _missed(report, rules.k)
    for other in others:
        union = union_report([report, other])
        yield Remedy(
            action=f"union with {other.name}: both lists, up to {rules.k or 'all'} of each",
            kind="hybrid",
            k=rules.k,
            recall=Gains(union, rules.k).before,
            before=gains.before,
            recovers=len(missed - _missed(union, rules.k)),
        )
        if not all(row.retrieved or not row.retrieved_count for row in other.queries):
            continue
        fused = reciprocal_rank_fusion(
            [report, other], by="id" if rules.reads_ids and _have_ids(report, other) else "text"
        )
        rescored = score(fused, rules.dataset, k=rules.k, **rules.scoring)
        yield Remedy(
            action=f"reciprocal-rank fusion with {other.name}: {terms.hybrid()}",
            kind="hybrid",
            k=rules.k,
            recall=Gains(rescored, rules.k).before,
            before=gains.before,
            recovers=len(missed - _missed(rescored, rules.k)),
        )


def _have_ids(*reports: Report) -> bool:
    return all(any(row.retrieved_ids) for one in reports for row in one.queries if row.retrieved)


def _missed(report: Report, k: Cutoff) -> set[Key]:
    return {
        (row.query_id, label)
        for row in report.queries
        if row.status == "scored"
        for label, rank in row.ranks.items()
        if not _within(rank, k)
    }


def missed_labels(row: QueryScore, k: Cutoff) -> list[str]:
    """The labels of a scored query that are not in its first k."""
    if row.status != "scored":
        return []
    return [label for label, rank in row.ranks.items() if not _within(rank, k)]


def _within(rank: int | None, k: Cutoff) -> bool:
    return rank is not None and rank <= depth_of(k)


def _key(case: Case) -> Key:
    return case.lists.query.query_id, case.wanted.name
