"""One dataset through every LangChain entry point, sync and async: the same recall everywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langsmith import aevaluate, evaluate

from chunkrecall import aevaluate_retriever, evaluate_retriever
from chunkrecall.langchain import (
    RecallCallbackHandler,
    RecallEvaluator,
    async_evaluation_target,
    dataset_to_examples,
    evaluation_target,
    offline_client,
    recall_summary_evaluator,
    record_recall,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*parameter is in beta")

LABELS = {"one": ["a", "b"], "two": ["c"], "three": ["x", "y", "z"], "four": ["nowhere"]}
ANSWERS = {"one": ["a", "q"], "two": ["q", "q", "c"], "three": ["x", "z"], "four": []}
K = (1, 2, 3)


class Scripted(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=text) for text in ANSWERS[query]]


RETRIEVER = Scripted()
CHAIN = RunnableLambda(str) | RETRIEVER | RunnableLambda(len)
Means = tuple[float | None, ...]


def of(report: Any) -> Means:
    return tuple(report.mean(k) for k in K)


def evaluated() -> Means:
    return of(evaluate_retriever(RETRIEVER, LABELS, k=K, progress=False))


async def aevaluated() -> Means:
    return of(await aevaluate_retriever(RETRIEVER, LABELS, k=K, progress=False))


def lcel() -> Means:
    return of(evaluate_retriever(RunnableLambda(str) | RETRIEVER, LABELS, k=K, progress=False))


async def alcel() -> Means:
    chain = RunnableLambda(str) | RETRIEVER
    return of(await aevaluate_retriever(chain, LABELS, k=K, progress=False))


def handler() -> Means:
    callback = RecallCallbackHandler(LABELS, K)
    for text in LABELS:
        CHAIN.invoke(text, config={"callbacks": [callback]})
    return of(callback.report())


async def ahandler() -> Means:
    callback = RecallCallbackHandler(LABELS, K)
    for text in LABELS:
        await CHAIN.ainvoke(text, config={"callbacks": [callback]})
    return of(callback.report())


def recorder() -> Means:
    with record_recall(LABELS, K) as recording:
        CHAIN.batch(list(LABELS))
    return of(recording.report())


async def arecorder() -> Means:
    with record_recall(LABELS, K) as recording:
        await CHAIN.abatch(list(LABELS))
    return of(recording.report())


def langsmith(*, summary: bool) -> Means:
    results = evaluate(
        evaluation_target(RETRIEVER),
        data=dataset_to_examples(LABELS),
        evaluators=[RecallEvaluator(K)],
        summary_evaluators=[recall_summary_evaluator(K)],
        upload_results=False,
        client=offline_client(),
        max_concurrency=2,
    )
    rows = [row["evaluation_results"]["results"] for row in results]
    return _summary(results) if summary else _mean(rows)


async def alangsmith(*, summary: bool) -> Means:
    results = await aevaluate(
        async_evaluation_target(RETRIEVER),
        data=dataset_to_examples(LABELS),
        evaluators=[RecallEvaluator(K)],
        summary_evaluators=[recall_summary_evaluator(K)],
        upload_results=False,
        client=offline_client(),
        max_concurrency=2,
    )
    rows = [row["evaluation_results"]["results"] async for row in results]
    return _summary(results) if summary else _mean(rows)


def _summary(results: Any) -> Means:
    return tuple(one.score for one in results._summary_results["results"])


def _mean(rows: list[Any]) -> Means:
    return tuple(sum(row[i].score for row in rows) / len(rows) for i in range(len(K)))


def called() -> Means:
    evaluator = RecallEvaluator(K)
    rows = [
        evaluator(
            inputs={"query": text},
            outputs={"documents": RETRIEVER.invoke(text)},
            reference_outputs={"relevant": relevant},
        )
        for text, relevant in LABELS.items()
    ]
    return tuple(sum(row[i]["score"] for row in rows) / len(rows) for i in range(len(K)))


async def acalled() -> Means:
    return await asyncio.to_thread(called)


ENTRY_POINTS: dict[str, tuple[Any, Any]] = {
    "evaluate_retriever": (evaluated, aevaluated),
    "evaluate_retriever over LCEL": (lcel, alcel),
    "RecallCallbackHandler in a chain": (handler, ahandler),
    "record_recall round a batch": (recorder, arecorder),
    "RecallEvaluator in langsmith": (
        lambda: langsmith(summary=False),
        lambda: alangsmith(summary=False),
    ),
    "recall_summary_evaluator": (
        lambda: langsmith(summary=True),
        lambda: alangsmith(summary=True),
    ),
    "RecallEvaluator called": (called, acalled),
}


def test_every_entry_point_gives_the_same_recall(capsys: pytest.CaptureFixture[str]) -> None:
    expected = evaluated()
    lines = [f"{'entry point':34}{'sync':>24}{'async':>24}"]
    table = {}
    for name, (sync, awaited) in ENTRY_POINTS.items():
        table[name] = (sync(), asyncio.run(awaited()))
        cells = [" ".join(f"{value:.4f}" for value in cell) for cell in table[name]]
        lines.append(f"{name:34}{cells[0]:>24}{cells[1]:>24}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    for name, cells in table.items():
        for cell in cells:
            assert cell == pytest.approx(expected, abs=1e-12), name
