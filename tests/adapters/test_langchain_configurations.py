"""In every arrangement of LangChain retrievers the outermost one is scored, and only that one.

The inner retrievers find half of the labels and the outermost one finds all (or another share), so
a wrong choice shows in the number and not only in the count.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from itertools import product
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

from chunkrecall.langchain.callbacks import RecallCallbackHandler, record_recall

QUERY = "what?"
LABELS = {QUERY: ["a", "b"]}
A, B = ["a", "x"], ["b", "y"]


def documents(texts: list[str]) -> list[Document]:
    return [Document(page_content=text) for text in texts]


class Inner(BaseRetriever):
    """Has a list for every query, or one for each."""

    texts: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return documents(self.texts if isinstance(self.texts, list) else self.texts[query])


class Failing(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise RuntimeError("down")


class DropFirst(BaseDocumentCompressor):
    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return documents[1:]


class Outer(BaseRetriever):
    """Calls its inner retriever without passing callbacks on, and adds what that one misses."""

    inner: Any = Inner(texts=A)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [*self.inner.invoke(query)[:1], *documents(["b"])]


class AsyncOuter(Outer):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [*(await self.inner.ainvoke(query))[:1], *documents(["b"])]


class GatherOuter(Outer):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        one, two = await asyncio.gather(self.inner.ainvoke(query), Inner(texts=B).ainvoke(query))
        return [one[0], two[0]]


class ThreadOuter(Outer):
    """Calls two inner retrievers in threads of its own."""

    copies_context: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        found: dict[str, list[Document]] = {}
        threads = []
        for texts in (A, B):

            def call(texts: list[str] = texts) -> None:
                found[texts[0]] = Inner(texts=texts).invoke(query)

            run = contextvars.copy_context().run if self.copies_context else _run
            threads.append(threading.Thread(target=run, args=(call,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found["a"][0], found["b"][0]]


def _run(call: Callable[[], None]) -> None:
    call()


def multi_query() -> Runnable[Any, Any]:
    llm = FakeListLLM(responses=["one rewrite\nanother rewrite"])
    answers = {"one rewrite": ["a"], "another rewrite": ["b"]}
    return MultiQueryRetriever.from_llm(Inner(texts=answers), llm)


def siblings() -> Runnable[Any, Any]:
    def both(text: str) -> list[Document]:
        return [*Inner(texts=A).invoke(text), *Inner(texts=["a", "b"]).invoke(text)]

    async def aboth(text: str) -> list[Document]:
        first = await Inner(texts=A).ainvoke(text)
        return [*first, *await Inner(texts=["a", "b"]).ainvoke(text)]

    return RunnableLambda(both, afunc=aboth)


def same(text: str) -> str:
    return text


Shape = tuple[Callable[[], Runnable[Any, Any]], list[float]]
ALL = [1.0]
SHAPES: dict[str, Shape] = {
    "plain": (lambda: Inner(texts=["a", "b"]), ALL),
    "ensemble of two": (
        lambda: EnsembleRetriever(
            retrievers=[Inner(texts=["a"]), Inner(texts=["b"])], weights=[0.5, 0.5]
        ),
        ALL,
    ),
    "multi-query": (multi_query, ALL),
    "compression": (
        lambda: ContextualCompressionRetriever(
            base_compressor=DropFirst(), base_retriever=Inner(texts=["x", "a", "b"])
        ),
        ALL,
    ),
    "lambda before a retriever": (lambda: RunnableLambda(same) | Inner(texts=["a", "b"]), ALL),
    "wrapper without callbacks": (Outer, ALL),
    "wrapper in a sequence": (lambda: RunnableLambda(same) | Outer(), ALL),
    "native async wrapper": (AsyncOuter, ALL),
    "gather inside": (GatherOuter, ALL),
    "raw threads inside": (ThreadOuter, ALL),
    "context-copying threads inside": (lambda: ThreadOuter(copies_context=True), ALL),
    "fallbacks": (lambda: Failing().with_fallbacks([Outer()]), ALL),
    "fallbacks in a sequence": (
        lambda: RunnableLambda(same) | Failing().with_fallbacks([Outer()]),
        ALL,
    ),
    "siblings in one lambda": (siblings, [0.5, 1.0]),
    "parallel": (
        lambda: RunnableParallel(one=Inner(texts=A), two=Inner(texts=["a", "b"])),
        [0.5, 1.0],
    ),
}


def once(runnable: Runnable[Any, Any], config: Any, *, awaited: bool) -> None:
    if awaited:
        asyncio.run(runnable.ainvoke(QUERY, config=config))
    else:
        runnable.invoke(QUERY, config=config)


def twice(runnable: Runnable[Any, Any], config: Any, *, awaited: bool) -> None:
    async def both() -> None:
        await runnable.ainvoke(QUERY, config=config)
        await runnable.ainvoke(QUERY, config=config)

    if awaited:
        asyncio.run(both())
    else:
        runnable.invoke(QUERY, config=config)
        runnable.invoke(QUERY, config=config)


def batch_of_three(runnable: Runnable[Any, Any], config: Any, *, awaited: bool) -> None:
    if awaited:
        asyncio.run(runnable.abatch([QUERY] * 3, config=config))
    else:
        runnable.batch([QUERY] * 3, config=config)


def configurations() -> Iterator[Any]:
    """60 = 2 x 2 x 15 and the last two in one way each; then these two in the other ways as well."""
    ways = list(product(("config", "hook"), ("sync", "async")))
    for (attached, mode), (name, (make, recalls)) in product(ways, SHAPES.items()):
        yield pytest.param(attached, mode, make, once, recalls, id=f"{attached}-{mode}-{name}")
    for run, calls in ((twice, 2), (batch_of_three, 3)):
        for attached, mode in ways:
            name = f"{attached}-{mode}-{run.__name__}"
            yield pytest.param(attached, mode, Outer, run, [1.0] * calls, id=name)


@pytest.mark.parametrize(("attached", "mode", "make", "run", "recalls"), list(configurations()))
def test_the_outermost_retrieval_is_scored_and_no_other(
    attached: str, mode: str, make: Any, run: Any, recalls: list[float]
) -> None:
    scores: list[Any] = []
    if attached == "config":
        handler = RecallCallbackHandler(LABELS, k=2, on_score=scores.append)
        run(make(), {"callbacks": [handler]}, awaited=mode == "async")
    else:
        with record_recall(LABELS, k=2, on_score=scores.append) as handler:
            run(make(), None, awaited=mode == "async")
    told = [score.recall["recall@2"] for score in scores if score.status == "scored"]
    assert sorted(told) == recalls
    report = handler.report()
    (row,) = report.queries
    assert report.mean(2) == told[-1]
    assert [call["recall@2"] for call in row.calls] == (told if len(told) > 1 else [])
    if row.calls:
        assert row.union == {"recall@2": 1.0}
    assert report.unlabelled == 0
    assert not [note for note in report.notes if "never ended" in note]
    assert handler.recorder.faults == []
