"""One dataset through every entry point of both frameworks: the same recall everywhere."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langsmith import aevaluate, evaluate
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexRetriever
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.evaluation import BatchEvalRunner, RetrieverEvaluator
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

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
from chunkrecall.llama_index import (
    RecallAtK,
    ResponseRecallEvaluator,
    RetrieverRecallEvaluator,
)
from chunkrecall.llama_index import RecallCallbackHandler as LlamaIndexCallbackHandler
from chunkrecall.llama_index import record_recall as record_llama_index

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


class ScriptedNodes(LlamaIndexRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            # Metadata of its own: until 0.14.19 core takes nodes of one text and metadata for one.
            NodeWithScore(node=TextNode(text=text, id_=f"{text}{place}", metadata={"at": place}))
            for place, text in enumerate(ANSWERS[query_bundle.query_str])
        ]


NODES = ScriptedNodes()


def engine(retriever: Any = NODES) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


def li_evaluated() -> Means:
    return of(evaluate_retriever(NODES, LABELS, k=K, progress=False))


async def li_aevaluated() -> Means:
    return of(await aevaluate_retriever(NODES, LABELS, k=K, progress=False))


def li_engine() -> Means:
    return of(evaluate_retriever(engine(), LABELS, k=K, progress=False))


async def li_aengine() -> Means:
    return of(await aevaluate_retriever(engine(), LABELS, k=K, progress=False))


def stock() -> RetrieverEvaluator:
    return RetrieverEvaluator(metrics=[RecallAtK(k) for k in K], retriever=NODES)


def _of_results(results: list[Any]) -> Means:
    rows = [result.metric_vals_dict for result in results]
    return tuple(sum(row[f"recall@{k}"] for row in rows) / len(rows) for k in K)


def li_stock() -> Means:
    evaluator = stock()
    return _of_results(
        [evaluator.evaluate(text, [], relevant) for text, relevant in LABELS.items()]
    )


async def li_astock() -> Means:
    evaluator = stock()
    return _of_results(
        [await evaluator.aevaluate(text, [], relevant) for text, relevant in LABELS.items()]
    )


def li_dataset() -> Means:
    return of(RetrieverRecallEvaluator(retriever=NODES, k=K).evaluate_dataset(LABELS))


async def li_adataset() -> Means:
    return of(await RetrieverRecallEvaluator(retriever=NODES, k=K).aevaluate_dataset(LABELS))


def li_one() -> Means:
    evaluator = RetrieverRecallEvaluator(retriever=NODES, k=K)
    return _of_results(
        [evaluator.evaluate(text, expected_texts=relevant) for text, relevant in LABELS.items()]
    )


async def li_aone() -> Means:
    evaluator = RetrieverRecallEvaluator(retriever=NODES, k=K)
    rows = LABELS.items()
    return _of_results([await evaluator.aevaluate(text, [], relevant) for text, relevant in rows])


def li_runner() -> Means:
    return asyncio.run(li_arunner())


async def li_arunner() -> Means:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner's own asyncio_module()
        runner = BatchEvalRunner({str(k): ResponseRecallEvaluator(k) for k in K})
    results = await runner.aevaluate_responses(
        queries=list(LABELS),
        responses=[Response(response="", source_nodes=NODES.retrieve(text)) for text in LABELS],
        reference_contexts=list(LABELS.values()),
    )
    return tuple(sum(row.score for row in results[str(k)]) / len(LABELS) for k in K)


def li_recorder() -> Means:
    with record_llama_index(LABELS, K) as recording:
        for text in LABELS:
            engine().query(text)
    return of(recording.report())


async def li_arecorder() -> Means:
    with record_llama_index(LABELS, K) as recording:
        await asyncio.gather(*(engine().aquery(text) for text in LABELS))
    return of(recording.report())


def li_handler() -> Means:
    callback = LlamaIndexCallbackHandler(LABELS, K)
    retriever = ScriptedNodes(callback_manager=CallbackManager([callback]))
    for text in LABELS:
        engine(retriever).query(text)
    return of(callback.report())


async def li_ahandler() -> Means:
    callback = LlamaIndexCallbackHandler(LABELS, K)
    retriever = ScriptedNodes(callback_manager=CallbackManager([callback]))
    for text in LABELS:
        await retriever.aretrieve(text)
    return of(callback.report())


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
    "LlamaIndex evaluate_retriever": (li_evaluated, li_aevaluated),
    "LlamaIndex query engine": (li_engine, li_aengine),
    "RecallAtK in RetrieverEvaluator": (li_stock, li_astock),
    "RetrieverRecallEvaluator dataset": (li_dataset, li_adataset),
    "RetrieverRecallEvaluator one query": (li_one, li_aone),
    "ResponseRecallEvaluator in a runner": (li_runner, li_arunner),
    "LlamaIndex record_recall": (li_recorder, li_arecorder),
    "LlamaIndex callback handler": (li_handler, li_ahandler),
}


def test_every_entry_point_gives_the_same_recall(capsys: pytest.CaptureFixture[str]) -> None:
    expected = evaluated()
    lines = [f"{'entry point':38}{'sync':>24}{'async':>24}"]
    table = {}
    for name, (sync, awaited) in ENTRY_POINTS.items():
        table[name] = (sync(), asyncio.run(awaited()))
        cells = [" ".join(f"{value:.4f}" for value in cell) for cell in table[name]]
        lines.append(f"{name:38}{cells[0]:>24}{cells[1]:>24}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    for name, cells in table.items():
        for cell in cells:
            assert cell == pytest.approx(expected, abs=1e-12), name
