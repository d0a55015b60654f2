"""Retriever and dataset in, report out: retrieval and scoring in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkrecall.retrieval import OnError, Only, aretrieve, retrieve
from chunkrecall.scoring import NoRelevant, plan_scoring, score_plan

if TYPE_CHECKING:
    from pathlib import Path

    from chunkrecall.matching import Matcher
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import DatasetInput
    from chunkrecall.report import Report

_DEFAULT_K = (1, 3, 5, 10)


def evaluate_retriever(
    retriever: object,
    dataset: DatasetInput,
    *,
    k: Cutoffs = _DEFAULT_K,
    matcher: Matcher | None = None,
    relevance_level: int = 1,
    dedupe: bool = False,
    exclude_self: bool = False,
    no_relevant: NoRelevant = "exclude",
    on_error: OnError = "record",
    max_concurrency: int = 8,
    timeout_s: float | None = None,
    retries: int = 2,
    use_threads: bool = False,
    checkpoint: str | Path | None = None,
    only: Only = "missing",
    progress: bool | None = None,
    keep_texts: bool = True,
    name: str | None = None,
) -> Report:
    """Run a retriever over labelled queries and score what it returns.

    The retriever is called once per query, whatever the number of cutoffs, and k is never passed
    to it: only where an index or a vector store is given is a retriever made here, as deep as the
    largest k. Works in a notebook, where an event loop runs already.

    Args:
        retriever: A LangChain BaseRetriever, Runnable or VectorStore; a LlamaIndex retriever,
            index or query engine; or a function from a query text to texts, Documents, nodes or
            Chunks, sync or async.
        dataset: A `Dataset`, or a mapping `{"query text": ["relevant chunk", …]}`.
        k: One cutoff or several, each at least 1; None is the whole list.
        matcher: How labels are compared with chunks; exact text by default, ids where every label
            is an id alone.
        relevance_level: The grade from which on a label counts, at least 1.
        dedupe: Remove repeated chunks before the list is cut; otherwise a repeat occupies its slot.
        exclude_self: Remove a chunk whose id is the query's.
        no_relevant: What a query gets that was judged to have nothing relevant: nothing
            ("exclude"), 0, 1, or with "mlflow" 1 when nothing was retrieved and 0 otherwise.
        on_error: What a failing query does: "record" leaves it out of the mean and counts it,
            "zero" also gives it 0, "raise" stops the run.
        max_concurrency: How many calls may run at a time, at least 1.
        timeout_s: Seconds that one attempt may take.
        retries: How often a query is asked again after a transient failure.
        use_threads: Call in threads even where the retriever has an async method.
        checkpoint: A file to which each ranked list is appended as it finishes. A run that was
            killed goes on from it with exactly the queries it lacks.
        only: "errored" also asks those again that failed in the checkpoint.
        progress: True, False, or None: only on a terminal.
        keep_texts: Whether the report keeps the retrieved texts; without them it takes at most
            about 1 kB a query.
        name: The report's name; the retriever's own otherwise.

    Raises:
        UnsupportedRetrieverError: The object cannot be asked for chunks.
        ValueError: An invalid argument, or a label that the matcher cannot read; before anything
            is retrieved.
        DatasetError: One label with different grades; or a checkpoint of another run.
        RetrievalError: A query failed and `on_error` is "raise".
    """
    plan = plan_scoring(
        dataset,
        k=k,
        matcher=matcher,
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant,
        on_error=on_error,
        keep_texts=keep_texts,
    )
    run = retrieve(
        retriever,
        plan.dataset,
        depth=plan.depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    return score_plan(run, plan)


async def aevaluate_retriever(
    retriever: object,
    dataset: DatasetInput,
    *,
    k: Cutoffs = _DEFAULT_K,
    matcher: Matcher | None = None,
    relevance_level: int = 1,
    dedupe: bool = False,
    exclude_self: bool = False,
    no_relevant: NoRelevant = "exclude",
    on_error: OnError = "record",
    max_concurrency: int = 8,
    timeout_s: float | None = None,
    retries: int = 2,
    use_threads: bool = False,
    checkpoint: str | Path | None = None,
    only: Only = "missing",
    progress: bool | None = None,
    keep_texts: bool = True,
    name: str | None = None,
) -> Report:
    """`evaluate_retriever` on the caller's event loop, which it never blocks.

    Retrievers without native async code run in our own threads. Arguments and errors are those of
    `evaluate_retriever`.
    """
    plan = plan_scoring(
        dataset,
        k=k,
        matcher=matcher,
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant,
        on_error=on_error,
        keep_texts=keep_texts,
    )
    run = await aretrieve(
        retriever,
        plan.dataset,
        depth=plan.depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    return score_plan(run, plan)
