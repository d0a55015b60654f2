"""A retrieval evaluator of LlamaIndex with a run over a whole dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.evaluation.retrieval.base import (
    BaseRetrievalEvaluator,
    RetrievalEvalMode,
    RetrievalEvalResult,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from chunkrecall.formats import dataset_from_llama_index, load_dataset
from chunkrecall.llama_index.adapter import LlamaIndexAdapter
from chunkrecall.llama_index.metric import RecallAtK
from chunkrecall.llama_index.pipeline import Pipeline
from chunkrecall.metric import check_ks
from chunkrecall.records import Dataset, Query, as_dataset
from chunkrecall.retrieval import OnError, aretrieve, retrieve
from chunkrecall.scoring import NoRelevant, ScoringPlan, plan_scoring, score_plan

if TYPE_CHECKING:
    from pathlib import Path

    from llama_index.core.evaluation.retrieval.metrics_base import (
        BaseRetrievalMetric,
        RetrievalMetricResult,
    )

    from chunkrecall.llama_index.nodes import TextFrom
    from chunkrecall.matching import Matcher
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import DatasetInput, Run
    from chunkrecall.report import Report


class RetrieverRecallEvaluator(BaseRetrievalEvaluator):
    """Recall@K of a LlamaIndex retriever, before and after its node postprocessors.

    A `BaseRetrievalEvaluator`: `evaluate` and `aevaluate` give LlamaIndex's own result for one
    query; `evaluate_dataset` and `aevaluate_dataset` give a `Report`. No event loop is started for
    a retriever that can be called synchronously, so all of them work in a notebook.

    Args:
        retriever: A LlamaIndex retriever; an index, of which one is made as deep as the largest
            cutoff; or a query engine that can retrieve.
        node_postprocessors: Applied in order, to copies of the nodes.
        k: One cutoff or several.
        matcher: How labels are compared with chunks; as in `evaluate_retriever`.
        text_from: A metadata key, or a function of the node, that gives the chunk's text where the
            content does not hold it.
        metrics: Metrics of `evaluate` and `aevaluate`; `RecallAtK` at each cutoff by default.

    Raises:
        UnsupportedRetrieverError: The retriever cannot be asked for nodes.
        ValueError: An invalid cutoff, or two metrics with one name.
    """

    retriever: Any
    node_postprocessors: list[BaseNodePostprocessor] | None = None
    k: Any = 5
    matcher: Any = None
    text_from: Any = None
    _adapter: LlamaIndexAdapter = PrivateAttr()

    def __init__(
        self,
        *,
        retriever: object,
        node_postprocessors: Sequence[BaseNodePostprocessor] | None = None,
        k: Cutoffs = 5,
        matcher: Matcher | None = None,
        text_from: TextFrom = None,
        metrics: Sequence[BaseRetrievalMetric] | None = None,
    ) -> None:
        made: Sequence[Any] = (
            [RecallAtK(one, matcher=matcher) for one in check_ks(k)] if metrics is None else metrics
        )
        names = [metric.metric_name for metric in made]
        if len(set(names)) < len(names):
            raise ValueError(f"two metrics have one name, and one would be lost: {names}")
        fields: dict[str, Any] = {
            "metrics": list(made),
            "retriever": retriever,
            "node_postprocessors": None if node_postprocessors is None else [*node_postprocessors],
            "k": k,
            "matcher": matcher,
            "text_from": text_from,
        }
        super().__init__(**fields)  # pydantic's own constructor
        self._adapter = LlamaIndexAdapter(retriever, text_from=text_from)

    def evaluate(  # type: ignore[override]  # more may be left out than in the base
        self,
        query: str,
        expected_ids: list[str] | None = None,
        expected_texts: list[str] | None = None,
        mode: RetrievalEvalMode = RetrievalEvalMode.TEXT,
    ) -> RetrievalEvalResult:
        """LlamaIndex's own result for one query; without expected texts or ids its score is None.

        Raises:
            RetrievalError: The retriever, or a postprocessor, failed.
            NotImplementedError: A mode other than text.
        """
        run = retrieve(self._pipeline(), _one(query), depth=self._depth(), **_ONE_QUERY)
        return self._result(query, expected_ids, expected_texts, mode, run)

    async def aevaluate(  # type: ignore[override]  # more may be left out than in the base
        self,
        query: str,
        expected_ids: list[str] | None = None,
        expected_texts: list[str] | None = None,
        mode: RetrievalEvalMode = RetrievalEvalMode.TEXT,
    ) -> RetrievalEvalResult:
        """`evaluate` on the caller's event loop."""
        run = await aretrieve(self._pipeline(), _one(query), depth=self._depth(), **_ONE_QUERY)
        return self._result(query, expected_ids, expected_texts, mode, run)

    def evaluate_dataset(
        self,
        dataset: DatasetInput | str | Path | object,
        workers: int = 8,
        show_progress: bool | None = None,  # noqa: FBT001 - LlamaIndex's own signature
        *,
        relevance_level: int = 1,
        dedupe: bool = False,
        exclude_self: bool = False,
        no_relevant: NoRelevant = "exclude",
        on_error: OnError = "record",
        timeout_s: float | None = None,
        retries: int = 2,
        keep_texts: bool = True,
        name: str | None = None,
    ) -> Report:
        """Run the retriever over a labelled set; one failing query costs one row.

        With postprocessors, `report.stages` has a report for the retriever and for each of them.

        Args:
            dataset: A `Dataset` or mapping; an object or decoded JSON shaped like LlamaIndex's
                `EmbeddingQAFinetuneDataset` or `LabelledRagDataset`; or the path of such a JSON
                file or of a JSON Lines file.
            workers: How many calls may run at a time, at least 1.
            show_progress: True, False, or None: only on a terminal.
            relevance_level: As in `evaluate_retriever`, like all that follow.
            dedupe: Remove repeated chunks before the list is cut.
            exclude_self: Remove a chunk whose id is the query's.
            no_relevant: What a query gets that was judged to have nothing relevant.
            on_error: "record", "zero" or "raise".
            timeout_s: Seconds that one attempt may take, postprocessors included.
            retries: How often a query is asked again after a transient failure.
            keep_texts: Whether the report keeps the retrieved texts.
            name: The report's name; the retriever's class otherwise.

        Raises:
            DatasetError: The dataset has rows that cannot be read.
            ValueError: An invalid argument, or a label that the matcher cannot read.
            RetrievalError: A query failed and `on_error` is "raise".
        """
        plan = self._plan(
            dataset,
            relevance_level=relevance_level,
            dedupe=dedupe,
            exclude_self=exclude_self,
            no_relevant=no_relevant,
            on_error=on_error,
            keep_texts=keep_texts,
        )
        pipeline = self._pipeline()
        run = retrieve(
            pipeline,
            plan.dataset,
            depth=plan.depth,
            on_error=on_error,
            max_concurrency=workers,
            timeout_s=timeout_s,
            retries=retries,
            progress=show_progress,
            name=name,
        )
        return _report(pipeline, run, plan)

    async def aevaluate_dataset(
        self,
        dataset: DatasetInput | str | Path | object,
        workers: int = 8,
        show_progress: bool | None = None,  # noqa: FBT001 - LlamaIndex's own signature
        *,
        relevance_level: int = 1,
        dedupe: bool = False,
        exclude_self: bool = False,
        no_relevant: NoRelevant = "exclude",
        on_error: OnError = "record",
        timeout_s: float | None = None,
        retries: int = 2,
        keep_texts: bool = True,
        name: str | None = None,
    ) -> Report:
        """`evaluate_dataset` on the caller's event loop, which it never blocks."""
        plan = self._plan(
            dataset,
            relevance_level=relevance_level,
            dedupe=dedupe,
            exclude_self=exclude_self,
            no_relevant=no_relevant,
            on_error=on_error,
            keep_texts=keep_texts,
        )
        pipeline = self._pipeline()
        run = await aretrieve(
            pipeline,
            plan.dataset,
            depth=plan.depth,
            on_error=on_error,
            max_concurrency=workers,
            timeout_s=timeout_s,
            retries=retries,
            progress=show_progress,
            name=name,
        )
        return _report(pipeline, run, plan)

    async def _aget_retrieved_ids_and_texts(
        self, query: str, mode: RetrievalEvalMode = RetrievalEvalMode.TEXT
    ) -> tuple[list[str], list[str]]:
        """The ids and texts after the last postprocessor."""
        result = await self.aevaluate(query, mode=mode)
        return result.retrieved_ids, result.retrieved_texts

    def _result(
        self,
        query: str,
        expected_ids: list[str] | None,
        expected_texts: list[str] | None,
        mode: RetrievalEvalMode,
        run: Run,
    ) -> RetrievalEvalResult:
        if mode != RetrievalEvalMode.TEXT:
            raise NotImplementedError(f"mode {mode!r}: chunks are compared by text or id")
        chunks = run.rankings[0].chunks
        ids = [str(one) for one in chunks.chunk_ids or ("",) * len(chunks)]
        texts = list(chunks.texts)
        metrics: dict[str, RetrievalMetricResult] = {
            metric.metric_name: metric.compute(query, expected_ids, ids, expected_texts, texts)
            for metric in self.metrics
        }
        return RetrievalEvalResult(
            query=query,
            expected_ids=expected_ids or [],
            expected_texts=expected_texts,
            retrieved_ids=ids,
            retrieved_texts=texts,
            mode=mode,
            metric_dict=metrics,
        )

    def _pipeline(self) -> Pipeline:
        return Pipeline(self._adapter, self.node_postprocessors or ())

    def _depth(self) -> int | None:
        numbers = [one for one in check_ks(self.k) if one is not None]
        return max(numbers) if numbers else None

    def _plan(self, dataset: object, **rules: Any) -> ScoringPlan:
        return plan_scoring(_labelled(dataset), k=self.k, matcher=self.matcher, **rules)


_ONE_QUERY: dict[str, Any] = {"on_error": "raise", "max_concurrency": 1, "progress": False}


def _one(query: str) -> Dataset:
    return Dataset([Query(query_id="query", text=query)])


def _labelled(dataset: Any) -> Dataset:
    if isinstance(dataset, Dataset):
        return dataset
    if isinstance(dataset, str) or hasattr(dataset, "__fspath__"):
        return load_dataset(dataset)
    found = dataset_from_llama_index(dataset)
    if found is not None:
        return found
    if isinstance(dataset, (Mapping, Sequence)):
        return as_dataset(dataset)
    raise TypeError(
        f"cannot read labels from {type(dataset).__name__}: give a Dataset, a mapping of query "
        "texts to chunk texts, or an object with queries and relevant_docs, or with examples"
    )


def _report(pipeline: Pipeline, run: Run, plan: ScoringPlan) -> Report:
    report = score_plan(run, plan)
    stages = pipeline.stage_runs(run, {query.query_id: query.text for query in plan.dataset})
    if len(stages) <= 2:  # the retriever alone
        return report
    return replace(report, stages={stage.name: score_plan(stage, plan) for stage in stages})
