"""How well the waiting of a slow retriever is overlapped: wall time against the ideal."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import Figure, Settings
from tests.benchmarks.scripted import (
    AsyncLangChain,
    AsyncLlamaIndex,
    LangChain,
    LlamaIndex,
    Script,
)

from chunkrecall import Dataset, Report, aevaluate_retriever, evaluate_retriever

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DELAY_S = 0.02
CONCURRENCY = 16
_TARGETS = {"sync": 0.85, "async": 0.8}


def figures(settings: Settings) -> Iterator[Figure]:
    """Sync and async, both frameworks, retrievers with and without async code of their own."""
    queries = settings.slow_queries
    script = Script.of(queries)
    dataset, documents, nodes = script.dataset(), script.documents(), script.nodes()
    retrievers: dict[str, Any] = {
        "LangChain": LangChain(answers=documents, delay_s=DELAY_S),
        "LangChain with native async": AsyncLangChain(answers=documents, delay_s=DELAY_S),
        "LlamaIndex": LlamaIndex(nodes, DELAY_S),
        "LlamaIndex with native async": AsyncLlamaIndex(nodes, DELAY_S),
    }
    ways = {"sync": by_threads, "async": on_a_loop}
    cases = [(way, name) for way in ways for name in retrievers]
    seconds: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for _ in range(settings.rounds):
        for way, name in cases:
            seconds[way, name].append(wall_s(ways[way], retrievers[name], dataset))
    ideal = CONCURRENCY / DELAY_S
    for way, name in cases:
        reached = queries / median(seconds[way, name])
        yield Figure(
            measure=f"20 ms retriever, {way}, {name}",
            ours=f"{reached:,.0f} q/s",
            peer=f"{ideal:,.0f} q/s ideal",
            ratio=reached / ideal,
            target=f">= {_TARGETS[way]:g}",
            met=reached / ideal >= _TARGETS[way],
        )


def wall_s(way: Callable[[Any, Dataset], Report], retriever: object, dataset: Dataset) -> float:
    """Seconds of one evaluation.

    Raises:
        ValueError: A query failed.
    """
    started = perf_counter()
    report = way(retriever, dataset)
    took = perf_counter() - started
    if report.summary["recall@10"].scored != len(dataset):
        raise ValueError(f"{report.summary['recall@10']}")
    return took


def by_threads(retriever: object, dataset: Dataset) -> Report:
    """The sync call."""
    return evaluate_retriever(retriever, dataset, max_concurrency=CONCURRENCY, progress=False)


def on_a_loop(retriever: object, dataset: Dataset) -> Report:
    """The async call."""
    return asyncio.run(
        aevaluate_retriever(retriever, dataset, max_concurrency=CONCURRENCY, progress=False)
    )
