"""The score of one query."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum
from typing import Any, Literal

from chunkrecall.metric import Cutoff, cutoff_name, depth_of, found_at
from chunkrecall.render import share
from chunkrecall.report.reason import recall_reason
from chunkrecall.statistics import ExactMean

Status = Literal["scored", "undefined", "errored", "not_run"]
STATUSES: tuple[Status, ...] = ("scored", "undefined", "errored", "not_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryScore:
    """What one labelled query got, at every cutoff.

    The ranks are what is kept; every number follows from them.
    """

    query_id: str
    text: str
    status: Status
    cutoffs: tuple[Cutoff, ...]
    """Ascending; None is the whole list."""
    labels: tuple[str, ...] = ()
    """The distinct labels that count: their texts (ids where the matcher reads ids)."""
    label_ranks: tuple[int | None, ...] = ()
    """For each label its first rank, 1-based, in the whole list; None if it is nowhere."""
    retrieved: tuple[str, ...] = ()
    """The texts of the scored list in rank order; empty when texts are not kept."""
    retrieved_ids: tuple[str | None, ...] = ()
    retrieved_count: int = 0
    """How many chunks the scored list has."""
    assigned: float | None = None
    """The value that a policy assigns to a query that is not scored; None without such a policy."""
    explanation: str | None = None
    """Why it is not scored, or what is special about its score."""
    error: str | None = None
    latency_s: float | None = None
    """Seconds that the retriever took, last attempt only."""
    tags: tuple[str, ...] = ()
    calls: tuple[dict[str, float | None], ...] = ()
    """Each call's recall where the query was retrieved several times; the last ones of many."""
    union: dict[str, float | None] | None = None
    """Recall of all those calls together: a label counts that any of them has in its first k."""
    repeats: tuple[tuple[int | None, ...], ...] = ()
    """The first ranks of the labels in each repeat that was answered, where the query was asked
    several times on purpose: recall, hit and complete are then means over them, everything else is
    that of the first; empty where it was asked once."""
    label_coverage: tuple[tuple[float, ...], ...] = ()
    """For each label the share of it that the chunks of each cutoff hold together, within [0, 1];
    empty where the matcher does not measure it."""
    exception: Exception | None = field(default=None, compare=False, repr=False)
    """The retriever's own exception; in memory only."""

    @property
    def recall(self) -> dict[str, float | None]:
        """Share of the labels found, by `recall@k`; None where there is no score."""
        return self._values("recall")

    @property
    def hit(self) -> dict[str, float | None]:
        """1.0 where any label was found, else 0.0, by `hit@k`; None where there is no score."""
        return self._values("hit")

    @property
    def complete(self) -> dict[str, float | None]:
        """1.0 where all labels were found, else 0.0, by `complete@k`; None where there is none."""
        return self._values("complete")

    @property
    def coverage(self) -> dict[str, float | None]:
        """The mean share of the labels that was found, by `coverage@k`; apart from recall.

        None where there is no score; empty where the matcher does not measure it.
        """
        if self.status != "scored":
            return {cutoff_name(k, "coverage"): self.assigned for k in self.cutoffs}
        if not self.label_coverage:
            return {}
        size = len(self.label_coverage)
        columns = zip(self.cutoffs, zip(*self.label_coverage, strict=True), strict=True)
        return {cutoff_name(k, "coverage"): fsum(shares) / size for k, shares in columns}

    @property
    def ranks(self) -> dict[str, int | None]:
        """Each label's first rank in the whole returned list, 1-based; None if it is nowhere."""
        return dict(zip(self.labels, self.label_ranks, strict=True))

    @property
    def found(self) -> tuple[str, ...]:
        """The labels found at the largest cutoff."""
        return tuple([x for x, rank in self.ranks.items() if _is_within(rank, self.cutoffs[-1])])

    @property
    def missing(self) -> tuple[str, ...]:
        """The labels not found at the largest cutoff."""
        return tuple(
            [x for x, rank in self.ranks.items() if not _is_within(rank, self.cutoffs[-1])]
        )

    @property
    def reason(self) -> str:
        """The score at the largest cutoff and what is missing, or why there is no score."""
        return self.reason_at(self.cutoffs[-1])

    def reason_at(self, k: Cutoff) -> str:
        """The score at one cutoff and what is missing there, or why there is no score."""
        if self.status != "scored":
            return f"no score: {self.explanation}"
        missing = [label for label, rank in self.ranks.items() if not _is_within(rank, k)]
        text = recall_reason(
            k,
            found=len(self.labels) - len(missing),
            relevant=len(self.labels),
            retrieved=self.retrieved,
            retrieved_count=self.retrieved_count,
            missing=missing,
            ranks=self.ranks,
        )
        if self.repeats:
            values = [call[cutoff_name(k)] or 0.0 for call in self.calls]
            shown = f"{share(min(values))} to {share(max(values))}"
            text = (
                f"{share(self.recall[cutoff_name(k)])} over {len(values)} repeats ({shown}); {text}"
            )
        return text if self.explanation is None else f"{text}; {self.explanation}"

    @property
    def spread(self) -> dict[str, float | None]:
        """The largest less the smallest recall of its repeats, by `recall@k`; None without any."""
        names = [cutoff_name(k) for k in self.cutoffs]
        if not self.repeats:
            return dict.fromkeys(names)
        values = {name: [call[name] or 0.0 for call in self.calls] for name in names}
        return {name: max(values[name]) - min(values[name]) for name in names}

    def found_counts(self, k: Cutoff) -> tuple[int, ...]:
        """How many labels the first k chunks satisfy, in each repeat, or in the only list."""
        return tuple(
            [
                found_at(sorted([rank for rank in ranks if rank is not None]), k)
                for ranks in self.repeats or (self.label_ranks,)
            ]
        )

    def sorted_ranks(self) -> list[int]:
        """The ranks of the labels that were retrieved, ascending."""
        return sorted([rank for rank in self.label_ranks if rank is not None])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Report.load` needs no more."""
        row = {
            "query_id": self.query_id,
            "text": self.text,
            "status": self.status,
            "recall": self.recall,
            "hit": self.hit,
            "complete": self.complete,
            "found": list(self.found),
            "missing": list(self.missing),
            "ranks": self.ranks,
            "retrieved": list(self.retrieved),
            "retrieved_ids": list(self.retrieved_ids),
            "retrieved_count": self.retrieved_count,
            "reason": self.reason,
            "explanation": self.explanation,
            "assigned": self.assigned,
            "error": self.error,
            "latency_s": self.latency_s,
            "tags": list(self.tags),
            "calls": [dict(call) for call in self.calls],
            "union": None if self.union is None else dict(self.union),
            "repeats": [list(ranks) for ranks in self.repeats],
        }
        if self.label_coverage:
            row["coverage"] = self.coverage
            row["label_coverage"] = [list(shares) for shares in self.label_coverage]
        return row

    def _values(self, measure: str) -> dict[str, float | None]:
        if self.status != "scored":
            return {cutoff_name(k, measure): self.assigned for k in self.cutoffs}
        size = len(self.labels)
        values: dict[str, float | None] = {}
        if self.repeats:
            for k in self.cutoffs:
                mean = ExactMean()
                for found in self.found_counts(k):
                    mean.add(*measured(measure, found, size))
                exact = mean.mean()
                values[cutoff_name(k, measure)] = None if exact is None else float(exact)
            return values
        ranks = self.sorted_ranks()
        for k in self.cutoffs:
            found = found_at(ranks, k)
            if measure == "hit":
                value = float(found > 0)
            elif measure == "complete":
                value = float(found == size)
            else:
                value = found / size
            values[cutoff_name(k, measure)] = value
        return values


def measured(measure: str, found: int, size: int) -> tuple[int, int]:
    """The value of a measure as a fraction, where that many of the labels were found."""
    if measure == "recall":
        return found, size
    return int(found > 0 if measure == "hit" else found == size), 1


def _is_within(rank: int | None, k: Cutoff) -> bool:
    return rank is not None and rank <= depth_of(k)
