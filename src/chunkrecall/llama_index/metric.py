"""Recall@K as a metric of LlamaIndex's own retriever evaluators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.evaluation.retrieval.metrics import METRIC_REGISTRY
from llama_index.core.evaluation.retrieval.metrics_base import (
    BaseRetrievalMetric,
    RetrievalMetricResult,
)

from chunkrecall.matching import ChunkId, Matcher
from chunkrecall.metric import Cutoff, Cutoffs, check_ks, cutoff_name
from chunkrecall.records import Chunks, Dataset, Label, Query, Ranking
from chunkrecall.scoring import plan_scoring, score_ranking

if TYPE_CHECKING:
    from chunkrecall.report import QueryScore

_REGISTERED_CUTOFFS: tuple[Cutoff, ...] = (1, 3, 5, 10, None)


class RecallMetricResult(RetrievalMetricResult):
    """A metric result whose score is None where there is nothing to score against."""

    score: float | None  # type: ignore[assignment]  # the base knows no missing score

    def __float__(self) -> float:
        """The score.

        Raises:
            TypeError: There is none.
        """
        if self.score is None:
            raise TypeError(f"no score: {self.metadata.get('reason')}")
        return self.score


class RecallAtK(BaseRetrievalMetric):
    """Recall@K for `RetrieverEvaluator`: the share of the expected texts or ids in the first k.

    Compares texts where `expected_texts` are given, else ids. An empty retrieval is 0.0; without
    expected texts or ids the score is None. Metrics of several k stand side by side as "recall@1",
    "recall@5".

    Args:
        k: One cutoff or several. With several the score, and the name, are those of the largest;
            all of them are in the result's `metadata`.
        matcher: How labels are compared with chunks; exact text by default, ids where there are no
            expected texts.
        name: The metric's name in results, to have one k under two matchers.
    """

    k: Any = 5
    matcher: Any = None
    name: str | None = None

    def __init__(
        self, k: Cutoffs = 5, *, matcher: Matcher | None = None, name: str | None = None
    ) -> None:
        super().__init__(k=k, matcher=matcher, name=name)  # type: ignore[call-arg]  # pydantic's own
        self._cutoffs  # noqa: B018 - refuses a bad k now

    @property
    def metric_name(self) -> str:  # type: ignore[override]  # a class variable would collide
        """`recall@k`, by which an evaluator keeps the result."""
        return self.name or cutoff_name(self._cutoffs[-1])

    @property
    def _cutoffs(self) -> tuple[Cutoff, ...]:
        return check_ks(self.k)

    def compute(
        self,
        query: str | None = None,
        expected_ids: list[str] | None = None,
        retrieved_ids: list[str] | None = None,
        expected_texts: list[str] | None = None,
        retrieved_texts: list[str] | None = None,
        **kwargs: Any,
    ) -> RecallMetricResult:
        """The recall of one query.

        `expected_texts` and `expected_ids` of one length are the texts and ids of the same labels;
        otherwise those that the matcher reads are used.

        Raises:
            ValueError: What the matcher compares was not retrieved: texts were expected and there
                are only ids, or the other way round; or an expected text is blank.
        """
        for name, value in (("expected_ids", expected_ids), ("expected_texts", expected_texts)):
            if isinstance(value, (str, bytes)):  # its letters would be the labels
                raise TypeError(f"{name} must be a list, got {value!r:.80} — put it in a list")
        texts, ids = expected_texts or [], expected_ids or []
        by_id = isinstance(self.matcher, ChunkId) or (self.matcher is None and not texts)
        labels = expected_labels(texts, ids, by_id=by_id)
        if labels is not None and (retrieved_ids if by_id else retrieved_texts) is None:
            have, want = ("texts", "ids") if by_id else ("ids", "texts")
            raise ValueError(
                f"{self.metric_name}: {want} are expected and only {have} were retrieved; give "
                f"retrieved_{want}, or expected_{have}"
            )
        listed = retrieved_texts if retrieved_texts is not None else [""] * len(retrieved_ids or ())
        score = score_labels(
            labels,
            Chunks(list(listed), retrieved_ids),
            query=query or "",
            k=self._cutoffs,
            matcher=self.matcher,
        )
        return RecallMetricResult(
            score=score.recall[cutoff_name(self._cutoffs[-1])],
            metadata={
                **score.recall,
                "found": list(score.found),
                "missing": list(score.missing),
                "reason": score.reason,
            },
        )


def register_metrics(k: Cutoffs = _REGISTERED_CUTOFFS) -> tuple[str, ...]:
    """Make `from_metric_names(["recall@5"])` work; the names that can be used now.

    Registers "recall@1", "recall@3", "recall@5", "recall@10" and "recall@all", or those of the
    cutoffs given, beside LlamaIndex's own "recall". Calling it again changes nothing.

    Raises:
        ValueError: An invalid cutoff, or a name that is registered for another metric.
    """
    names = []
    for cutoff in check_ks(k):
        name = cutoff_name(cutoff)
        known = METRIC_REGISTRY.get(name)
        if known is None:
            METRIC_REGISTRY[name] = _metric_class(cutoff)
        elif not issubclass(known, RecallAtK):
            raise ValueError(f"the metric name {name!r} is taken by {known.__name__}")
        names.append(name)
    return tuple(names)


def expected_labels(texts: Sequence[str], ids: Sequence[str], *, by_id: bool) -> list[Label] | None:
    """The labels of one query; None where nothing is expected."""
    if texts and len(texts) == len(ids):
        pairs = zip(texts, ids, strict=True)
        return [Label(text=text, chunk_id=chunk_id) for text, chunk_id in pairs]
    if by_id:
        return [Label(chunk_id=chunk_id) for chunk_id in ids] or None
    return [Label(text=text) for text in texts] or None


def score_labels(
    labels: Sequence[Any] | None,
    chunks: Chunks,
    *,
    query: str,
    k: Cutoffs,
    matcher: Matcher | None,
) -> QueryScore:
    """The score of one list against labels; undefined where there are none."""
    plan = plan_scoring(
        Dataset([Query(query_id="q", text=query, relevant=labels)]),
        k=k,
        matcher=matcher,
        relevance_level=1,
        dedupe=False,
        exclude_self=False,
        no_relevant="exclude",
        on_error="record",
        keep_texts=True,
    )
    return score_ranking(plan, "q", Ranking(query_id="q", chunks=chunks))


def _metric_class(cutoff: Cutoff) -> type[RecallAtK]:
    """A metric that is made without arguments, as the registry does."""

    def __init__(self: RecallAtK) -> None:  # noqa: N807 - it becomes the method
        RecallAtK.__init__(self, cutoff)

    suffix = "All" if cutoff is None else str(cutoff)
    return type(f"RecallAt{suffix}", (RecallAtK,), {"__init__": __init__, "__module__": __name__})
