"""What a recorder keeps, tells and leaves alone when LangChain pipelines go astray.

The common ways through chains, agents and graphs are in test_recorder_live.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import operator
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import ContextualCompressionRetriever, MultiQueryRetriever
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from chunkrecall import Chunk, Dataset, Label, Query
from chunkrecall.langchain.callbacks import RecallCallbackHandler, record_recall

LABELS = Dataset(
    [
        Query(query_id="q1", text="first", relevant=["a", "b"]),
        Query(query_id="q2", text="second", relevant=["c"]),
    ]
)
ANSWERS: dict[str, Any] = {
    "first": ["a", "x"],
    "second": ["c"],
    "about a": ["a", "x"],
    "about b": ["y", "b"],
    "both": ["x", "a", "b"],
    "nothing": [],
}


def documents(texts: list[str]) -> list[Document]:
    return [Document(page_content=text) for text in texts]


class Scripted(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return documents(ANSWERS[query])

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        await asyncio.sleep(0)
        return documents(ANSWERS[query])


class Returns(BaseRetriever):
    """Whatever it holds, Documents or not."""

    value: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        return self.value


class Raises(BaseRetriever):
    """As often as it is told to; then it answers."""

    times: int = 1_000
    error: Any = ConnectionError("down")

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        if self.times:
            self.times -= 1
            raise self.error
        return documents(ANSWERS[query])


def drop_first(found: list[Document]) -> list[Document]:
    return found[1:]


def drop_all(found: list[Document]) -> list[Document]:
    return found[:0]


def recall_of(recorder: RecallCallbackHandler, query_id: str, k: int = 2) -> float | None:
    rows = {row.query_id: row for row in recorder.report().queries}
    return rows[query_id].recall[f"recall@{k}"]


# What is no list of Documents.


def generated() -> Iterator[Document]:
    yield Document(page_content="a")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "returned None"),
        (generated(), "returned a generator"),
        ({"documents": []}, "returned a dict"),
        ([1, 2], "int"),
    ],
)
def test_an_answer_that_holds_no_chunks_is_an_errored_row(value: Any, said: str) -> None:
    with record_recall(LABELS, k=2) as recorder:
        assert Returns(value=value).invoke("first") is value
        Scripted().invoke("second")
    first, second = recorder.report().queries
    assert (first.status, second.status) == ("errored", "scored")
    assert said in str(first.error)
    assert recorder.recorder.faults == []
    assert not [note for note in recorder.report().notes if "never ended" in note]
    if said == "returned a generator":
        assert len(list(value)) == 1  # nobody has consumed it


def test_texts_and_scored_pairs_are_read() -> None:
    pairs = [(Document(page_content="a"), 0.9), (Document(page_content="b"), 0.1)]
    for value in (["a", "b"], pairs, tuple(documents(["a", "b"]))):
        with record_recall(LABELS, k=2) as recorder:
            Returns(value=value).invoke("first")
        assert recall_of(recorder, "q1") == 1.0


# Errors, retries and fallbacks.


def test_every_attempt_of_a_retry_is_one_retrieval_and_the_last_one_counts() -> None:
    flaky = Raises(times=2).with_retry(
        retry_if_exception_type=(ConnectionError,),
        exponential_jitter_params={"max": 0.002, "jitter": 0.0},
    )
    with record_recall(LABELS, k=2) as recorder:
        flaky.invoke("first")
    row = recorder.report().queries[0]
    assert (row.status, row.recall, row.calls) == ("scored", {"recall@2": 0.5}, ())


def test_a_fallback_is_scored_and_the_reranker_behind_it_is_a_stage() -> None:
    chain = RunnableLambda(str) | Raises().with_fallbacks([Scripted()]) | RunnableLambda(drop_first)
    for awaited in (False, True):
        with record_recall(LABELS, k=2) as recorder:
            if awaited:
                asyncio.run(chain.ainvoke("first"))
            else:
                chain.invoke("first")
        assert recall_of(recorder, "q1") == 0.5
        assert recorder.stages["drop_first"].queries[0].recall == {"recall@2": 0.0}
        assert [(one.label, one.stage) for one in recorder.lost] == [("a", "drop_first")]


def test_a_failure_after_a_success_is_errored_in_the_report_and_its_stages() -> None:
    with record_recall(LABELS, k=2) as recorder:
        (Scripted() | RunnableLambda(drop_first)).invoke("first")
        with pytest.raises(ConnectionError):
            Raises().invoke("first")
    assert recorder.report().queries[0].status == "errored"
    assert recorder.stages["final"].queries[0].status == "errored"
    assert recorder.lost == ()
    assert "ConnectionError" in recorder.story("q1")


def test_an_interrupted_retrieval_does_not_disturb_the_next() -> None:
    with record_recall(LABELS, k=2) as recorder:
        with pytest.raises(KeyboardInterrupt):
            Raises(error=KeyboardInterrupt()).invoke("second")
        Scripted().invoke("first")
        with recorder.query("q2"):
            Scripted().invoke("second")
    assert [row.status for row in recorder.report().queries] == ["scored", "scored"]


def test_a_cancelled_task_does_not_disturb_the_next() -> None:
    class Stuck(Scripted):
        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            await Scripted().ainvoke("second")
            await asyncio.Event().wait()

    async def main() -> RecallCallbackHandler:
        with record_recall(LABELS, k=2) as recorder:
            for chain in (Stuck(), RunnableLambda(str) | Stuck()):
                task = asyncio.create_task(chain.ainvoke("first"))
                for _ in range(20):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await (RunnableLambda(str) | Scripted() | RunnableLambda(drop_first)).ainvoke("first")
        return recorder

    recorder = asyncio.run(main())
    assert recall_of(recorder, "q1") == 0.5
    assert set(recorder.stages) == {"Scripted", "drop_first", "final"}
    assert [(one.query_id, one.stage) for one in recorder.lost] == [("q1", "drop_first")]


# Faults of our own.


class Broken:
    """A matcher that fails on the chunks it is given."""

    def describe(self) -> str:
        return "broken"

    def first_ranks(self, labels: Any, chunks: Any) -> tuple[int | None, ...]:
        if chunks:
            raise ZeroDivisionError("matcher failed")
        return (None,) * len(labels)


def test_a_fault_of_the_scorer_is_a_note_and_an_errored_row_and_raised_only_if_asked() -> None:
    chain = Scripted() | RunnableLambda(drop_first)
    with record_recall(LABELS, k=2, matcher=Broken()) as recorder:
        assert [one.page_content for one in chain.invoke("first")] == ["x"]
    report = recorder.report()
    assert [row.status for row in report.queries] == ["errored", "not_run"]
    assert report.mean(2) is None
    assert any("matcher failed" in note for note in report.notes)
    assert isinstance(recorder.recorder.faults[0], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):  # noqa: SIM117 - the block itself raises on leaving
        with record_recall(LABELS, k=2, matcher=Broken(), raise_faults=True):
            chain.invoke("first")


def test_the_pipelines_own_error_is_not_hidden_by_a_fault() -> None:
    with pytest.raises(KeyError, match="mine"):  # noqa: SIM117, PT012
        with record_recall(LABELS, k=2, matcher=Broken(), raise_faults=True):
            Scripted().invoke("first")
            raise KeyError("mine")


def raising(score: object) -> None:
    raise ValueError("plot failed")


def test_a_fault_of_on_score_loses_neither_the_score_nor_the_stages() -> None:
    with record_recall(LABELS, k=2, on_score=raising) as recorder:
        (Scripted() | RunnableLambda(drop_first)).invoke("first")
    assert recall_of(recorder, "q1") == 0.5
    assert recorder.stages["drop_first"].queries[0].recall == {"recall@2": 0.0}
    assert any("plot failed" in note for note in recorder.report().notes)


# Which query a retrieval or a step belongs to.


def reranked(recorder: RecallCallbackHandler, bound_by: str) -> None:
    """Both queries at once inside one chain, each with its reranker."""
    chain = Scripted() | RunnableLambda(drop_first)

    async def one(query_id: str, text: str) -> None:
        if bound_by == "query":
            with recorder.query(query_id):
                await chain.ainvoke(text)
        elif bound_by == "metadata":
            await chain.ainvoke(text, config={"metadata": {"chunkrecall_query_id": query_id}})
        else:
            await chain.ainvoke(text)

    async def both(_: str) -> str:
        await asyncio.gather(one("q1", "first"), one("q2", "second"))
        return "done"

    asyncio.run(RunnableLambda(both).ainvoke(""))


@pytest.mark.parametrize("bound_by", ["query", "metadata", "text"])
def test_steps_of_two_queries_that_run_at_once_do_not_mix(bound_by: str) -> None:
    with record_recall(LABELS, k=2) as recorder:
        reranked(recorder, bound_by)
    stage = recorder.stages["drop_first"]
    assert [row.recall["recall@2"] for row in stage.queries] == [0.0, 0.0]
    assert [row.retrieved for row in stage.queries] == [("x",), ()]
    assert set(recorder.stages) == {"Scripted", "drop_first", "final"}
    assert {(one.query_id, one.label) for one in recorder.lost} == {("q1", "a"), ("q2", "c")}


def keep_first(found: list[Document]) -> list[Document]:
    return found[:1]


RERANK: Any = RunnableLambda(keep_first).with_config(run_name="rerank")
SHARED = [Document(page_content=text) for text in "axbc"]
OVERLAPPING = {"first": [SHARED[0], SHARED[1]], "second": [SHARED[3], SHARED[1]]}


class Overlapping(BaseRetriever):
    """The same Documents for several queries, as BM25Retriever gives them."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return OVERLAPPING[query]


def batched(texts: list[str]) -> Any:
    return RERANK.batch(Overlapping().batch(texts))


def one_after_the_other(texts: list[str]) -> Any:
    found = [Overlapping().invoke(text) for text in texts]
    return [RERANK.invoke(one) for one in found]


@pytest.mark.parametrize(
    "chain",
    [
        Overlapping().map() | RERANK.map(),
        RunnableLambda(batched),
        RunnableLambda(one_after_the_other),
    ],
    ids=["map", "batch", "loop"],
)
def test_a_step_belongs_to_the_query_whose_documents_it_takes(chain: Any) -> None:
    with record_recall(LABELS, k=2) as recorder:
        chain.invoke(["first", "second"])
    rows = recorder.stages["rerank"].queries
    assert [row.retrieved for row in rows] == [("a",), ("c",)]
    assert [row.recall["recall@2"] for row in rows] == [0.5, 1.0]
    assert recorder.story("q2") == "Overlapping@2 1.000 → rerank@1 1.000"
    assert recorder.lost == ()


def load_history(_: Any) -> list[Document]:
    time.sleep(0.02)  # until the branch beside it has retrieved
    return [Document(page_content="old chat")]


def load_no_history(_: Any) -> list[Document]:
    return []


def first_text(found: list[Document]) -> str:
    return found[0].page_content


HISTORY_CHAINS: dict[str, Any] = {
    "beside": RunnableParallel(context=Scripted(), history=load_history),
    "after": RunnablePassthrough.assign(context=operator.itemgetter("question") | Scripted())
    | RunnablePassthrough.assign(history=load_history),
    "none yet": RunnablePassthrough.assign(context=operator.itemgetter("question") | Scripted())
    | RunnablePassthrough.assign(history=load_no_history),
    "none yet, of the documents": Scripted()
    | RunnableParallel(context=RunnableLambda(first_text), history=RunnableLambda(load_no_history)),
    "of the answer": Scripted() | RunnableLambda(first_text) | RunnableLambda(load_history),
}


@pytest.mark.parametrize("name", HISTORY_CHAINS)
@pytest.mark.parametrize("streamed", [False, True])
def test_documents_that_do_not_come_from_the_retrieval_are_no_stage(
    name: str, streamed: bool
) -> None:
    chain = HISTORY_CHAINS[name]
    asked: Any = {"question": "first"} if "after" in name or name == "none yet" else "first"
    with record_recall(LABELS, k=2) as recorder:
        if streamed:
            list(chain.stream(asked))
        else:
            chain.invoke(asked)
    assert set(recorder.stages) == {"final"}
    assert recorder.story("q1") == "Scripted@2 0.500"


def scored(found: list[Document]) -> list[tuple[Document, float]]:
    return [(one, 0.5) for one in found[1:]]


def as_tuple(found: list[Document]) -> tuple[Document, ...]:
    return tuple(found[1:])


def in_place(found: list[Document]) -> list[Document]:
    del found[0]
    return found


def rewritten(found: list[Document]) -> list[Document]:
    return [Document(page_content=one.page_content.upper()) for one in found]


def under_its_key(state: dict[str, Any]) -> dict[str, Any]:
    return {"docs": rewritten(state["docs"])}


def beside_the_others(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "top": [Document(page_content=one.page_content) for one in state["docs"][1:]]}


STEPS: dict[str, Any] = {
    "pairs": RunnableLambda(scored),
    "tuple": RunnableLambda(as_tuple),
    "in place": RunnableLambda(in_place),
    "rewritten": RunnableLambda(rewritten),
    "state key": RunnableParallel(docs=RunnablePassthrough()) | RunnableLambda(under_its_key),
    "another key": RunnableParallel(docs=RunnablePassthrough()) | RunnableLambda(beside_the_others),
    "branch": RunnableParallel(docs=RunnablePassthrough())
    | RunnablePassthrough.assign(top=operator.itemgetter("docs") | RunnableLambda(drop_first)),
    "pairs in": RunnableLambda(scored) | RunnableLambda(lambda pairs: [one for one, _ in pairs]),
}


STEP_CASES = [(name, False) for name in STEPS] + [
    (name, True)
    for name in STEPS
    if name != "in place"  # a stream's inputs are told after the step has changed them
]


@pytest.mark.parametrize(("name", "streamed"), STEP_CASES)
def test_a_step_is_seen_however_it_takes_and_gives_its_documents(name: str, streamed: bool) -> None:
    chain = RunnableLambda(str) | Scripted() | STEPS[name]
    with record_recall(LABELS, k=2) as recorder:
        if streamed:
            list(chain.stream("first"))
        else:
            chain.invoke("first")
    assert recall_of(recorder, "q1") == 0.5
    assert recorder.stages["final"].queries[0].recall == {"recall@2": 0.0}
    assert [one.label for one in recorder.lost] == ["a"]
    assert len(recorder.stages) == (4 if name == "pairs in" else 3)
    assert recorder.recorder.faults == []


def test_lists_of_lists_are_taken_by_a_fusion_step() -> None:
    def fuse(lists: list[list[Document]]) -> list[tuple[Document, float]]:
        return [(one, 1.0) for found in lists for one in found if one.page_content != "a"]

    chain: Any = Scripted().map() | RunnableLambda(fuse)
    with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
        chain.invoke(["about b", "about a"])
    assert recorder.story("q1") == "Scripted@2 0.500 → fuse@3 0.500: 'a' lost at fuse"


def test_a_step_that_falls_back_to_the_retrieved_list_is_the_last_one() -> None:
    empty: Any = RunnableLambda(drop_all)

    def filtered_or_all(found: list[Document]) -> list[Document]:
        return empty.invoke(found) or found

    with record_recall(LABELS, k=2) as recorder:
        (Scripted() | RunnableLambda(filtered_or_all)).invoke("first")
    assert recorder.stages["drop_all"].queries[0].recall == {"recall@2": 0.0}
    assert recorder.stages["final"].queries[0].recall == {"recall@2": 0.5}


def test_a_step_of_an_earlier_call_is_no_stage_of_the_last_one() -> None:
    def both(text: str) -> list[Document]:
        early = Scripted().invoke("about b")
        Scripted().invoke(text)
        found: list[Document] = RERANK.invoke(early)
        return found

    with record_recall(LABELS, k=2) as recorder, recorder.query("q1"):
        RunnableLambda(both).invoke("about a")
    assert set(recorder.stages) == {"final"}


def test_nested_blocks_over_different_datasets_bind_their_own_queries() -> None:
    other = Dataset([Query(query_id="q1", text="unlike", relevant=["z"])])
    with record_recall(LABELS, k=2) as outer, record_recall(other, k=2) as inner:
        with inner.query("q1"):
            Scripted().invoke("second")
        with outer.query("q2"):
            Scripted().invoke("about b")
    assert [row.status for row in outer.report().queries] == ["not_run", "scored"]
    assert len(outer.report().queries[1].calls) == 2
    assert [row.status for row in inner.report().queries] == ["scored"]
    assert (inner.report().unlabelled, outer.report().unlabelled) == (1, 0)


def test_nested_blocks_over_one_dataset_share_what_is_bound() -> None:
    with (
        record_recall(LABELS, k=2) as outer,
        record_recall(Dataset(LABELS.queries), k=1) as inner,
        inner.query("q1"),
    ):
        Scripted().invoke("about b")
    assert [one.report().queries[0].status for one in (outer, inner)] == ["scored", "scored"]


def test_metadata_that_names_no_query_is_unlabelled_and_said() -> None:
    handler = RecallCallbackHandler(LABELS, k=2)
    for named in ("q9", 7):
        config: Any = {"callbacks": [handler], "metadata": {"chunkrecall_query_id": named}}
        Scripted().invoke("about a", config=config)
    report = handler.report()
    assert report.unlabelled == 2
    (note,) = [note for note in report.notes if "'q9'" in note]
    assert "chunkrecall_query_id" in note
    assert "7" in note


def test_the_binding_holds_inside_the_block_only() -> None:
    with record_recall(LABELS, k=2) as recorder:
        with recorder.query("q1"):
            with recorder.query("q2"):
                Scripted().invoke("second")
            Scripted().invoke("about b")
        Scripted().invoke("about a")
    report = recorder.report()
    assert [row.recall["recall@2"] for row in report.queries] == [0.5, 1.0]
    assert report.unlabelled == 1
    assert report.summary["recall@2"].total == 3


# Agents and graphs.


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def test_an_agents_two_searches_in_one_message_are_two_calls_bound_by_metadata() -> None:
    wanted = ("about a", "about b")
    calls = [ToolCall(name="search", args={"query": text}, id=text) for text in wanted]
    for awaited in (False, True):
        messages = iter([AIMessage("", tool_calls=calls), AIMessage("done")])
        tool = create_retriever_tool(Scripted(), "search", "Searches.")
        agent = create_agent(ScriptedModel(messages=messages), [tool])
        handler = RecallCallbackHandler(LABELS, k=2)
        config: Any = {"callbacks": [handler], "metadata": {"chunkrecall_query_id": "q1"}}
        inputs: Any = {"messages": [("user", "first")]}
        if awaited:
            asyncio.run(agent.ainvoke(inputs, config=config))
        else:
            agent.invoke(inputs, config=config)
        row = handler.report().queries[0]
        assert [call["recall@2"] for call in row.calls] == [0.5, 0.5]
        assert row.union == {"recall@2": 1.0}
        assert handler.report().unlabelled == 0
        assert set(handler.stages) == {"final"}


class State(TypedDict):
    question: str
    documents: list[Document]
    warnings: Annotated[list[str], operator.add]


def test_a_graph_tells_the_node_that_lost_a_chunk_and_no_other_step() -> None:
    def retrieve(state: State) -> dict[str, Any]:
        return {"documents": Scripted().invoke(state["question"])}

    nothing: Any = RunnableLambda(lambda _: [])

    def check(state: State) -> dict[str, Any]:
        return {"warnings": list(nothing.invoke(""))}

    def rerank(state: State) -> dict[str, Any]:
        return {"documents": state["documents"][:2]}

    def route(state: State) -> list[str]:
        return ["rerank"]

    builder = StateGraph(State)
    for node in (retrieve, check, rerank):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "check")
    builder.add_conditional_edges("check", route, ["rerank"])
    builder.add_edge("rerank", END)
    graph: Any = builder.compile()
    for awaited in (False, True):
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            start = {"question": "both", "documents": [], "warnings": []}
            if awaited:
                asyncio.run(graph.ainvoke(start))
            else:
                graph.invoke(start)
        assert recall_of(recorder, "q1", 3) == 1.0
        assert set(recorder.stages) == {"Scripted", "rerank", "final"}
        assert recorder.story("q1") == "Scripted@3 1.000 → rerank@2 0.500: 'b' lost at rerank"


class Nothing(BaseDocumentCompressor):
    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return []


def test_a_step_that_drops_everything_is_a_stage_and_an_unrelated_empty_list_is_none() -> None:
    chain = Scripted() | RunnableLambda(drop_all).with_config(run_name="drop all")
    with record_recall(LABELS, k=2) as recorder:
        chain.invoke("first")
    assert recorder.stages["final"].queries[0].recall == {"recall@2": 0.0}
    assert [one.stage for one in recorder.lost] == ["drop all"]
    unrelated: Any = Scripted() | RunnableLambda(len) | RunnableLambda(lambda number: [])
    with record_recall(LABELS, k=2) as recorder:
        unrelated.invoke("first")
    assert set(recorder.stages) == {"final"}
    assert recall_of(recorder, "q1") == 0.5


def test_a_compressor_that_drops_everything_lost_it() -> None:
    retriever = ContextualCompressionRetriever(base_compressor=Nothing(), base_retriever=Scripted())
    with record_recall(LABELS, k=2) as recorder:
        retriever.invoke("first")
    assert recorder.story("q1") == (
        "Scripted@2 0.500 → ContextualCompressionRetriever@0 0.000: "
        "'a' lost at ContextualCompressionRetriever"
    )


def test_rewrites_of_a_multi_query_retriever_are_stages_of_the_question() -> None:
    llm = FakeListLLM(responses=["about a\nabout b"])
    with record_recall(LABELS, k=4) as recorder:
        MultiQueryRetriever.from_llm(Scripted(), llm).invoke("first")
    assert recall_of(recorder, "q1", 4) == 1.0
    means = {name: stage.queries[0].recall["recall@4"] for name, stage in recorder.stages.items()}
    assert means == {"Scripted": 0.5, "Scripted#2": 0.5, "MultiQueryRetriever": 1.0, "final": 1.0}
    assert recorder.report().unlabelled == 0


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_streams_and_event_streams_are_recorded_once() -> None:
    chain = RunnableLambda(str) | Scripted() | RunnableLambda(drop_first)

    async def main() -> RecallCallbackHandler:
        with record_recall(LABELS, k=2) as recorder:
            for _ in chain.stream("first"):
                pass
            async for _ in chain.astream("first"):
                pass
            async for _ in chain.astream_events("first", version="v2"):
                pass
        return recorder

    recorder = asyncio.run(main())
    row = recorder.report().queries[0]
    assert [call["recall@2"] for call in row.calls] == [0.5, 0.5, 0.5]
    assert set(recorder.stages) == {"Scripted", "drop_first", "final"}
    assert recorder.recorder.faults == []


@pytest.mark.parametrize("key", ["documents", "docs"])
def test_a_node_that_answers_with_a_command_or_under_another_key_is_a_stage(key: str) -> None:
    def rerank(found: list[Document]) -> Any:
        return Command(goto=END, update={key: found[1:]})

    def under_key(found: list[Document]) -> Any:
        return {key: found[1:]}

    chains = [RunnableLambda(rerank), RunnableLambda(under_key)]
    for step in chains:
        with record_recall(LABELS, k=2) as recorder:
            (Scripted() | step.with_config(run_name="rerank")).invoke("first")
        assert recorder.story("q1") == "Scripted@2 0.500 → rerank@1 0.000: 'a' lost at rerank"


class Many(BaseRetriever):
    """Asks another retriever a hundred times, without passing callbacks on."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        for _ in range(100):
            Scripted().invoke("about b")
        return documents(["a", "b"])


def test_a_wrapper_that_asks_a_hundred_times_is_one_retrieval() -> None:
    with record_recall(LABELS, k=2) as recorder:
        Many().invoke("first")
    report = recorder.report()
    assert report.mean(2) == 1.0
    assert report.queries[0].calls == ()
    assert report.unlabelled == 0


def test_on_score_may_ask_the_recorder_for_its_report() -> None:
    means: list[float | None] = []
    recorders: list[RecallCallbackHandler] = []

    def ask(score: object) -> None:
        means.append(recorders[0].report().mean(2))

    with record_recall(LABELS, k=2, on_score=ask) as recorder:
        recorders.append(recorder)
        Scripted().invoke("first")
        Scripted().invoke("second")
    assert means == [0.5, 0.75]


# Many.


def test_more_retrievals_at_once_than_any_buffer_of_fixed_size() -> None:
    texts = [f"query {number}" for number in range(1_500)]

    async def main() -> RecallCallbackHandler:
        chain = RunnableLambda(str) | Echo()
        with record_recall({text: [text] for text in texts}, k=1) as recorder:
            await chain.abatch(texts)  # type: ignore[arg-type]
        return recorder

    report = asyncio.run(main()).report()
    assert report.summary["recall@1"].scored == len(texts)
    assert report.mean(1) == 1.0
    assert not [note for note in report.notes if "never ended" in note]


class Echo(BaseRetriever):
    """Waits until all that were started wait, and then finds what it was asked."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return documents([query])

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        await asyncio.sleep(0.03)
        return documents([query])


def test_what_is_kept_does_not_grow_with_chains_errors_faults_and_dead_runs() -> None:
    handler = RecallCallbackHandler(LABELS, k=2, on_score=raising)
    found = documents(["a", "x", "y", "z"])

    def chains(count: int) -> None:
        for number in range(count):
            root, retrieval, step = uuid4(), uuid4(), uuid4()
            text = ("first", "second", "neither")[number % 3]
            handler.on_chain_start({}, text, run_id=root, name="chain")
            handler.on_retriever_start(
                None, text, run_id=retrieval, parent_run_id=root, name="Scripted"
            )
            fate = number % 4
            if fate == 0:
                handler.on_retriever_error(ConnectionError("down"), run_id=retrieval)
            elif fate > 1:
                handler.on_retriever_end(found, run_id=retrieval)
            handler.on_chain_start({}, found, run_id=step, parent_run_id=root, name="rerank")
            if fate != 2:
                handler.on_chain_end(found[1:], run_id=step)
            if fate != 3:
                handler.on_chain_end("answer", run_id=root)

    chains(24_000)  # until every buffer has reached its bound
    gc.collect()
    before = sys.getallocatedblocks()
    chains(16_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 2_000
    assert len(handler.recorder.faults) <= 100
    assert any("failed" in note for note in handler.report().notes)


def test_a_logged_line_gives_the_rank_of_a_missing_chunk_below_k(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="chunkrecall"):  # noqa: SIM117
        with record_recall(LABELS, k=(1, 2), log=True) as recorder, recorder.query("q1"):
            Scripted().invoke("both")
            RunnableParallel(one=Scripted(), two=RunnableLambda(str)).invoke("nothing")
    first, second = [r.getMessage() for r in caplog.records if r.name == "chunkrecall"]
    assert "1/2" in first
    assert "missing: 'b' (at rank 3)" in first
    assert "0/2" in second
    assert "'a'" in second


def test_a_handler_given_by_the_block_and_by_the_config_counts_once() -> None:
    with record_recall(LABELS, k=2) as recorder:
        (RunnableLambda(str) | Scripted()).invoke("first", config={"callbacks": [recorder]})
        with record_recall(LABELS, k=2) as inner:
            Scripted().invoke("second", config={"callbacks": [recorder]})
    for one, statuses in ((recorder, ["scored", "scored"]), (inner, ["not_run", "scored"])):
        rows = one.report().queries
        assert [row.status for row in rows] == statuses
        assert [row.calls for row in rows] == [(), ()]


def test_an_id_only_label_is_matched_by_id_in_a_live_chain() -> None:
    labels = Dataset([Query(query_id="q", text="q", relevant=[Label(chunk_id="1")])])
    found = [Document(page_content="anything", id="1")]
    with record_recall(labels, k=1) as recorder:
        Returns(value=found).invoke("q")
    assert recall_of(recorder, "q", 1) == 1.0
    assert recorder.report().queries[0].retrieved == ("anything",)
    assert Chunk(text="anything", chunk_id="1").chunk_id == "1"
