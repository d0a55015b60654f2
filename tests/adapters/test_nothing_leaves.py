"""An evaluation makes no connection attempt, also with LangSmith's variables set."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langsmith import utils as langsmith_utils
from langsmith.utils import tracing_is_enabled
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import PrivateAttr

from chunkrecall import aevaluate_retriever, evaluate_retriever
from chunkrecall.langchain import LangChainAdapter
from chunkrecall.llama_index import LlamaIndexAdapter

LABELS = {f"question {i}": [f"chunk {i}"] for i in range(6)}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGCHAIN_TRACING_V2", "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "secret")
    langsmith_utils.get_env_var.cache_clear()  # it remembers what was not set
    attempts: list[Any] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return attempts


def vector_store() -> InMemoryVectorStore:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    store.add_documents([Document(page_content=f"chunk {i}", id=str(i)) for i in range(6)])
    return store


def index() -> VectorStoreIndex:
    nodes = [TextNode(text=f"chunk {i}", id_=str(i)) for i in range(6)]
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))


class Watching(BaseRetriever):
    """Remembers whether LangSmith would trace."""

    seen: list[bool]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        self.seen.append(bool(tracing_is_enabled()))
        return [Document(page_content=query)]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", ["langchain", "llama-index", "function"])
def test_an_evaluation_reaches_for_no_other_machine(
    connections: list[Any], kind: str, mode: str, concurrency: int
) -> None:
    store = vector_store()
    retriever: Any = {
        "langchain": store,
        "llama-index": index(),
        "function": lambda text: store.as_retriever().invoke(text),
    }[kind]
    options: dict[str, Any] = {"k": 6, "max_concurrency": concurrency, "progress": False}
    before = {thread.name for thread in threading.enumerate()}
    if mode == "sync":
        report = evaluate_retriever(retriever, LABELS, **options)
    else:
        report = asyncio.run(aevaluate_retriever(retriever, LABELS, **options))
    assert report.summary["recall@6"].scored == 6
    assert connections == []
    started = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in started if "tracing" in name.lower()}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_langsmith_tracing_is_off_inside_and_on_again_after(
    connections: list[Any], concurrency: int
) -> None:
    retriever = Watching(seen=[])
    evaluate_retriever(retriever, LABELS, max_concurrency=concurrency, progress=False)
    evaluate_retriever(retriever.invoke, LABELS, max_concurrency=concurrency, progress=False)
    asyncio.run(aevaluate_retriever(retriever, LABELS, max_concurrency=concurrency, progress=False))
    assert retriever.seen == [False] * 18
    assert tracing_is_enabled()


def test_tracing_stays_on_for_a_caller_who_asks() -> None:
    retriever = Watching(seen=[])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chunkrecall.langchain.adapter.quiet", pytest.fail)
        evaluate_retriever(
            LangChainAdapter(retriever, tracing=True), LABELS, max_concurrency=1, progress=False
        )
    assert len(retriever.seen) == 6


class Counting(BaseEventHandler):
    _events: list[Any] = PrivateAttr(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self._events.append(event)


class Stub(LlamaIndexBaseRetriever):
    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="chunk 1"))]


@pytest.mark.parametrize("name", ["root", "llama_index.core.base.base_retriever"])
def test_llama_index_handlers_see_nothing_of_an_evaluation_and_all_of_the_rest(name: str) -> None:
    dispatcher = get_dispatcher(name)
    handler = Counting()
    before = list(dispatcher.event_handlers)
    dispatcher.add_event_handler(handler)
    try:
        evaluate_retriever(Stub(), LABELS, max_concurrency=4, progress=False)
        asyncio.run(aevaluate_retriever(Stub(), LABELS, progress=False))
        assert handler._events == []
        assert dispatcher.event_handlers[-1] is handler
        evaluate_retriever(lambda text: elsewhere(), {"q": ["chunk 1"]}, progress=False)
        assert len(handler._events) > 0
        handler._events.clear()
        evaluate_retriever(LlamaIndexAdapter(Stub(), tracing=True), LABELS, progress=False)
        assert len(handler._events) > 0
        handler._events.clear()
        Stub().retrieve("outside")
        assert len(handler._events) > 0
    finally:
        dispatcher.event_handlers = before


def elsewhere() -> list[str]:
    """A retrieval in a thread that does not belong to the evaluation."""
    thread = threading.Thread(target=Stub().retrieve, args=("x",))
    thread.start()
    thread.join()
    return ["chunk 1"]
