"""What `record_recall` costs a retrieval, and how our evaluator compares with the stock one."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from llama_index.core import instrumentation
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from tests.benchmarks.loop_overhead import by_retrieve
from tests.benchmarks.measure import Candidate, Figure, Settings, in_turns
from tests.benchmarks.scripted import CHUNKS, LlamaIndex, Script

from chunkrecall.llama_index import RecallAtK, RetrieverRecallEvaluator, record_recall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chunkrecall import Dataset

    Inputs = tuple[LlamaIndex, Dataset]

_TARGET_US = 40.0
_TIMES_LESS = 5.0
_STOCK_QUERIES = 1_000


class Empty(BaseSpanHandler[BaseSpan]):
    """Attached like ours, and empty."""

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


def figures(settings: Settings) -> Iterator[Figure]:
    """The recorder first, then the evaluator over a whole dataset."""
    yield recorder(settings)
    yield evaluator(settings)


def recorder(settings: Settings) -> Figure:
    """One retriever, as many queries as the loop's benchmark has."""
    queries = settings.queries // 2
    script = Script.of(queries)

    def prepare() -> Inputs:
        return LlamaIndex(script.nodes()), script.dataset()

    def attached() -> tuple[Inputs, ExitStack]:
        inputs, block = prepare(), ExitStack()
        block.enter_context(record_recall(inputs[1], CHUNKS))
        return inputs, block

    timings = in_turns(
        {
            "chunkrecall": Candidate(attached, recorded),
            "empty span handler": Candidate(prepare, watched_by_none),
        },
        rounds=settings.rounds,
    )
    extra_us = timings.extra_s("chunkrecall", "empty span handler") / queries * 1e6
    peer_us = timings.median_s("empty span handler") / queries * 1e6
    return Figure(
        measure="record_recall, LlamaIndex: CPU a retrieval above an empty span handler",
        ours=f"{extra_us:.1f} us",
        peer=f"{peer_us:.1f} us with the empty handler",
        ratio=timings.times_faster("chunkrecall", "empty span handler"),
        target=f"<= {_TARGET_US:g} us",
        met=extra_us <= _TARGET_US,
    )


def evaluator(settings: Settings) -> Figure:
    """From inside a running loop, as in a notebook."""
    queries = min(_STOCK_QUERIES, settings.queries // 2)
    script = Script.of(queries)

    def prepare() -> Inputs:
        return LlamaIndex(script.nodes()), script.dataset()

    timings = in_turns(
        {
            "chunkrecall": Candidate(prepare, in_notebook(by_evaluate_dataset)),
            "stock evaluate()": Candidate(prepare, in_notebook(by_stock_evaluator)),
            "bare loop": Candidate(prepare, in_notebook(by_retrieve), lambda outcome: None),
        },
        rounds=settings.rounds,
        agreeing=("chunkrecall", "stock evaluate()"),
    )
    ours_us = timings.extra_s("chunkrecall", "bare loop") / queries * 1e6
    stock_us = timings.extra_s("stock evaluate()", "bare loop") / queries * 1e6
    return Figure(
        measure="RetrieverRecallEvaluator.evaluate_dataset: CPU a query above the bare loop",
        ours=f"{ours_us:.1f} us",
        peer=f"{stock_us:.1f} us stock evaluate() in a running loop",
        ratio=stock_us / ours_us,
        target=f">= {_TIMES_LESS:g} times less",
        met=stock_us >= _TIMES_LESS * ours_us,
    )


def recorded(given: tuple[Inputs, ExitStack]) -> int:
    """Every query once, inside the block, and out of it."""
    inputs, block = given
    with block:
        return by_retrieve(inputs)


def watched_by_none(inputs: Inputs) -> int:
    """Every query once, an empty handler told of each."""
    root = instrumentation.get_dispatcher("root")  # type: ignore[attr-defined]
    handlers = root.span_handlers
    root.span_handlers = [*handlers, Empty()]
    try:
        return by_retrieve(inputs)
    finally:
        root.span_handlers = handlers


def by_evaluate_dataset(inputs: Inputs) -> float:
    """The mean recall of a whole dataset."""
    retriever, dataset = inputs
    evaluator = RetrieverRecallEvaluator(retriever=retriever, k=CHUNKS)
    mean = evaluator.evaluate_dataset(dataset, workers=1, show_progress=False).mean(CHUNKS)
    return round(mean or 0.0, 9)


def by_stock_evaluator(inputs: Inputs) -> float:
    """The same with the stock evaluator, which has nothing but single queries."""
    retriever, dataset = inputs
    evaluator = RetrieverEvaluator(metrics=[RecallAtK(CHUNKS)], retriever=retriever)
    scores = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for query in dataset:
            texts = [label.text or "" for label in query.relevant or ()]
            result = evaluator.evaluate(query.text, [], texts)
            scores.append(result.metric_vals_dict[f"recall@{CHUNKS}"])
    return round(sum(scores) / len(scores), 9)


def in_notebook(run: Any) -> Any:
    """The function called from inside a running event loop."""

    async def cell(inputs: Inputs) -> Any:
        return run(inputs)

    return lambda inputs: asyncio.run(cell(inputs))
