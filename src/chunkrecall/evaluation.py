"""Retriever and dataset in, report out: retrieval and scoring in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from chunkrecall.render import count
from chunkrecall.report import merge_repeats
from chunkrecall.retrieval import (
    MAX_PERMANENT_ERRORS,
    Asking,
    OnError,
    Only,
    RateLimitInput,
    aask,
    ask,
    check_count,
    known_queries,
)
from chunkrecall.scoring import (
    NoRelevant,
    ScoringPlan,
    StreamedScores,
    plan_scoring,
    score_plan,
)

if TYPE_CHECKING:
    from pathlib import Path

    from chunkrecall.matching import Matcher
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import Dataset, DatasetInput, Run
    from chunkrecall.report import Report
    from chunkrecall.retrieval import Keep

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
    rate_limit: RateLimitInput = None,
    max_permanent_errors: int | None = MAX_PERMANENT_ERRORS,
    repeats: int = 1,
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
        rate_limit: How many calls may start in a period, further attempts included: "100/min",
            "10/s", or (calls, seconds). Waiting for it is no part of a query's latency.
        max_permanent_errors: After how many refusals in a row (status 4xx other than 408 and 429,
            or an authentication error) the run stops; the queries left are not run. None asks
            every query all the same.
        repeats: How often every query is asked, for retrievers that are not deterministic. Scores
            are means over the repeats; `report.unstable` has the queries that differ. A checkpoint
            `run.jsonl` then gets companions `run.2.jsonl` and so on.
        use_threads: Call in threads even where the retriever has an async method.
        checkpoint: A file to which each ranked list is appended as it finishes. A run that was
            killed goes on from it with exactly the queries it lacks.
        only: "errored" also asks those again that failed in the checkpoint.
        progress: True, False, or None: only on a terminal.
        keep_texts: Whether the report keeps the retrieved texts; without them it takes at most
            about 1 kB a query, and each list is scored and let go as it comes.
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
    how = Asking.of(
        depth=plan.depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        rate_limit=rate_limit,
        max_permanent_errors=max_permanent_errors,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    return evaluate_plan(retriever, plan, how, repeats=repeats)


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
    rate_limit: RateLimitInput = None,
    max_permanent_errors: int | None = MAX_PERMANENT_ERRORS,
    repeats: int = 1,
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
    how = Asking.of(
        depth=plan.depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        rate_limit=rate_limit,
        max_permanent_errors=max_permanent_errors,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    passes = Passes(plan, how, repeats)
    for one in passes:
        one.scored(await aask(retriever, plan.dataset, one.how, keep=one.keep))
    return passes.report()


def evaluate_plan(
    retriever: object,
    plan: ScoringPlan,
    how: Asking,
    *,
    repeats: int = 1,
    on_run: Callable[[Run, int], None] | None = None,
) -> Report:
    """The report of a retriever under checked rules and limits.

    Args:
        retriever: Whatever `evaluate_retriever` takes.
        plan: Rules and labels.
        how: The limits of the retrieval.
        repeats: How often every query is asked.
        on_run: Is called with each run and its number from 1, as soon as it has ended.
    """
    passes = Passes(plan, how, repeats)
    for number, one in enumerate(passes, start=1):
        run = ask(retriever, plan.dataset, one.how, keep=one.keep)
        one.scored(run)
        if on_run is not None:
            on_run(run, number)
    return passes.report()


class Passes:
    """The repeats of a run, one after another, each scored as it ends.

    Raises:
        TypeError: repeats is no integer.
        ValueError: repeats is below 1.
    """

    def __init__(self, plan: ScoringPlan, how: Asking, repeats: int) -> None:
        check_count("repeats", repeats, least=1)
        self._plan = plan
        self._how = how
        self._repeats = repeats
        self._reports: list[Report] = []

    def __iter__(self) -> Iterator[_Pass]:
        for number in range(1, self._repeats + 1):
            one = _Pass(self._plan, numbered(self._how, number))
            yield one
            self._reports.append(one.report)
            if not one.is_complete:
                return  # it was stopped, and so would the next be

    def report(self) -> Report:
        """What all of them together found."""
        merged = merge_repeats(self._reports)
        missing = self._repeats - len(self._reports)
        if not missing:
            return merged
        note = f"{missing} of {self._repeats} repeats were not run: the one before was stopped"
        return replace(merged, notes=(note, *merged.notes))


class _Pass:
    """One run over all queries."""

    def __init__(self, plan: ScoringPlan, how: Asking) -> None:
        self._plan = plan
        self.how = how
        self._streamed = None if plan.keep_texts else StreamedScores(plan)
        self.keep: Keep | None = None if self._streamed is None else self._streamed.keep
        self.is_complete = False
        self.report: Report

    def scored(self, run: Run) -> None:
        """The run has ended."""
        self.is_complete = run.complete
        if self._streamed is None:
            self.report = score_plan(run, self._plan)
        else:
            self.report = self._streamed.report(run)


def numbered(how: Asking, number: int) -> Asking:
    """The settings of one repeat: from the second on, `run.jsonl` becomes `run.2.jsonl`."""
    path = how.checkpoint
    return how if path is None else replace(how, checkpoint=numbered_path(path, number))


def numbered_path(path: Path, number: int) -> Path:
    """Where a repeat's file lies: the first has the path itself, the second `name.2.suffix`."""
    return path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How often a run would call its retriever."""

    queries: int
    repeats: int
    known: int
    """Lists that the checkpoints hold already."""
    calls: int
    """Calls of the retriever, one for each query and repeat that is left."""
    most: int
    """The same if every attempt but the last failed."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "inner_calls": None}

    def __str__(self) -> str:
        known = f", {self.known} known from the checkpoint" if self.known else ""
        repeats = f" x {self.repeats} repeats" if self.repeats > 1 else ""
        return (
            f"{count(self.calls, 'retriever call', 'retriever calls')}: "
            f"{count(self.queries, 'query', 'queries')}{repeats}{known}; at most {self.most} with "
            "retries. How many calls of models and indexes each of them makes inside (query "
            "rewriting, embedding, reranking) is not known beforehand."
        )


def count_calls(retriever: object, dataset: Dataset, how: Asking, *, repeats: int = 1) -> Calls:
    """How often `evaluate_plan` would call the retriever, which is not called for it.

    Raises:
        UnsupportedRetrieverError: The retriever cannot be asked.
        DatasetError: A checkpoint is of another run.
        TypeError: repeats is no integer.
        ValueError: repeats is below 1.
    """
    check_count("repeats", repeats, least=1)
    left = known = 0
    for number in range(1, repeats + 1):
        done = known_queries(retriever, dataset, numbered(how, number))
        known += done
        left += len(dataset) - done
    return Calls(
        queries=len(dataset),
        repeats=repeats,
        known=known,
        calls=left,
        most=left * (1 + how.limits.retries),
    )
