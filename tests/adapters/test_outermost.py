"""The outermost retrieval is recognised in every arrangement of LangChain retrievers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import FakeListLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnableParallel

from chunkrecall.langchain import RecallCallbackHandler, record_recall

QUERY = "what?"
LABELS = {QUERY: ["a"]}


class Plain(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content="a"), Document(page_content="b")]


class Failing(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise RuntimeError("down")


class FirstOnly(BaseDocumentCompressor):
    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return documents[:1]


class Wrapper(BaseRetriever):
    """Calls its inner retriever without passing callbacks on."""

    inner: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.inner.invoke(query)


class AsyncWrapper(Wrapper):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return await self.inner.ainvoke(query)


class GatherWrapper(Wrapper):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        found = await asyncio.gather(self.inner.ainvoke(query), self.inner.ainvoke(query))
        return found[0]


class ThreadWrapper(Wrapper):
    """Calls its inner retriever twice in threads of its own."""

    copies_context: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        found: list[list[Document]] = []

        def call() -> None:
            found.append(self.inner.invoke(query))

        threads = []
        for _ in range(2):
            context = contextvars.copy_context()
            target, args = (context.run, (call,)) if self.copies_context else (call, ())
            threads.append(threading.Thread(target=target, args=args))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found[0]


def multi_query() -> MultiQueryRetriever:
    llm = FakeListLLM(responses=["first rewrite\nsecond rewrite"])
    return MultiQueryRetriever.from_llm(Plain(), llm)


def siblings() -> Runnable[Any, Any]:
    def two_calls(text: str) -> list[Document]:
        Plain().invoke(text)
        return Plain().invoke(text)

    async def atwo_calls(text: str) -> list[Document]:
        await Plain().ainvoke(text)
        return await Plain().ainvoke(text)

    return RunnableLambda(two_calls, afunc=atwo_calls)


SHAPES: dict[str, tuple[Any, int]] = {
    "plain": (Plain, 1),
    "ensemble": (lambda: EnsembleRetriever(retrievers=[Plain(), Plain()]), 1),
    "multi-query": (multi_query, 1),
    "compression": (
        lambda: ContextualCompressionRetriever(base_compressor=FirstOnly(), base_retriever=Plain()),
        1,
    ),
    "lambda before": (lambda: RunnableLambda(str) | Plain(), 1),
    "wrapper": (lambda: Wrapper(inner=Plain()), 1),
    "wrapper in a sequence": (lambda: RunnableLambda(str) | Wrapper(inner=Plain()), 1),
    "async wrapper": (lambda: AsyncWrapper(inner=Plain()), 1),
    "gather inside": (lambda: GatherWrapper(inner=Plain()), 1),
    "raw threads inside": (lambda: ThreadWrapper(inner=Plain()), 1),
    "copied threads inside": (lambda: ThreadWrapper(inner=Plain(), copies_context=True), 1),
    "fallbacks": (lambda: Failing().with_fallbacks([Plain()]), 1),
    "fallbacks in a sequence": (
        lambda: RunnableLambda(str) | Failing().with_fallbacks([Plain()]),
        1,
    ),
    "siblings": (siblings, 2),
    "parallel": (lambda: RunnableParallel(one=Plain(), two=Plain()), 2),
}


def invoke(runnable: Any, config: Any, *, awaited: bool) -> None:
    if awaited:
        asyncio.run(runnable.ainvoke(QUERY, config=config))
    else:
        runnable.invoke(QUERY, config=config)


def sequential(runnable: Any, config: Any, *, awaited: bool) -> None:
    async def twice() -> None:
        await runnable.ainvoke(QUERY, config=config)
        await runnable.ainvoke(QUERY, config=config)

    if awaited:
        asyncio.run(twice())
    else:
        runnable.invoke(QUERY, config=config)
        runnable.invoke(QUERY, config=config)


def batch(runnable: Any, config: Any, *, awaited: bool) -> None:
    if awaited:
        asyncio.run(runnable.abatch([QUERY] * 3, config=config))
    else:
        runnable.batch([QUERY] * 3, config=config)


CASES = [
    (f"{attach}-{mode}-{name}", attach, mode == "async", make, invoke, count)
    for attach in ("config", "hook")
    for mode in ("sync", "async")
    for name, (make, count) in SHAPES.items()
]
# Two sequential invokes and a batch of three, once for each way of attaching.
CASES += [("config-sequential", "config", False, Plain, sequential, 2)]
CASES += [("hook-batch", "hook", False, Plain, batch, 3)]
MORE = [
    (f"{attach}-{mode}-{name}", attach, mode == "async", Plain, run, count)
    for attach in ("config", "hook")
    for mode in ("sync", "async")
    for name, run, count in (("sequential", sequential, 2), ("batch", batch, 3))
]


def test_there_are_62_configurations() -> None:
    assert len(CASES) == 62


@pytest.mark.parametrize(
    ("attach", "awaited", "make", "run", "count"),
    [case[1:] for case in [*CASES, *MORE]],
    ids=[case[0] for case in CASES] + [f"more-{case[0]}" for case in MORE],
)
def test_the_outermost_retrievals_are_counted_and_scored(
    attach: str, awaited: bool, make: Any, run: Any, count: int
) -> None:
    scores: list[Any] = []
    runnable = make()
    if attach == "config":
        handler = RecallCallbackHandler(LABELS, on_score=scores.append)
        run(runnable, {"callbacks": [handler]}, awaited=awaited)
    else:
        with record_recall(LABELS, on_score=scores.append) as handler:
            run(runnable, None, awaited=awaited)
    report = handler.report()
    assert handler.recorder.faults == []
    answered = [score for score in scores if score.status == "scored"]
    assert len(answered) == count
    assert report.mean(5) == 1.0
    assert report.unlabelled == 0
    (query,) = report.queries
    assert len(query.calls) == (count if count > 1 else 0)
