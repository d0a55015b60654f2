"""Thresholds that a report must reach: for continuous integration, the command line and pytest.

A gate is never green for want of measurements: a query that failed or was not asked counts against
the coverage, which must be whole unless less is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Literal, SupportsIndex

from chunkrecall.errors import GateError
from chunkrecall.metric import Cutoff, check_k, cutoff_name, depth_of
from chunkrecall.render import count, markdown, quoted, share
from chunkrecall.report import measured
from chunkrecall.statistics import ExactMean

if TYPE_CHECKING:
    from chunkrecall.report import QueryScore, Report

Measure = Literal["recall", "hit"]
_WRITTEN = re.compile(r"(?P<min>[^@:]+)@(?P<k>[^@:]+)(:(?P<tag>.+))?")
_COARSEST = 1_000
"""Reachable means are named where there are at most so many."""
_LISTED = 10
_LABELS_LISTED = 3
_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The least mean at one cutoff, of all queries or of those with one tag."""

    at: Cutoff
    min: Fraction
    measure: Measure = "recall"
    tag: str | None = None

    def __str__(self) -> str:
        of = "" if self.tag is None else f" of {quoted(self.tag, limit=_SHOWN)}"
        return f"{cutoff_name(self.at, self.measure)}{of} at least {_decimal(self.min)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One threshold and what was measured."""

    threshold: Threshold
    value: Fraction | None
    """The exact mean; None where no query was scored."""
    over: int
    """How many queries the mean is over."""
    measured: int
    """Queries that were scored, of those that should have been: all, or those with the tag."""
    expected: int
    note: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the mean is there and reaches the threshold."""
        return self.value is not None and self.value >= self.threshold.min

    def __str__(self) -> str:
        value = "nothing was measured" if self.value is None else share(float(self.value))
        verdict = "met" if self.passed else "MISSED"
        over = count(self.over, "query", "queries")
        text = f"{verdict}: {self.threshold}; it is {value} over {over}"
        return text if self.note is None else f"{text} ({self.note})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Whether a report is good enough, and whether enough was measured to say so."""

    checks: tuple[Check, ...]
    measured: int
    """Queries that were scored, of those that should have been."""
    expected: int
    min_coverage: Fraction
    excluded: tuple[QueryScore, ...] = ()
    """Queries that were left out, with what was measured of them."""

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured, and as much as was asked for, also of every tag."""
        return self._is_enough(self.measured, self.expected) and not self._short()

    @property
    def passed(self) -> bool:
        """Whether enough was measured and every threshold is met."""
        return self.is_measured and all(check.passed for check in self.checks)

    def lines(self) -> tuple[str, ...]:
        """One line a threshold, and one for the coverage where it is short."""
        lines = [str(check) for check in self.checks]
        lines += self._coverage()
        if self.excluded:
            shown = ", ".join(self._outside(query) for query in self.excluded)
            lines.append(f"left out of the gate, and reported: {shown}")
        return tuple(lines)

    def to_markdown(self) -> str:
        """A summary for a pull request, every text escaped."""
        rows = [
            f"| {'✅' if one.passed else '❌'} | {markdown(str(one.threshold))} | "
            f"{'—' if one.value is None else share(float(one.value))} | {one.over} |"
            for one in self.checks
        ]
        verdict = "met" if self.passed else "missed" if self.is_measured else "not measured"
        head = [f"### Recall gate: {verdict}", ""]
        table = ["| | threshold | measured | queries |", "|---|---|---|---|", *rows]
        further = [
            text for line in self.lines()[len(self.checks) :] for text in ("", markdown(line))
        ]
        return "\n".join([*head, *table, *further]) + "\n"

    def _is_enough(self, measured: int, expected: int) -> bool:
        return measured > 0 and Fraction(measured, expected) >= self.min_coverage

    def _short(self) -> list[Check]:
        """The checks of which too little was measured."""
        return [
            one
            for one in self.checks
            if one.value is None or not self._is_enough(one.measured, one.expected)
        ]

    def _coverage(self) -> list[str]:
        """What is short: everything in one line, else each tag in its own."""
        if not self.measured:
            return ["nothing was measured: no query was scored"]
        if not self._is_enough(self.measured, self.expected):
            return [self._too_little(self.measured, self.expected, None)]
        short = {one.threshold.tag: one for one in self._short()}
        return [self._too_little(one.measured, one.expected, tag) for tag, one in short.items()]

    def _too_little(self, measured: int, expected: int, tag: str | None) -> str:
        of = "" if tag is None else f" with the tag {quoted(tag, limit=_SHOWN)}"
        return (
            f"too little was measured: {measured} of {expected} queries{of}, and at least "
            f"{_decimal(self.min_coverage)} of them are asked for"
        )

    def _outside(self, query: QueryScore) -> str:
        """A query that was left out, with its own value for each threshold."""
        shown = quoted(query.query_id, limit=_SHOWN)
        if query.status != "scored":
            return f"{shown} {query.status}"
        names = dict.fromkeys((one.threshold.at, one.threshold.measure) for one in self.checks)
        values = {**query.recall, **query.hit}
        parts = [cutoff_name(at, measure) for at, measure in names]
        return " ".join([shown, *[f"{name} {share(values[name])}" for name in parts]])


def threshold(text: str, measure: Measure = "recall") -> Threshold:
    """The threshold that a text such as `0.8@5`, `80%@all` or `0.7@5:a tag` means.

    Raises:
        ValueError: It is none.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"a threshold is written like 0.8@5 or 0.8@5:tag, got {text!r}")
    word = found["k"].strip()
    if word != "all" and not word.isdecimal():
        raise ValueError(f"a threshold's cutoff is a number or all, got {word!r} in {text!r}")
    cutoff = None if word == "all" else check_k(int(word))
    return Threshold(at=cutoff, min=exact(found["min"], "min"), measure=measure, tag=found["tag"])


def exact(value: object, name: str) -> Fraction:
    """The share that a number or a text means, exactly as it is written in decimals.

    Raises:
        ValueError: It is no share within 0 and 1.
    """
    text = str(value).strip()
    try:
        number = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a share such as 0.8, got {value!r}") from None
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError(f"{name} must be within 0 and 1, got {value!r}")
    return number


def check_gate(
    report: Report,
    thresholds: Iterable[Threshold],
    *,
    min_coverage: object = 1,
    exclude_ids: Collection[str] = (),
    baseline: Report | None = None,
    max_drop: object = 0,
) -> GateResult:
    """Hold a report against thresholds.

    Args:
        report: What was measured.
        thresholds: The least means.
        min_coverage: The share of the queries with labels that must have been scored, of all of
            them and of those with each threshold's tag.
        exclude_ids: Queries that are left out of the gate, being unstable or under repair; they
            stay in the report.
        baseline: An earlier report: no mean recall that both have may be lower by more than
            `max_drop`.
        max_drop: How much lower than the baseline is allowed.

    Raises:
        TypeError: The ids are one string.
        ValueError: A cutoff or tag that the report lacks, an id it does not have, a share that is
            none, or a baseline over another dataset.
    """
    if isinstance(exclude_ids, (str, bytes)):
        raise TypeError(f"exclude_ids takes a list of query ids, got {exclude_ids!r:.100}")
    unknown = sorted(set(exclude_ids) - {query.query_id for query in report.queries})
    if unknown:
        raise ValueError(f"the report has no queries {unknown!r:.200} to exclude")
    left_out = set(exclude_ids)
    kept = [query for query in report.queries if query.query_id not in left_out]
    wanted = list(thresholds)
    if baseline is not None:
        wanted += _from_baseline(report, baseline, exact(max_drop, "max_drop"), exclude_ids)
    checks = tuple(_check(one, kept, report) for one in wanted)
    measured, expected = _covered(kept)
    return GateResult(
        checks=checks,
        measured=measured,
        expected=expected,
        min_coverage=exact(min_coverage, "min_coverage"),
        excluded=tuple(query for query in report.queries if query.query_id in left_out),
    )


def assert_recall(
    report: Report,
    at: SupportsIndex | None = 5,
    min: object = 0.8,  # noqa: A002 - the contract's name
    *,
    tag: str | None = None,
    min_coverage: object = 1,
    exclude_ids: Collection[str] = (),
) -> None:
    """Nothing, if the mean recall at a cutoff reaches a minimum and everything was measured.

    A mean of exactly 0.8 reaches 0.8. For tests: the error is an AssertionError too, and lists the
    queries and chunks that were missed.

    Args:
        report: What was measured.
        at: One of the report's cutoffs; None is the whole list.
        min: The least mean, within 0 and 1.
        tag: Of the queries with this tag only.
        min_coverage: The share of the queries with labels that must have been scored, of all of
            them and of those with the tag. Everything, if it is not given.
        exclude_ids: Queries that are left out of the mean and of the coverage.

    Raises:
        GateError: The mean is lower, or too little was measured.
        TypeError: The ids are one string.
        ValueError: A cutoff or tag that the report lacks, or a share that is none.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    wanted = Threshold(at=check_k(at), min=exact(min, "min"), tag=tag)
    result = check_gate(report, [wanted], min_coverage=min_coverage, exclude_ids=exclude_ids)
    if not result.passed:
        misses = _misses(report, wanted, exclude_ids)
        raise GateError("\n".join([*result.lines(), *misses]))


def _check(wanted: Threshold, queries: Sequence[QueryScore], report: Report) -> Check:
    if wanted.at not in report.cutoffs:
        known = ", ".join(cutoff_name(one) for one in report.cutoffs)
        raise ValueError(f"the report has no {cutoff_name(wanted.at)}; it has {known}")
    if wanted.tag is not None:
        tags = sorted({tag for query in report.queries for tag in query.tags})
        if wanted.tag not in tags:
            raise ValueError(f"no query has the tag {wanted.tag!r}; there are {tags!r:.200}")
        queries = [query for query in queries if wanted.tag in query.tags]
    value, over = _mean(wanted, queries)
    measured, expected = _covered(queries)
    return Check(
        threshold=wanted,
        value=value,
        over=over,
        measured=measured,
        expected=expected,
        note=_reachable(wanted, queries, over),
    )


def _covered(queries: Iterable[QueryScore]) -> tuple[int, int]:
    """How many queries were scored, and how many should have been: those with labels."""
    statuses = [query.status for query in queries if query.status != "undefined"]
    return statuses.count("scored"), len(statuses)


def _mean(wanted: Threshold, queries: Iterable[QueryScore]) -> tuple[Fraction | None, int]:
    mean = ExactMean()
    assigned, extra = 0, 0
    for query in queries:
        if query.status != "scored":
            if query.assigned is not None:
                assigned += 1
                extra += int(query.assigned)
            continue
        size = len(query.labels)
        values = [measured(wanted.measure, n, size) for n in query.found_counts(wanted.at)]
        mean.add(sum(value for value, _ in values), values[0][1] * len(values))
    return mean.mean(extra=extra, extra_count=assigned), mean.count + assigned


def _reachable(wanted: Threshold, queries: Iterable[QueryScore], over: int) -> str | None:
    """The means on both sides of a threshold that no mean of so few queries can equal."""
    sizes = [
        (1 if wanted.measure == "hit" else len(query.labels)) * max(1, len(query.repeats))
        for query in queries
        if query.status == "scored"
    ]
    steps = over * lcm(*sizes) if sizes else 0
    if not steps or steps > _COARSEST or (wanted.min * steps).denominator == 1:
        return None
    below = int(wanted.min * steps)
    between = f"{share(below / steps)} and {share((below + 1) / steps)}"
    return f"the reachable values beside it are {between}"


def _from_baseline(
    report: Report, baseline: Report, max_drop: Fraction, exclude_ids: Collection[str]
) -> list[Threshold]:
    if report.dataset_fingerprint != baseline.dataset_fingerprint:
        raise ValueError("the baseline is a report over another dataset, or over changed labels")
    if report.rules["matcher"] != baseline.rules["matcher"]:
        raise ValueError(
            f"the baseline was matched by {baseline.rules['matcher']}, and this report by "
            f"{report.rules['matcher']}: score both with the same matcher"
        )
    kept = [query for query in baseline.queries if query.query_id not in set(exclude_ids)]
    found = []
    for cutoff in report.cutoffs:
        if cutoff in baseline.cutoffs:
            mean, _ = _mean(Threshold(at=cutoff, min=Fraction(0)), kept)
            if mean is not None:
                found.append(Threshold(at=cutoff, min=max(Fraction(0), mean - max_drop)))
    return found


def _misses(report: Report, wanted: Threshold, exclude_ids: Collection[str]) -> list[str]:
    """The queries that keep the mean down, failed ones first, then the lowest at this cutoff."""
    name = cutoff_name(wanted.at)
    left_out = set(exclude_ids)
    of_all = [query for query in report.queries if query.query_id not in left_out]
    kept = [one for one in of_all if wanted.tag is None or wanted.tag in one.tags]
    bad = [one for one in kept if one.status in ("errored", "not_run")]
    low = [one for one in kept if one.status == "scored" and (one.recall[name] or 0) < 1]
    bad += sorted(low, key=lambda query: query.recall[name] or 0)
    lines = []
    for query in bad[:_LISTED]:
        head = f"  {quoted(query.query_id, limit=_SHOWN)}"
        if query.status != "scored":
            lines.append(f"{head} {query.status}: {quoted(query.error or '', limit=_SHOWN)}")
            continue
        missed = _missed(query, wanted.at)
        more = f" and {len(missed) - _LABELS_LISTED} more" if len(missed) > _LABELS_LISTED else ""
        shown = ", ".join(missed[:_LABELS_LISTED])
        lines.append(f"{head} {name} {share(query.recall[name])}, missed: {shown}{more}")
    if len(bad) > _LISTED:
        lines.append(f"  and {count(len(bad) - _LISTED, 'more query', 'more queries')}")
    return lines


def _missed(query: QueryScore, at: Cutoff) -> list[str]:
    """The labels beyond the cutoff, each with its rank or the number of repeats that missed it."""
    lists = query.repeats or (query.label_ranks,)
    missed = []
    for label, *ranks in zip(query.labels, *lists, strict=True):
        beyond = [rank for rank in ranks if rank is None or rank > depth_of(at)]
        if not beyond:
            continue
        where = "" if beyond[0] is None else f" (at rank {beyond[0]})"
        if query.repeats:
            where = f" (in {len(beyond)} of {len(lists)} repeats)"
        missed.append(f"{quoted(label, limit=_SHOWN)}{where}")
    return missed


def _decimal(value: Fraction) -> str:
    """As it was written, where decimals can say it."""
    return f"{float(value):g}"
