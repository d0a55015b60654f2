"""The same labelled chunks give the same report whatever asks for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from chunkrecall import (
    Chunk,
    ChunkId,
    Dataset,
    ExactText,
    Label,
    NormalizedText,
    Query,
    Report,
    aevaluate_retriever,
    evaluate_retriever,
)

ANSWERS: dict[str, list[tuple[str, str]]] = {
    "all found": [("1", "a"), ("2", "b")],
    "half found": [("3", "x"), ("1", "a"), ("1", "a")],
    "near miss": [("4", " a "), ("5", "B")],
    "nothing relevant": [("6", "y")],
    "nothing retrieved": [],
}
DATASET = Dataset(
    [
        Query(
            query_id=f"q{number}",
            text=text,
            relevant=[]
            if text == "nothing relevant"
            else [Label(text="a", chunk_id="1"), Label(text="b", chunk_id="2")],
            tags=["odd"] if number % 2 else [],
        )
        for number, text in enumerate([*ANSWERS, "broken"])
    ]
)


def answer(text: str) -> list[tuple[str, str]]:
    if text not in ANSWERS:
        raise RuntimeError("the store is down")
    return ANSWERS[text]


class LangChainRetriever(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(id=i, page_content=t, metadata={"source": "s"}) for i, t in answer(query)]


class LangChainAsyncRetriever(LangChainRetriever):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        await asyncio.sleep(0)
        return self._get_relevant_documents(query, run_manager=None)


class LlamaIndexRetriever(LlamaIndexBaseRetriever):
    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        # The framework drops repeated nodes, by id or by hash; this one repeats the text alone.
        seen: set[str] = set()
        nodes = []
        for chunk_id, text in answer(query_bundle.query_str):
            node = TextNode(id_=chunk_id, text=text, metadata={"source": "s"})
            if chunk_id in seen:
                node = TextNode(id_=f"{chunk_id} again", text=text, metadata={"source": "t"})
            seen.add(chunk_id)
            nodes.append(NodeWithScore(node=node, score=0.5))
        return nodes


class LlamaIndexAsyncRetriever(LlamaIndexRetriever):
    async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return self._retrieve(query_bundle)


def function(text: str) -> list[Chunk]:
    return [Chunk(chunk_id=i, text=t, metadata={"source": "s"}) for i, t in answer(text)]


async def async_function(text: str) -> list[Chunk]:
    await asyncio.sleep(0)
    return function(text)


RETRIEVERS = {
    "langchain": LangChainRetriever(),
    "langchain async": LangChainAsyncRetriever(),
    "lcel": RunnableLambda(str) | LangChainRetriever(),
    "llama-index": LlamaIndexRetriever(),
    "llama-index async": LlamaIndexAsyncRetriever(),
    "function": function,
    "async function": async_function,
}
MATCHERS = {"text": ExactText(), "normalized": NormalizedText(casefold=True), "id": ChunkId()}


def comparable(report: Report) -> dict[str, Any]:
    """Everything but latencies, ids (one framework drops repeated ones) and the fallback notes."""
    row: dict[str, Any] = json.loads(report.to_json())
    for query in row["queries"]:
        query.pop("latency_s")
        query.pop("retrieved_ids")
    return row


@pytest.mark.parametrize("matcher", MATCHERS.values(), ids=MATCHERS)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("retriever", RETRIEVERS.values(), ids=RETRIEVERS)
def test_every_way_of_retrieving_gives_the_same_report(
    retriever: Any, mode: str, matcher: Any
) -> None:
    options: dict[str, Any] = {
        "k": (1, 2, None),
        "matcher": matcher,
        "name": "r",
        "progress": False,
    }
    expected = evaluate_retriever(function, DATASET, **options)
    if mode == "sync":
        report = evaluate_retriever(retriever, DATASET, **options)
    else:
        report = asyncio.run(aevaluate_retriever(retriever, DATASET, **options))
    assert comparable(report) == comparable(expected)
    assert [query.status for query in report.queries] == [
        "scored",
        "scored",
        "scored",
        "undefined",
        "scored",
        "errored",
    ]
    assert report.queries[-1].error == "RuntimeError: the store is down"
