"""Checked rules and labels: everything that can be refused before anything is retrieved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from chunkrecall.metric import Cutoff, Cutoffs, check_ks
from chunkrecall.records import Dataset, DatasetInput, as_dataset
from chunkrecall.scoring.labels import ActiveLabels, LabelPlan, plan_labels

if TYPE_CHECKING:
    from chunkrecall.matching import Matcher

NoRelevant = Literal["exclude", "zero", "one", "mlflow"]


@dataclass(frozen=True, kw_only=True)
class ScoringPlan:
    """Checked rules and labels: everything that can be refused before anything is retrieved."""

    dataset: Dataset
    labels: LabelPlan
    cutoffs: tuple[Cutoff, ...]
    relevance_level: int
    dedupe: bool
    exclude_self: bool
    no_relevant: NoRelevant
    on_error: str
    keep_texts: bool

    @property
    def depth(self) -> int | None:
        """The largest cutoff that is a number; None when there is none."""
        numbers = [k for k in self.cutoffs if k is not None]
        return max(numbers) if numbers else None

    def labels_of(self, query_id: str) -> ActiveLabels:
        """The active labels of one query."""
        return self._labels_by_id[query_id]

    @cached_property
    def _labels_by_id(self) -> dict[str, ActiveLabels]:
        ids = (query.query_id for query in self.dataset.queries)
        return dict(zip(ids, self.labels.queries, strict=True))

    def rules(self) -> dict[str, Any]:
        """The rules as plain JSON values."""
        return {
            "matcher": self.labels.matcher.describe(),
            "relevance_level": self.relevance_level,
            "dedupe": self.dedupe,
            "exclude_self": self.exclude_self,
            "no_relevant": self.no_relevant,
            "on_error": self.on_error,
        }


def plan_scoring(
    dataset: DatasetInput,
    *,
    k: Cutoffs,
    matcher: Matcher | None,
    relevance_level: int,
    dedupe: bool,
    exclude_self: bool,
    no_relevant: NoRelevant,
    on_error: str,
    keep_texts: bool,
) -> ScoringPlan:
    """Check the rules and settle the labels; arguments and errors are those of `score`."""
    if isinstance(relevance_level, bool) or not isinstance(relevance_level, int):
        raise TypeError(f"relevance_level must be an integer, got {relevance_level!r}")
    if relevance_level < 1:
        raise ValueError(f"relevance_level must be at least 1, got {relevance_level}")
    if no_relevant not in ("exclude", "zero", "one", "mlflow"):
        raise ValueError(
            f"no_relevant must be 'exclude', 'zero', 'one' or 'mlflow', got {no_relevant!r}"
        )
    if on_error not in ("record", "zero", "raise"):
        raise ValueError(f"on_error must be 'record', 'zero' or 'raise', got {on_error!r}")
    labelled = as_dataset(dataset)
    return ScoringPlan(
        dataset=labelled,
        labels=plan_labels(labelled, matcher, relevance_level),
        cutoffs=check_ks(k),
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant,
        on_error=on_error,
        keep_texts=keep_texts,
    )
