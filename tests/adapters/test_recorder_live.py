"""The recorder in agents and graphs, under concurrency, cancellation and for a long time."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import tracemalloc
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool
from langchain_core.tracers import context as tracer_context
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from chunkrecall import Dataset, Query
from chunkrecall.langchain import RecallCallbackHandler, record_recall

LABELS = Dataset(
    [
        Query(query_id="q1", text="first", relevant=["a", "b"]),
        Query(query_id="q2", text="second", relevant=["c"]),
    ]
)
ANSWERS = {"first": ["a", "x"], "second": ["c"], "about a": ["a", "x"], "about b": ["y", "b"]}


class Scripted(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=text) for text in ANSWERS.get(query, ["z"])]

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        await asyncio.sleep(0)
        return self._get_relevant_documents(query, run_manager=run_manager)


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def agent() -> Any:
    calls = [ToolCall(name="search", args={"query": f"about {x}"}, id=x) for x in ("a", "b")]
    messages = [
        AIMessage("", tool_calls=calls[:1]),
        AIMessage("", tool_calls=calls[1:]),
        AIMessage("done"),
    ]
    tool = create_retriever_tool(
        Scripted(), "search", "Searches.", response_format="content_and_artifact"
    )
    return create_agent(ScriptedModel(messages=iter(messages)), [tool])


@pytest.mark.parametrize("awaited", [False, True])
def test_an_agent_that_searches_twice_has_two_calls_and_their_union(awaited: bool) -> None:
    inputs = {"messages": [("user", "first")]}
    with record_recall(LABELS, k=2) as recorder, recorder.query("q1"):
        if awaited:
            asyncio.run(agent().ainvoke(inputs))
        else:
            agent().invoke(inputs)
    query = recorder.report().queries[0]
    assert [call["recall@2"] for call in query.calls] == [0.5, 0.5]
    assert query.union == {"recall@2": 1.0}
    assert recorder.recorder.faults == []


class State(TypedDict):
    question: str
    documents: list[Document]


def graph() -> Any:
    def search(state: State) -> dict[str, Any]:
        return {"documents": Scripted().invoke(state["question"])}

    def rerank(state: State) -> dict[str, Any]:
        return {"documents": state["documents"][1:]}

    builder = StateGraph(State)
    builder.add_node("search", search)
    builder.add_node("rerank", rerank)
    builder.add_edge(START, "search")
    builder.add_edge("search", "rerank")
    builder.add_edge("rerank", END)
    return builder.compile()


@pytest.mark.parametrize("awaited", [False, True])
def test_a_graph_is_scored_at_its_retriever_and_its_rerank_node_is_a_stage(awaited: bool) -> None:
    with record_recall(LABELS, k=2) as recorder:
        if awaited:
            asyncio.run(graph().ainvoke({"question": "first", "documents": []}))
        else:
            graph().invoke({"question": "first", "documents": []})
    assert recorder.report().queries[0].recall == {"recall@2": 0.5}
    assert recorder.stages["rerank"].queries[0].recall == {"recall@2": 0.0}
    assert [(lost.label, lost.stage) for lost in recorder.lost] == [("a", "rerank")]


def test_fifty_tasks_with_two_interleaved_queries_each_do_not_mix() -> None:
    async def one(recorder: Any) -> None:
        for query_id, text in (("q1", "about a"), ("q2", "second"), ("q1", "about b")):
            with recorder.query(query_id):
                await Scripted().ainvoke(text)
            await asyncio.sleep(0)

    async def main() -> Any:
        with record_recall(LABELS, k=2) as recorder:
            await asyncio.gather(*[one(recorder) for _ in range(50)])
        return recorder.report()

    report = asyncio.run(main())
    first, second = report.queries
    assert len(first.calls) == 100
    assert {call["recall@2"] for call in first.calls} == {0.5}
    assert len(second.calls) == 50
    assert {call["recall@2"] for call in second.calls} == {1.0}
    assert report.unlabelled == 0


def test_fifty_threads_with_two_interleaved_queries_each_do_not_mix() -> None:
    handler = RecallCallbackHandler(LABELS, k=2)
    config: Any = {"callbacks": [handler]}

    def one() -> None:
        for query_id, text in (("q1", "about a"), ("q2", "second"), ("q1", "about b")):
            with handler.query(query_id):
                (RunnableLambda(str) | Scripted()).invoke(text, config=config)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(one,)) for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = handler.report().queries
    assert (len(first.calls), len(second.calls)) == (100, 50)
    assert {call["recall@2"] for call in second.calls} == {1.0}
    assert handler.recorder.faults == []


class Slow(Scripted):
    started: Any = None

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if self.started is not None:
            self.started.set()
        await asyncio.sleep(30)
        return []


@pytest.mark.parametrize("in_chain", [False, True])
def test_a_cancelled_retrieval_does_not_disturb_the_next(in_chain: bool) -> None:
    async def main() -> Any:
        with record_recall(LABELS, k=2) as recorder:
            started = asyncio.Event()
            retriever = Slow(started=started)
            slow: Any = RunnableLambda(str) | retriever if in_chain else retriever
            this: Any = asyncio.current_task()

            async def cancel() -> None:
                await started.wait()
                this.cancel()

            canceller = asyncio.ensure_future(cancel())
            with pytest.raises(asyncio.CancelledError):
                await slow.ainvoke("first")  # in this task, whose context stays as it was
            this.uncancel()
            await canceller
            await Scripted().ainvoke("first")
            await Scripted().ainvoke("second")
        return recorder.report()

    report = asyncio.run(main())
    assert [query.recall["recall@2"] for query in report.queries] == [0.5, 1.0]
    assert any("never ended" in note for note in report.notes)


def test_memory_is_flat_over_a_hundred_thousand_retrievals() -> None:
    handler = RecallCallbackHandler(LABELS, k=2)
    documents = [Document(page_content=text) for text in ("a", "x", "y", "z")]

    def retrieve(count: int) -> None:
        for number in range(count):
            run_id = uuid4()
            text = "first" if number % 2 else "second"
            handler.on_retriever_start(None, text, run_id=run_id, name="R")
            if number % 10:
                handler.on_retriever_end(documents, run_id=run_id)

    tracemalloc.start()
    retrieve(60_000)  # until every buffer has reached its bound
    before, _ = tracemalloc.get_traced_memory()
    retrieve(40_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert handler.recorder.faults == []
    assert after - before < 1_000_000


def test_no_hook_or_handler_is_left_behind() -> None:
    hooks = len(tracer_context._configure_hooks)
    for _ in range(1_000):
        with record_recall(LABELS):
            pass
    assert len(tracer_context._configure_hooks) == hooks
    handler = RecallCallbackHandler(LABELS)
    Scripted().invoke("first")
    assert handler.report().summary["recall@5"].scored == 0


def test_a_handler_given_twice_counts_once() -> None:
    handler = RecallCallbackHandler(LABELS, k=2)
    config: Any = {"callbacks": [handler, handler]}
    Scripted().with_config(callbacks=[handler]).invoke("first", config=config)
    assert handler.report().queries[0].calls == ()


def test_nested_blocks_both_see_what_is_inside() -> None:
    with record_recall(LABELS, k=2) as outer:
        with record_recall(LABELS, k=1) as inner:
            Scripted().invoke("first")
        Scripted().invoke("second")
    assert [q.status for q in outer.report().queries] == ["scored", "scored"]
    assert [q.status for q in inner.report().queries] == ["scored", "not_run"]


def test_documents_edited_after_the_event_change_nothing() -> None:
    def shout(documents: list[Document]) -> list[Document]:
        for one in documents:
            one.page_content = one.page_content.upper()
        return documents

    with record_recall(LABELS, k=2) as recorder:
        (Scripted() | RunnableLambda(shout)).invoke("first")
    assert recorder.report().queries[0].retrieved == ("a", "x")


def test_a_fault_in_on_score_stays_out_of_the_pipeline_and_is_told() -> None:
    def broken(score: Any) -> None:
        raise ValueError("plot failed")

    with record_recall(LABELS, k=2, on_score=broken) as recorder:
        assert len(Scripted().invoke("first")) == 2
    assert any("plot failed" in note for note in recorder.report().notes)
    with pytest.raises(ValueError, match="plot failed"):  # noqa: SIM117
        with record_recall(LABELS, k=2, on_score=broken, raise_faults=True):
            Scripted().invoke("first")


def test_an_error_is_a_row_and_a_later_success_replaces_it() -> None:
    class Flaky(Scripted):
        failures: int = 1

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("down")
            return super()._get_relevant_documents(query, run_manager=run_manager)

    with record_recall(LABELS, k=2) as recorder:
        flaky = Flaky()
        with pytest.raises(ConnectionError):
            flaky.invoke("first")
        assert recorder.report().queries[0].error == "ConnectionError: down"
        flaky.invoke("first")
    assert recorder.report().queries[0].status == "scored"


def test_one_line_is_logged_for_each_retrieval(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="chunkrecall"):  # noqa: SIM117
        with record_recall(LABELS, k=2, log=True):
            Scripted().invoke("first")
    ours = [one.getMessage() for one in caplog.records if one.name == "chunkrecall"]
    assert ours == ["'first': Recall@2: 0.500 (1/2 relevant chunks in the top 2); missing: 'b'"]


def test_two_queries_with_one_text_are_ambiguous_and_said() -> None:
    labels = Dataset([Query(query_id=i, text="same", relevant=["a"]) for i in ("one", "two")])
    with record_recall(labels) as recorder:
        Scripted().invoke("same")
        with recorder.query("two"):
            Scripted().invoke("about a")
    report = recorder.report()
    assert [query.status for query in report.queries] == ["not_run", "scored"]
    assert report.unlabelled == 1
    assert any("ambiguous" in note for note in report.notes)
    with pytest.raises(KeyError, match="three"), recorder.query("three"):
        pass
