"""The report: every query's score, the means, and what the reader should know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from chunkrecall.errors import DatasetError, MissingExtraError
from chunkrecall.metric import Cutoff, check_k, check_ks, cutoff_name
from chunkrecall.render import to_html, to_markdown, to_terminal
from chunkrecall.report.query_score import STATUSES, QueryScore
from chunkrecall.report.summary import MEASURES, Summary, mean_per_label_set, summarize
from chunkrecall.report.views import report_document

if TYPE_CHECKING:
    from pandas import DataFrame

    from chunkrecall.records import Dataset, Run

_Value = TypeVar("_Value")
_FORMAT = "chunkrecall-report"
_VERSION = 1
_FURTHER_COLUMNS = ("found", "missing", "retrieved_count", "error", "latency_s", "tags")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a retriever found of what it should have found.

    `print(report)` is a table; a notebook shows it formatted.
    """

    name: str
    """The run's name."""
    cutoffs: tuple[Cutoff, ...]
    """Ascending; None is the whole list."""
    queries: tuple[QueryScore, ...]
    """One row for each labelled query, in dataset order."""
    rules: Mapping[str, Any]
    """Which scoring rules ran: matcher, relevance level, dedupe, policies. Plain JSON values."""
    notes: tuple[str, ...] = ()
    """What a reader should know: merged labels, short lists, fallbacks."""
    dataset_name: str | None = None
    fingerprint_of: Dataset | str | None = field(default=None, compare=False, repr=False)
    """The dataset whose fingerprint is made when somebody asks, or the fingerprint itself."""
    unlabelled: int = 0
    """Retrievals that belong to no labelled query."""
    absent: int = 0
    """Scored queries that the run does not mention; they count as 0."""
    rejected: int = 0
    """Queries judged to have nothing relevant for which nothing was retrieved."""
    rejectable: int = 0
    """Answered queries that were judged to have nothing relevant."""
    has_ceiling: bool = True
    stages: Mapping[str, Report] = field(default_factory=dict)
    """A report of the same queries for each step of a pipeline of several, "final" being the last
    and equal to this one; empty where there is one step."""
    repeats: int = 1
    """How often every query was asked; see `QueryScore.repeats`."""
    matcher: object | None = field(default=None, compare=False, repr=False)
    """What compared labels and chunks; in memory only, `rules` has its name."""
    run: Run | None = field(default=None, compare=False, repr=False)
    """The scored run; in memory only."""

    @property
    def dataset_fingerprint(self) -> str | None:
        """What ids, texts, labels and tags the queries had; see `Dataset.fingerprint`."""
        known = self.fingerprint_of
        return known if known is None or isinstance(known, str) else known.fingerprint

    @cached_property
    def summary(self) -> dict[str, Summary]:
        """By `recall@5`, `hit@5`, `complete@5`, `recall@all`."""
        return summarize(
            self.queries,
            self.cutoffs,
            unlabelled=self.unlabelled,
            has_ceiling=self.has_ceiling,
        )

    def mean(
        self, k: SupportsIndex | None, *, per: Literal["query", "label_set"] = "query"
    ) -> float | None:
        """The mean recall at one of the report's cutoffs; None when no query was scored.

        Args:
            k: The cutoff.
            per: "label_set" first takes the mean over the queries that have the same labels, then
                over these sets, so that sixty paraphrases of one question count as one. Queries
                that only a policy gives a value are left out of it.

        Raises:
            ValueError: The report was not made at this cutoff.
        """
        if per not in ("query", "label_set"):
            raise ValueError(f"per must be 'query' or 'label_set', got {per!r}")
        cutoff = check_k(k)
        if cutoff not in self.cutoffs:
            known = ", ".join(cutoff_name(one) for one in self.cutoffs)
            raise ValueError(f"the report has no {cutoff_name(cutoff)}; it has {known}")
        if per == "label_set":
            return mean_per_label_set(self.queries, cutoff)
        return self.summary[cutoff_name(cutoff)].mean

    @property
    def correct_rejection(self) -> float | None:
        """Share of the queries with nothing relevant for which nothing was retrieved."""
        return self.rejected / self.rejectable if self.rejectable else None

    def by_tag(self) -> dict[str, dict[str, Summary]]:
        """The summary of the queries with each tag, tags in alphabetical order.

        A query with several tags counts for each. The printed report has it as a table.
        """
        tagged: dict[str, list[QueryScore]] = {}
        for query in self.queries:
            for tag in dict.fromkeys(query.tags):
                tagged.setdefault(tag, []).append(query)
        return {
            tag: summarize(tagged[tag], self.cutoffs, unlabelled=0, has_ceiling=self.has_ceiling)
            for tag in sorted(tagged)
        }

    @property
    def unstable(self) -> tuple[QueryScore, ...]:
        """The queries whose repeats differ in recall at some cutoff, the widest spread first."""
        spreads = [
            (max((value or 0.0 for value in query.spread.values()), default=0.0), query)
            for query in self.queries
            if query.repeats
        ]
        ordered = sorted(spreads, key=lambda pair: -pair[0])
        return tuple(query for spread, query in ordered if spread > 0)

    def worst(self, count: int = 10) -> tuple[QueryScore, ...]:
        """The errored queries, then the scored ones that miss something, lowest recall first."""
        name = cutoff_name(self.cutoffs[-1])

        def badness(query: QueryScore) -> tuple[bool, float]:
            return query.status == "scored", query.recall[name] or 0.0

        bad = [
            query
            for query in self.queries
            if query.status in ("errored", "not_run")
            or (query.status == "scored" and query.missing)
        ]
        return tuple(sorted(bad, key=badness)[:count])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: None where there is no score, never NaN."""
        row = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "k": list(self.cutoffs),
            "rules": dict(self.rules),
            "dataset": {"name": self.dataset_name, "fingerprint": self.dataset_fingerprint},
            "summary": {name: summary.to_dict() for name, summary in self.summary.items()},
            "correct_rejection": {"rejected": self.rejected, "of": self.rejectable},
            "absent": self.absent,
            "unlabelled": self.unlabelled,
            "has_ceiling": self.has_ceiling,
            "notes": list(self.notes),
            "queries": [query.to_dict() for query in self.queries],
        }
        if self.repeats > 1:
            row["repeats"] = self.repeats
        if self.stages:
            row["stages"] = {name: stage.to_dict() for name, stage in self.stages.items()}
        return row

    def to_json(self, *, indent: int | None = None) -> str:
        """The report as JSON text, ASCII only, so that any text survives any encoding."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the report as JSON; `Report.load` gives an equal one."""
        Path(path).write_text(self.to_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a report that `save` wrote.

        Raises:
            DatasetError: The file is no report of this version.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            row = json.loads(text, parse_constant=_refuse_constant)
            return cls.from_dict(row)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DatasetError(
                f"{path}: not a report that this version of chunkrecall reads "
                f"({type(error).__name__}: {error}) — write it with report.save(path)"
            ) from error

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Report:
        """The report that `to_dict` described.

        Raises:
            ValueError: It is something else.
        """
        if not isinstance(row, Mapping) or (row.get("format"), row.get("version")) != (
            _FORMAT,
            _VERSION,
        ):
            raise ValueError(f"expected format {_FORMAT!r} version {_VERSION}")
        cutoffs = check_ks(row["k"])
        if not isinstance(row["rules"]["matcher"], str):
            raise ValueError("rules: matcher must be a string")
        return cls(
            name=_typed(row["name"], str, "name"),
            cutoffs=cutoffs,
            queries=tuple(_query_score(query, cutoffs) for query in _list(row, "queries")),
            rules=row["rules"],
            notes=tuple(_list(row, "notes")),
            dataset_name=row["dataset"]["name"],
            fingerprint_of=row["dataset"]["fingerprint"],
            unlabelled=row["unlabelled"],
            stages={
                name: cls.from_dict(stage)
                for name, stage in _typed(row.get("stages", {}), dict, "stages").items()
            },
            absent=row["absent"],
            rejected=row["correct_rejection"]["rejected"],
            rejectable=row["correct_rejection"]["of"],
            has_ceiling=row["has_ceiling"],
            repeats=_typed(row.get("repeats", 1), int, "repeats"),
        )

    def to_pandas(self) -> DataFrame:
        """One row for each query, one column for each measure and cutoff; missing scores are NA.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", needed_for="Report.to_pandas()") from error
        has_coverage = any(query.label_coverage for query in self.queries)
        rows = [
            {
                "query_id": query.query_id,
                "text": query.text,
                "status": query.status,
                **query.recall,
                **query.hit,
                **query.complete,
                **(query.coverage if has_coverage else {}),
                "found": list(query.found),
                "missing": list(query.missing),
                "retrieved_count": query.retrieved_count,
                "error": query.error,
                "latency_s": query.latency_s,
                "tags": list(query.tags),
            }
            for query in self.queries
        ]
        names = (*MEASURES, "coverage") if has_coverage else MEASURES
        measures = [cutoff_name(k, measure) for measure in names for k in self.cutoffs]
        columns = ["query_id", "text", "status", *measures, *_FURTHER_COLUMNS]
        frame = pd.DataFrame(rows, columns=columns)
        return frame.astype(dict.fromkeys([*measures, "latency_s"], "Float64"))

    def to_markdown(self) -> str:
        """The tables as GitHub Markdown, every text escaped."""
        return to_markdown(report_document(self))

    def to_terminal(self, *, width: int | None = None, color: bool = False) -> str:
        """The tables for a terminal of this width (its own, or 100, by default)."""
        return to_terminal(report_document(self), width=width, color=color)

    def __str__(self) -> str:
        return self.to_terminal()

    def __repr__(self) -> str:
        means = ", ".join(
            f"{cutoff_name(k)}={self.summary[cutoff_name(k)].mean}" for k in self.cutoffs
        )
        return f"Report({self.name!r}, {len(self.queries)} queries, {means})"

    def _repr_html_(self) -> str:
        return to_html(report_document(self))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def _query_score(row: Mapping[str, Any], cutoffs: tuple[Cutoff, ...]) -> QueryScore:
    status = row["status"]
    if status not in STATUSES:
        raise ValueError(f"unknown status {status!r}")
    ranks = [None if rank is None else check_k(rank) for rank in row["ranks"].values()]
    if status == "scored" and not ranks:
        raise ValueError("ranks: a scored query has labels")
    if row["assigned"] not in (None, 0, 1):
        raise ValueError(f"assigned must be null, 0 or 1, got {row['assigned']!r}")
    return QueryScore(
        query_id=_typed(row["query_id"], str, "query_id"),
        text=_typed(row["text"], str, "text"),
        status=status,
        cutoffs=cutoffs,
        labels=tuple(row["ranks"]),
        label_ranks=tuple(ranks),
        retrieved=tuple(_list(row, "retrieved")),
        retrieved_ids=tuple(_list(row, "retrieved_ids")),
        retrieved_count=_typed(row["retrieved_count"], int, "retrieved_count"),
        assigned=row["assigned"],
        explanation=row["explanation"],
        error=row["error"],
        latency_s=row["latency_s"],
        tags=tuple(_list(row, "tags")),
        calls=tuple(dict(call) for call in row.get("calls", ())),
        union=row.get("union"),
        label_coverage=_shares(row.get("label_coverage", []), len(ranks), len(cutoffs)),
        repeats=tuple(
            tuple([None if rank is None else check_k(rank) for rank in one])
            for one in row.get("repeats", ())
        ),
    )


def _shares(rows: object, labels: int, cutoffs: int) -> tuple[tuple[float, ...], ...]:
    """The shares of each label at each cutoff; empty where the matcher did not measure them."""
    shares = tuple(tuple(_typed(row, list, "label_coverage")) for row in _typed(rows, list, "rows"))
    if shares and (len(shares) != labels or {len(row) for row in shares} != {cutoffs}):
        raise ValueError("label_coverage: a row for each label, a share for each cutoff")
    if not all(isinstance(one, (int, float)) and 0 <= one <= 1 for row in shares for one in row):
        raise ValueError("label_coverage: a share is within 0 and 1")
    return shares


def _list(row: Mapping[str, Any], field: str) -> list[Any]:
    return _typed(row[field], list, field)


def _typed(value: object, kind: type[_Value], field: str) -> _Value:
    if not isinstance(value, kind):
        raise TypeError(f"{field} must be a {kind.__name__}, got {value!r:.80}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
