"""What LlamaIndex's recorders keep of live pipelines, and what they leave alone."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.evaluation import BatchEvalRunner
from llama_index.core.instrumentation import root_dispatcher, root_manager
from llama_index.core.instrumentation.dispatcher import active_instrument_tags, instrument_tags
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor import LLMRerank, SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever, TransformRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from chunkrecall import Dataset, Label, Query, evaluate_retriever
from chunkrecall.llama_index import (
    RecallCallbackHandler,
    RecallSpanHandler,
    ResponseRecallEvaluator,
    record_recall,
)

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


def nodes(texts: list[str]) -> list[NodeWithScore]:
    """Scores fall with the rank: 1, 0.5, 0.33."""
    return [
        NodeWithScore(node=TextNode(text=text, id_=text), score=1 / rank)
        for rank, text in enumerate(texts, 1)
    ]


class Scripted(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        return nodes(ANSWERS[asked(query_bundle)])

    async def _aretrieve(self, query_bundle: QueryBundle) -> Any:
        await asyncio.sleep(0)
        return self._retrieve(query_bundle)


def asked(query_bundle: QueryBundle) -> str:
    """A retriever tool dresses what the model says as `input is …` and line breaks."""
    return query_bundle.query_str.strip().removeprefix("input is ")


class Raises(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        raise ConnectionError("down")


class Echo(BaseRetriever):
    """Finds what it was asked, and lets others run before."""

    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        return nodes([query_bundle.query_str, "x"])

    async def _aretrieve(self, query_bundle: QueryBundle) -> Any:
        await asyncio.sleep(0.001)
        return self._retrieve(query_bundle)


class DropFirst(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return nodes[1:]


class EmptiesInPlace(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        nodes.clear()
        return nodes


class Fails(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        raise ZeroDivisionError("reranker failed")


their_own_deprecations = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CUT = SimilarityPostprocessor(similarity_cutoff=0.4)


def engine(retriever: Any = None, *postprocessors: Any, **options: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(
        retriever or Scripted(), llm=MockLLM(), node_postprocessors=list(postprocessors), **options
    )


def ask(asking: Any, text: str, awaited: bool) -> Any:
    return asyncio.run(asking.aquery(text)) if awaited else asking.query(text)


def recall_of(recorder: Any, query_id: str, k: int = 3) -> float | None:
    rows = {row.query_id: row for row in recorder.report().queries}
    return rows[query_id].recall[f"recall@{k}"]


def handler_counts() -> dict[str, tuple[int, int]]:
    dispatchers = root_manager.dispatchers
    return {n: (len(d.span_handlers), len(d.event_handlers)) for n, d in dispatchers.items()}


@pytest.fixture(autouse=True)
def nothing_is_left_on_the_dispatchers() -> Iterator[None]:
    before = handler_counts()
    tags = dict(active_instrument_tags.get())
    yield
    assert handler_counts() == {**handler_counts(), **before}
    assert not any(isinstance(one, RecallSpanHandler) for one in root_dispatcher.span_handlers)
    assert dict(active_instrument_tags.get()) == tags


# Query engines and their postprocessors.


@pytest.mark.parametrize("awaited", [False, True])
def test_a_query_engine_is_scored_before_its_postprocessor_and_after(awaited: bool) -> None:
    with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
        response = ask(engine(Scripted(), CUT), "both", awaited)
    assert [one.text for one in response.source_nodes] == ["x", "a"]
    assert recall_of(recorder, "q1") == 1.0
    assert {name: one.mean(3) for name, one in recorder.stages.items()} == {
        "Scripted": 1.0,
        "SimilarityPostprocessor": 0.5,
        "final": 0.5,
    }
    (lost,) = recorder.lost
    assert (lost.query_id, lost.label, lost.stage) == ("q1", "b", "SimilarityPostprocessor")
    assert recorder.story("q1") == (
        "Scripted@3 1.000 → SimilarityPostprocessor@2 0.500: 'b' lost at SimilarityPostprocessor"
    )
    assert recorder.recorder.faults == []


@pytest.mark.parametrize("awaited", [False, True])
def test_each_of_several_postprocessors_is_a_stage_with_what_it_lost(awaited: bool) -> None:
    with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
        ask(engine(Scripted(), DropFirst(), DropFirst(), CUT), "both", awaited)
    assert {name: one.mean(3) for name, one in recorder.stages.items()} == {
        "Scripted": 1.0,
        "DropFirst": 1.0,
        "DropFirst#2": 0.5,
        "SimilarityPostprocessor": 0.0,
        "final": 0.0,
    }
    assert {one.label: one.stage for one in recorder.lost} == {
        "a": "DropFirst#2",
        "b": "SimilarityPostprocessor",
    }


@pytest.mark.parametrize("awaited", [False, True])
def test_steps_after_an_unlabelled_retrieval_are_no_stages_of_the_labelled_one(
    awaited: bool,
) -> None:
    asking = engine(Scripted(), DropFirst())
    with record_recall(LABELS, k=3) as recorder:
        ask(asking, "first", awaited)
        alone = recorder.story("q1")
        ask(asking, "both", awaited)  # unlabelled, and finds chunks of the query before
    assert recorder.story("q1") == alone
    assert list(recorder.stages) == ["Scripted", "DropFirst", "final"]
    assert recorder.report().summary["recall@3"].unlabelled == 1


class Ranks(MockLLM):
    """Says which passages are worth keeping, as `LLMRerank` asks for it."""

    def complete(self, prompt: Any, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="Doc: 3, Relevance: 9\nDoc: 1, Relevance: 2")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_model_that_reranks_is_a_stage(awaited: bool) -> None:
    rerank = LLMRerank(llm=Ranks(), top_n=2)  # natively async in newer versions
    with record_recall(LABELS, k=(1, 3)) as recorder, recorder.query("q1"):
        ask(engine(Scripted(), rerank), "both", awaited)
    stage = recorder.stages["LLMRerank"].queries[0]
    assert stage.retrieved == ("b", "x")
    assert stage.recall == {"recall@1": 0.5, "recall@3": 0.5}
    assert [(one.label, one.stage) for one in recorder.lost] == [("a", "LLMRerank")]


class KeepsOneOfEachText(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return list({one.text: one for one in reversed(nodes)}.values())[::-1]


def test_a_label_that_was_dropped_as_a_duplicate_says_of_what() -> None:
    labels = Dataset([Query(query_id="q", text="q", relevant_ids=["copy"])])
    kept, copy = (
        NodeWithScore(node=TextNode(text="a", id_=i, metadata={"n": i})) for i in ("kept", "copy")
    )

    class Finds(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> Any:
            return [kept, copy]

    with record_recall(labels, k=2) as recorder:
        engine(Finds(), KeepsOneOfEachText()).query("q")
    assert recall_of(recorder, "q", 2) == 1.0
    (lost,) = recorder.lost
    assert (lost.stage, lost.how) == ("KeepsOneOfEachText", "dropped as duplicate of 'kept'")


class Merges(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return [NodeWithScore(node=TextNode(text=" ".join(n.text for n in nodes), id_="p"))]


def test_a_label_that_was_merged_into_its_parent_says_so() -> None:
    with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
        engine(Scripted(), Merges()).query("both")
    assert {(one.label, one.how) for one in recorder.lost} == {
        ("a", "merged into parent 'p'"),
        ("b", "merged into parent 'p'"),
    }
    assert recorder.story("q1") == (
        "Scripted@3 1.000 → Merges@1 0.000: 'a' lost at Merges (merged into parent 'p'), "
        "'b' lost at Merges (merged into parent 'p')"
    )


@pytest.mark.parametrize("awaited", [False, True])
def test_a_postprocessor_that_empties_its_list_in_place_lost_it_all(awaited: bool) -> None:
    with record_recall(LABELS, k=3) as recorder:
        ask(engine(Scripted(), EmptiesInPlace()), "first", awaited)
    assert recall_of(recorder, "q1") == 0.5
    assert recorder.stages["EmptiesInPlace"].mean(3) == 0.0
    assert [(one.label, one.stage) for one in recorder.lost] == [("a", "EmptiesInPlace")]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_postprocessor_that_fails_is_no_stage_and_the_retrieval_stays_scored(
    awaited: bool,
) -> None:
    with record_recall(LABELS, k=3) as recorder:
        with pytest.raises(ZeroDivisionError, match="reranker failed"):
            ask(engine(Scripted(), Fails()), "first", awaited)
        ask(engine(Scripted(), DropFirst()), "second", awaited)
    assert [recall_of(recorder, one) for one in ("q1", "q2")] == [0.5, 1.0]
    assert set(recorder.stages) == {"Scripted", "DropFirst", "final"}
    assert recorder._steps == {}


class DropsFirstNatively(DropFirst):
    """Has an async way of its own, which tells of no span."""

    async def _apostprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return nodes[1:]


def test_a_natively_async_postprocessor_is_seen_by_what_the_synthesizer_was_given() -> None:
    silent = DropsFirstNatively()
    for postprocessors, losers in (
        ((silent, silent), {"a": "DropsFirstNatively + DropsFirstNatively"}),
        ((DropFirst(), silent), {"a": "DropsFirstNatively"}),
        ((silent, DropFirst()), {"a": "DropFirst"}),
        ((silent, CUT, silent), {"b": "SimilarityPostprocessor", "a": "DropsFirstNatively#2"}),
    ):
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            ask(engine(Scripted(), *postprocessors), "both", True)
        assert {one.label: one.stage for one in recorder.lost} == losers
        assert (recorder._engines, recorder._steps) == ({}, {})
    chat = ContextChatEngine.from_defaults(
        Scripted(),
        llm=MockLLM(),
        memory=ChatMemoryBuffer.from_defaults(llm=MockLLM()),
        node_postprocessors=[silent, silent],
    )
    with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
        asyncio.run(chat.achat("both"))
    assert [one.label for one in recorder.lost] == ["a"]


def test_an_engine_is_recorded_without_its_model_and_while_it_streams() -> None:
    with record_recall(LABELS, k=3) as recorder:
        engine(Scripted(), CUT).retrieve(QueryBundle("first"))
        streamed = engine(Scripted(), CUT, streaming=True).query("second")
        assert recall_of(recorder, "q2") == 1.0  # before anybody has read the stream
        assert "".join(streamed.response_gen)
    assert recorder.stages["SimilarityPostprocessor"].mean(3) == 0.75


@pytest.mark.parametrize("awaited", [False, True])
def test_numbered_sources_of_citations_are_no_stage(awaited: bool) -> None:
    citing = CitationQueryEngine.from_args(
        index=None,  # type: ignore[arg-type]  # a retriever is given instead
        retriever=Scripted(),
        llm=MockLLM(),
        node_postprocessors=[CUT],
    )
    with record_recall(LABELS, k=3) as recorder:
        response = ask(citing, "first", awaited)
    assert response.source_nodes[0].text.startswith("Source 1:")
    assert recall_of(recorder, "q1") == 0.5
    assert set(recorder.stages) == {"Scripted", "SimilarityPostprocessor", "final"}
    assert recorder.stages["final"].mean(3) == 0.5


@pytest.mark.parametrize("awaited", [False, True])
def test_a_chat_engine_is_recorded_turn_by_turn(awaited: bool) -> None:
    chat = ContextChatEngine.from_defaults(
        Scripted(), llm=MockLLM(), memory=ChatMemoryBuffer.from_defaults(llm=MockLLM())
    )

    async def main() -> Any:
        with record_recall(LABELS, k=3) as recorder:
            for text in ("first", "second"):
                await chat.achat(text) if awaited else chat.chat(text)
        return recorder

    recorder = asyncio.run(main())
    assert [recall_of(recorder, one) for one in ("q1", "q2")] == [0.5, 1.0]


# Agents and workflows.


class CallsTools(FunctionCallingLLM):
    """Asks every tool what the user wants, once, and then is done."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    def chat(self, messages: Any, tools: Any = (), **kwargs: Any) -> ChatResponse:
        reply = ChatMessage(role=MessageRole.ASSISTANT, content="done")
        if not any(one.role == MessageRole.TOOL for one in messages):
            wanted = next(one.content for one in messages if one.role == MessageRole.USER)
            reply.additional_kwargs["tool_calls"] = [
                ToolSelection(tool_id=f"{text}-{one}", tool_name=one, tool_kwargs={"input": text})
                for text in wanted.split(", ")
                for one in tools
            ]
        return ChatResponse(message=reply)

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return self.chat(messages, **kwargs)

    async def astream_chat(self, messages: Any, **kwargs: Any) -> AsyncIterator[ChatResponse]:
        async def stream() -> AsyncIterator[ChatResponse]:
            yield self.chat(messages, **kwargs)

        return stream()

    def get_tool_calls_from_response(self, response: Any, *args: Any, **kwargs: Any) -> Any:
        return response.message.additional_kwargs.get("tool_calls", [])

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
    ) -> Any:
        return {"messages": list(chat_history or []), "tools": [t.metadata.name for t in tools]}

    def _never(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = acomplete = astream_complete = stream_chat = _never


def search(text: str) -> str:
    return " ".join(one.text for one in Scripted().retrieve(text))


def tools() -> dict[str, Any]:
    def search_function(input: str) -> str:  # noqa: A002 - the scripted model's argument
        """Searches."""
        return search(input)

    return {
        "engine": QueryEngineTool.from_defaults(engine(Scripted(), CUT), description="d"),
        "retriever": RetrieverTool.from_defaults(
            Scripted(), node_postprocessors=[CUT], description="d"
        ),
        "function": FunctionTool.from_defaults(search_function),
    }


async def tools_copy_the_context() -> bool:
    """Whether this version of core does, where it runs a sync function in a thread."""
    variable = contextvars.ContextVar("variable", default="lost")
    variable.set("copied")
    output = await FunctionTool.from_defaults(lambda: str(variable.get()), name="t").acall()
    return str(output) == "copied"


async def agent(tool: Any, text: str) -> str:
    answer = await FunctionAgent(tools=[tool], llm=CallsTools()).run(text)
    return str(answer)


@their_own_deprecations
@pytest.mark.parametrize("kind", ["engine", "retriever", "function"])
def test_what_an_agents_tool_retrieves_belongs_to_the_query_that_was_named(kind: str) -> None:
    async def main() -> Any:
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            assert await agent(tools()[kind], "both") == "done"
        return recorder

    recorder = asyncio.run(main())
    if kind == "function" and not asyncio.run(tools_copy_the_context()):
        assert any("in threads that copy no context" in one for one in recorder.report().notes)
        return
    assert recall_of(recorder, "q1") == 1.0
    assert recorder.report().unlabelled == 0
    assert recorder.recorder.faults == []
    if kind == "function":
        assert set(recorder.stages) == {"final"}
    else:
        assert recorder.stages["SimilarityPostprocessor"].mean(3) == 0.5
        assert [(one.label, one.stage) for one in recorder.lost] == [
            ("b", "SimilarityPostprocessor")
        ]


@their_own_deprecations
@pytest.mark.parametrize("kind", ["engine", "retriever"])
def test_an_agents_two_searches_are_two_calls_and_their_union(kind: str) -> None:
    async def main() -> Any:
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            await agent(tools()[kind], "about a, about b")
        return recorder

    recorder = asyncio.run(main())
    (row, _) = recorder.report().queries
    assert [call["recall@3"] for call in row.calls] == [0.5, 0.5]
    assert row.union == {"recall@3": 1.0}


@their_own_deprecations
def test_agents_that_run_at_once_do_not_mix() -> None:
    texts = {f"q{number}": f"text {number}" for number in range(8)}
    labels = Dataset([Query(query_id=q, text="the same", relevant=[t]) for q, t in texts.items()])

    async def one(recorder: Any, query_id: str, text: str) -> None:
        tool = QueryEngineTool.from_defaults(engine(Echo(), CUT), description="d")
        with recorder.query(query_id):
            await agent(tool, text)

    async def main() -> Any:
        with record_recall(labels, k=1) as recorder:
            await asyncio.gather(*(one(recorder, q, t) for q, t in texts.items()))
        return recorder

    recorder = asyncio.run(main())
    assert [row.recall["recall@1"] for row in recorder.report().queries] == [1.0] * 8
    assert [row.calls for row in recorder.report().queries] == [()] * 8
    assert recorder.stages["SimilarityPostprocessor"].mean(1) == 1.0


class Retrieved(Event):
    nodes: Any


class Steps(Workflow):
    @step
    async def retrieve(self, event: StartEvent) -> Retrieved:
        return Retrieved(nodes=await Scripted().aretrieve(event.text))

    @step
    async def rerank(self, event: Retrieved) -> StopEvent:
        return StopEvent(result=DropFirst().postprocess_nodes(event.nodes[:]))


class SyncSteps(Workflow):
    """Its steps run in threads that copy the context."""

    @step
    def retrieve(self, event: StartEvent) -> StopEvent:
        found = Scripted().retrieve(event.text)
        return StopEvent(result=DropFirst().postprocess_nodes(found))


@their_own_deprecations
@pytest.mark.parametrize("kind", [Steps, SyncSteps])
def test_a_workflow_is_recorded_from_step_to_step(kind: type[Workflow]) -> None:
    async def one(recorder: Any, query_id: str, text: str) -> None:
        with recorder.query(query_id):
            found = await kind(timeout=10).run(text=text)
        assert [node.text for node in found] == ANSWERS[text][1:]

    async def main() -> Any:
        with record_recall(LABELS, k=3) as recorder:
            await asyncio.gather(one(recorder, "q1", "both"), one(recorder, "q2", "second"))
        return recorder

    recorder = asyncio.run(main())
    if kind is SyncSteps and version("llama-index-workflows").startswith("1."):
        assert any("in threads that copy no context" in one for one in recorder.report().notes)
        return
    assert [recall_of(recorder, one) for one in ("q1", "q2")] == [1.0, 1.0]
    stage = recorder.stages["DropFirst"]
    assert [row.retrieved for row in stage.queries] == [("a", "b"), ()]
    assert [(one.query_id, one.label) for one in recorder.lost] == [("q2", "c")]


# Many at once.

FIFTY = {f"q{number}": f"text {number}" for number in range(50)}
SAME = Dataset([Query(query_id=q, text="the same", relevant=[t]) for q, t in FIFTY.items()])


def all_fifty_are_right(recorder: Any) -> None:
    report = recorder.report()
    assert [row.recall["recall@1"] for row in report.queries] == [1.0] * 50
    assert [row.retrieved[0] for row in report.queries] == list(FIFTY.values())
    assert [row.calls for row in report.queries] == [()] * 50
    assert report.unlabelled == 0
    assert recorder.recorder.faults == []
    stage = recorder.stages["DropFirst"]
    assert [row.retrieved for row in stage.queries] == [("x",)] * 50
    assert {(one.query_id, one.label, one.stage) for one in recorder.lost} == {
        (query_id, text, "DropFirst") for query_id, text in FIFTY.items()
    }


def test_fifty_tasks_do_not_mix() -> None:
    async def one(recorder: Any, query_id: str, text: str) -> None:
        with recorder.query(query_id):
            await engine(Echo(), DropFirst()).aquery(text)

    async def main() -> Any:
        with record_recall(SAME, k=1) as recorder:
            await asyncio.gather(*(one(recorder, q, t) for q, t in FIFTY.items()))
        return recorder

    all_fifty_are_right(asyncio.run(main()))


@pytest.fixture
def threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_switch_often")
def test_fifty_bare_threads_do_not_mix() -> None:
    barrier = threading.Barrier(50)

    def one(recorder: Any, query_id: str, text: str) -> None:
        barrier.wait(10)
        with recorder.query(query_id):
            engine(Echo(), DropFirst()).query(text)

    with record_recall(SAME, k=1) as recorder, ThreadPoolExecutor(50) as pool:
        for future in [pool.submit(one, recorder, q, t) for q, t in FIFTY.items()]:
            future.result()
    all_fifty_are_right(recorder)
    assert not [note for note in recorder.report().notes if "outside the block" in note]


def test_a_bare_thread_is_left_out_and_said_unless_it_copies_the_context() -> None:
    with record_recall(LABELS, k=3) as recorder, ThreadPoolExecutor(1) as pool:
        pool.submit(Scripted().retrieve, "first").result()
        context = contextvars.copy_context()
        pool.submit(context.run, Scripted().retrieve, "second").result()
        asyncio.run(in_thread("second"))
    report = recorder.report()
    assert [row.status for row in report.queries] == ["not_run", "scored"]
    assert len(report.queries[1].calls) == 2
    assert any("1 retrievals ran outside the block" in note for note in report.notes)


async def in_thread(text: str) -> Any:
    return await asyncio.to_thread(Scripted().retrieve, text)


# What goes wrong.


@pytest.mark.parametrize("awaited", [False, True])
def test_a_failing_retriever_is_an_errored_row_and_raises_as_ever(awaited: bool) -> None:
    for failing in (Raises(), QueryFusionRetriever([Raises()], llm=MockLLM(), num_queries=1)):
        with record_recall(LABELS, k=3) as recorder:
            ask(engine(), "second", awaited)
            with pytest.raises(ConnectionError, match="down"):
                ask(engine(failing), "first", awaited)
        first, second = recorder.report().queries
        assert (first.status, second.status) == ("errored", "scored")
        assert "ConnectionError: down" in str(first.error)
        assert first.recall == {"recall@3": None}
        summary = recorder.report().summary["recall@3"]
        assert (summary.mean, summary.errored, summary.scored) == (1.0, 1, 1)
        assert "ConnectionError" in recorder.story("q1")
        assert recorder.lost == ()


def test_a_failure_after_a_success_and_a_success_after_a_failure_count_as_the_last() -> None:
    with record_recall(LABELS, k=3) as recorder:
        engine(Scripted(), CUT).query("first")
        with pytest.raises(ConnectionError):
            Raises().retrieve("first")
        with pytest.raises(ConnectionError):
            Raises().retrieve("second")
        Scripted().retrieve("second")
    assert [row.status for row in recorder.report().queries] == ["errored", "scored"]
    assert recorder.stages["final"].queries[0].status == "errored"


class Stuck(BaseRetriever):
    """Finds something else first, and then never returns."""

    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        raise NotImplementedError

    async def _aretrieve(self, query_bundle: QueryBundle) -> Any:
        await Scripted().aretrieve("second")
        await asyncio.Event().wait()


def test_cancelled_calls_are_errored_and_disturb_no_other() -> None:
    async def main() -> Any:
        with record_recall(LABELS, k=3) as recorder:
            for asking in (Stuck().aretrieve, engine(Stuck()).aquery):
                task = asyncio.create_task(asking("first"))
                await asyncio.sleep(0.005)
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(outcome, asyncio.CancelledError)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(Stuck().aretrieve("first"), 0.005)
            errored = recorder.report().queries[0]
            assert errored.status == "errored"
            assert "CancelledError" in str(errored.error)
            await engine(Scripted(), DropFirst()).aquery("first")
        return recorder

    recorder = asyncio.run(main())
    report = recorder.report()
    assert [row.status for row in report.queries] == ["scored", "not_run"]  # "second" was inner
    assert recall_of(recorder, "q1") == 0.5
    assert set(recorder.stages) == {"Scripted", "DropFirst", "final"}
    assert report.unlabelled == 0


def test_an_interrupted_retrieval_does_not_disturb_the_next() -> None:
    class Interrupted(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> Any:
            raise KeyboardInterrupt

    with record_recall(LABELS, k=3) as recorder:
        with pytest.raises(KeyboardInterrupt):
            Interrupted().retrieve("second")
        Scripted().retrieve("first")
    assert [row.status for row in recorder.report().queries] == ["scored", "errored"]


class Broken:
    """A matcher that fails on the chunks it is given."""

    def describe(self) -> str:
        return "broken"

    def first_ranks(self, labels: Any, chunks: Any) -> tuple[int | None, ...]:
        if chunks:
            raise ZeroDivisionError("matcher failed")
        return (None,) * len(labels)


def test_faults_are_kept_and_raised_on_leaving_only_if_asked() -> None:
    with record_recall(LABELS, k=3, matcher=Broken()) as recorder:
        assert ask(engine(Scripted(), DropFirst()), "first", False).source_nodes[0].text == "x"
    report = recorder.report()
    assert [row.status for row in report.queries] == ["errored", "not_run"]
    assert isinstance(recorder.recorder.faults[0], ZeroDivisionError)
    assert any("matcher failed" in note for note in report.notes)
    with pytest.raises(ZeroDivisionError, match="matcher failed"):  # noqa: SIM117 - on leaving
        with record_recall(LABELS, k=3, matcher=Broken(), raise_faults=True):
            Scripted().retrieve("first")
    with pytest.raises(KeyError, match="mine"):  # noqa: SIM117, PT012 - the pipeline's own wins
        with record_recall(LABELS, k=3, matcher=Broken(), raise_faults=True):
            Scripted().retrieve("first")
            raise KeyError("mine")


def test_a_text_that_cannot_be_read_is_an_errored_row_and_never_raises() -> None:
    with record_recall(LABELS, k=3, text_from="original_text") as recorder:
        assert len(Scripted().retrieve("first")) == 2
    (first, _) = recorder.report().queries
    assert first.status == "errored"
    assert "original_text" in str(first.error)


# The block, nested and many times.


def test_nothing_is_left_on_the_dispatchers_after_a_thousand_blocks() -> None:
    before = handler_counts()
    for number in range(1_000):
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            if number % 100 == 0:
                Scripted().retrieve("both")
                evaluate_retriever(Scripted(), LABELS, k=3, progress=False)
        if number % 100 == 50:
            with pytest.raises(KeyError), record_recall(LABELS):
                raise KeyError
    assert handler_counts() == before


@pytest.mark.usefixtures("threads_switch_often")
def test_blocks_of_several_threads_neither_lose_nor_leave_a_handler() -> None:
    before = handler_counts()

    def one(number: int) -> list[float | None]:
        means = []
        for _ in range(20):
            with record_recall(LABELS, k=3) as recorder:
                Scripted().retrieve("second")
            means.append(recorder.report().mean(3))
            if number % 2:
                evaluate_retriever(Scripted(), LABELS, k=3, progress=False)
        return means

    with ThreadPoolExecutor(8) as pool:
        assert [one for found in pool.map(one, range(8)) for one in found] == [1.0] * 160
    assert handler_counts() == before


def test_an_evaluation_inside_a_block_or_beside_it_is_no_retrieval_of_it() -> None:
    started, done = threading.Event(), threading.Event()

    class Waits(Scripted):
        def _retrieve(self, query_bundle: QueryBundle) -> Any:
            started.set()
            done.wait(10)
            return super()._retrieve(query_bundle)

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(evaluate_retriever, Waits(), LABELS, k=3, progress=False)
        started.wait(10)
        with record_recall(LABELS, k=3) as recorder:  # while the other thread is muted
            evaluate_retriever(Scripted(), LABELS, k=3, progress=False)
            done.set()
            assert beside.result().mean(3) == 0.75
            Scripted().retrieve("first")
    report = recorder.report()
    assert [row.status for row in report.queries] == ["scored", "not_run"]
    assert not [note for note in report.notes if "outside the block" in note]


def test_nested_blocks_have_their_own_reports_and_bind_their_own_queries() -> None:
    other = Dataset([Query(query_id="q2", text="unlike", relevant=["z"])])
    with record_recall(LABELS, k=3) as outer:
        Scripted().retrieve("second")
        with record_recall(other, k=3) as inner:
            with inner.query("q2"):
                Scripted().retrieve("second")
            with outer.query("q1"):
                Scripted().retrieve("about b")
            with outer.query("q2"):  # an id that both datasets have
                Scripted().retrieve("about a")
        Scripted().retrieve("first")
    assert [row.status for row in outer.report().queries] == ["scored", "scored"]
    assert [len(row.calls) for row in outer.report().queries] == [2, 3]
    (row,) = inner.report().queries
    assert (row.status, row.calls, inner.report().unlabelled) == ("scored", (), 2)
    assert outer.report().unlabelled == 0
    for recorder in (outer, inner):
        assert not [note for note in recorder.report().notes if "id that was named" in note]


def test_nested_blocks_over_one_dataset_share_what_is_bound() -> None:
    with (
        record_recall(LABELS, k=3) as outer,
        record_recall(Dataset(LABELS.queries), k=1) as inner,
        inner.query("q1"),
    ):
        Scripted().retrieve("about b")
    assert [one.report().queries[0].status for one in (outer, inner)] == ["scored", "scored"]


# Instrument tags.


def test_tags_around_and_inside_the_block_and_ours_do_not_disturb_one_another() -> None:
    with instrument_tags({"run": "7"}):
        with record_recall(LABELS, k=3) as recorder, recorder.query("q1"):
            assert active_instrument_tags.get()["run"] == "7"
            with instrument_tags({"mine": "1"}):  # replaces ours
                engine(Scripted(), CUT).query("both")
        assert active_instrument_tags.get() == {"run": "7"}
    assert recall_of(recorder, "q1") == 1.0
    assert recorder.stages["SimilarityPostprocessor"].mean(3) == 0.5
    assert recorder.report().unlabelled == 0


def test_a_tag_names_the_labelled_query() -> None:
    with record_recall(LABELS, k=3) as recorder:
        with instrument_tags({"chunkrecall.query_id": "q1"}):
            Scripted().retrieve("about b")
        with instrument_tags({"chunkrecall.query_id": "q9"}):
            Scripted().retrieve("about b")
    report = recorder.report()
    assert [row.status for row in report.queries] == ["scored", "not_run"]
    assert report.unlabelled == 1
    assert any("'q9'" in note for note in report.notes)


# The older callbacks.


def with_manager(handler: Any, retriever: Any = None) -> Any:
    made = retriever or Scripted()
    made.callback_manager = CallbackManager([handler])
    return made


class TellsOfItsReranking(BaseNodePostprocessor):
    """Keeps two, and tells its callbacks as `SentenceTransformerRerank` does."""

    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        told = {EventPayload.NODES: nodes, EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.RERANKING, payload=told) as event:
            kept = nodes[:2]
            event.on_end(payload={EventPayload.NODES: kept})
        return kept


@pytest.mark.parametrize("awaited", [False, True])
def test_a_callback_handler_scores_a_query_engine_and_its_reranker(awaited: bool) -> None:
    handler = RecallCallbackHandler(LABELS, k=3)
    manager = CallbackManager([handler])
    asking = engine(with_manager(handler), TellsOfItsReranking(), callback_manager=manager)
    with handler.query("q1"):
        ask(asking, "both", awaited)
    assert recall_of(handler, "q1") == 1.0
    assert {name: one.mean(3) for name, one in handler.stages.items()} == {
        "Scripted": 1.0,
        "TellsOfItsReranking": 0.5,
        "final": 0.5,
    }
    assert [(one.label, one.stage) for one in handler.lost] == [("b", "TellsOfItsReranking")]
    assert handler.story("q1").startswith("Scripted@3 1.000 → TellsOfItsReranking@2 0.500")


def test_a_handler_among_the_settings_sees_what_is_built_after_it() -> None:
    handler = RecallCallbackHandler(LABELS, k=3)
    before = Settings.callback_manager
    try:
        Settings.callback_manager = CallbackManager([handler])
        fusion = QueryFusionRetriever(
            [Scripted(callback_manager=Settings.callback_manager)],
            llm=MockLLM(),
            num_queries=1,
            callback_manager=Settings.callback_manager,
        )
        fusion.retrieve("first")
    finally:
        Settings.callback_manager = before
    (row, _) = handler.report().queries
    assert (row.recall, row.calls) == ({"recall@3": 0.5}, ())
    assert set(handler.stages) == {"Scripted", "QueryFusionRetriever", "final"}


def test_faults_inside_a_callback_handler_never_reach_the_query() -> None:
    def raising(score: object) -> None:
        raise ValueError("plot failed")

    for options in ({"matcher": Broken()}, {"on_score": raising}, {"text_from": "nowhere"}):
        handler = RecallCallbackHandler(LABELS, k=3, **options)
        found = engine(with_manager(handler), DropFirst()).query("first")
        assert [one.text for one in found.source_nodes] == ["x"]
        report = handler.report()
        assert report.queries[0].status == ("scored" if "on_score" in options else "errored")
    handler = RecallCallbackHandler(LABELS, k=3)
    handler.on_event_start("retrieve", {})  # type: ignore[arg-type]  # no event at all
    handler.on_event_end("retrieve", None, "unknown")  # type: ignore[arg-type]
    assert handler.report().mean(3) is None


@pytest.mark.parametrize("awaited", [False, True])
def test_failures_told_to_a_callback_handler_say_what_was_raised(awaited: bool) -> None:
    for retriever in (
        Raises(),
        # The inner one has a manager of its own, and core tells of an exception only once.
        QueryFusionRetriever([Raises()], llm=MockLLM(), num_queries=1, use_async=False),
    ):
        handler = RecallCallbackHandler(LABELS, k=3)
        with pytest.raises(ConnectionError):
            ask(engine(with_manager(handler, retriever)), "first", awaited)
        (row, _) = handler.report().queries
        assert (row.status, row.error) == ("errored", "ConnectionError: down")
        assert handler.recorder.faults == []


def test_cancelled_calls_are_errored_for_a_callback_handler_too() -> None:
    handler = RecallCallbackHandler(LABELS, k=3)

    async def main() -> None:
        task = asyncio.create_task(with_manager(handler, Stuck()).aretrieve("first"))
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await with_manager(handler).aretrieve("second")

    asyncio.run(main())
    first, second = handler.report().queries
    assert (first.status, second.status) == ("errored", "scored")
    assert "CancelledError" in str(first.error)


@pytest.mark.parametrize("awaited", [False, True])
def test_attaching_both_counts_each_retrieval_once(awaited: bool) -> None:
    with record_recall(LABELS, k=3) as recorder:
        shared = RecallCallbackHandler(recorder)
        own = RecallCallbackHandler(LABELS, k=3)
        retriever = Scripted()
        retriever.callback_manager = CallbackManager([shared, own])
        fusion = with_manager(
            shared, QueryFusionRetriever([retriever], llm=MockLLM(), num_queries=1)
        )
        ask(engine(retriever, CUT), "first", awaited)
        ask(engine(fusion, CUT), "second", awaited)
    assert shared.recorder is recorder.recorder
    assert shared.report().queries == recorder.report().queries
    for row in recorder.report().queries:
        assert (row.status, row.calls) == ("scored", ())
    assert recorder.report().summary["recall@3"].total == 2
    assert recorder.stages["SimilarityPostprocessor"].mean(3) == 0.75
    assert [row.calls for row in own.report().queries] == [(), ()]
    with pytest.raises(TypeError, match="has its options already"):
        RecallCallbackHandler(recorder, dedupe=True)


def test_a_failure_told_by_both_is_one_errored_row() -> None:
    with record_recall(LABELS, k=3) as recorder:
        retriever = with_manager(RecallCallbackHandler(recorder), Raises())
        with pytest.raises(ConnectionError):
            retriever.retrieve("first")
    assert recorder.report().summary["recall@3"].errored == 1
    assert recorder.recorder.faults == []


def test_what_a_callback_handler_keeps_does_not_grow() -> None:
    handler = RecallCallbackHandler(LABELS, k=3)
    retriever = with_manager(handler)
    for _ in range(300):
        retriever.retrieve("first")
        with pytest.raises(ConnectionError):
            with_manager(handler, Raises()).retrieve("second")
    assert (len(handler._keys), len(handler._steps)) == (0, 0)


def test_a_score_is_logged_and_told_as_it_happens(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    with caplog.at_level(logging.INFO, logger="chunkrecall"):  # noqa: SIM117
        with record_recall(LABELS, k=3, log=True, on_score=told.append):
            engine(Scripted(), CUT).query("first")
            assert [one.query_id for one in told] == ["q1"]
    (line,) = [one.getMessage() for one in caplog.records if one.name == "chunkrecall"]
    assert "missing: 'b'" in line


# The response evaluator in a runner.


def runner(**evaluators: Any) -> BatchEvalRunner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner's own asyncio_module()
        return BatchEvalRunner(evaluators, workers=2)


def test_a_batch_over_a_query_engine_gives_each_evaluator_its_rows() -> None:
    results = asyncio.run(
        runner(
            top1=ResponseRecallEvaluator(1, threshold=0.5), all=ResponseRecallEvaluator()
        ).aevaluate_queries(
            engine(),
            ["first", "second", "nothing"],
            reference_contexts=[["a", "b"], ["c"], ["d"]],
        )
    )
    assert [row.score for row in results["top1"]] == [0.5, 1.0, 0.0]
    assert [row.passing for row in results["top1"]] == [True, True, False]
    assert [row.score for row in results["all"]] == [0.5, 1.0, 0.0]
    assert [row.passing for row in results["all"]] == [None] * 3
    assert not any(row.invalid_result for row in results["all"])
    assert "missing: 'b'" in str(results["all"][0].feedback)
    assert results["all"][0].contexts == ["a", "x"]
    json.dumps([row.model_dump() for row in results["all"]])


def test_a_batch_with_labels_for_one_evaluator_by_name_and_by_id() -> None:
    results = asyncio.run(
        runner(texts=ResponseRecallEvaluator(), ids=ResponseRecallEvaluator()).aevaluate_queries(
            engine(),
            ["first", "second"],
            texts={"reference_contexts": [["a", "b"], ["c"]]},
            ids={"reference_ids": [["x"], ["x"]]},
        )
    )
    assert [row.score for row in results["texts"]] == [0.5, 1.0]
    assert [row.score for row in results["ids"]] == [1.0, 0.0]


def test_a_batch_of_plain_contexts_needs_no_response() -> None:
    results = asyncio.run(
        runner(recall=ResponseRecallEvaluator(1)).aevaluate_response_strs(
            queries=["q1", "q2"],
            contexts_list=[["a", "b"], []],
            reference_contexts=[["a"], [Label(text="b")]],
        )
    )
    assert [row.score for row in results["recall"]] == [1.0, 0.0]


def test_rows_without_labels_are_invalid_and_the_batch_goes_on() -> None:
    everything = runner(recall=ResponseRecallEvaluator())
    queries = ["first", "second", "first"]

    async def main() -> Any:
        some = await everything.aevaluate_queries(
            engine(), queries, reference_contexts=[["a"], None, []]
        )
        return some, await everything.aevaluate_queries(engine(), queries)

    some, none = asyncio.run(main())
    assert [row.score for row in some["recall"]] == [1.0, None, None]
    assert [row.invalid_result for row in some["recall"]] == [False, True, True]
    assert all("reference_contexts" in str(row.invalid_reason) for row in none["recall"])
    assert [row.invalid_result for row in none["recall"]] == [True] * 3


def unread() -> Iterator[str]:
    raise AssertionError("the stream was consumed")
    yield ""


async def aunread() -> AsyncIterator[str]:
    raise AssertionError("the stream was consumed")
    yield ""


@pytest.mark.parametrize(
    "response",
    [
        StreamingResponse(unread(), source_nodes=nodes(["a", "x"])),
        AsyncStreamingResponse(aunread(), source_nodes=nodes(["a", "x"])),
        Response("a", source_nodes=nodes(["a", "x"])),
        Response(None, source_nodes=nodes(["a", "x"])),
    ],
)
def test_a_response_of_every_kind_is_scored_and_a_stream_is_not_read(response: Any) -> None:
    evaluator = ResponseRecallEvaluator()
    for row in (
        evaluator.evaluate_response("q", response, reference_contexts=["a", "b"]),
        asyncio.run(evaluator.aevaluate_response("q", response, reference_contexts=["a", "b"])),
    ):
        assert (row.score, row.contexts, row.invalid_result) == (0.5, ["a", "x"], False)


WRONG: list[dict[str, Any]] = [
    {"reference_contexts": "a"},
    {"reference_contexts": b"a"},
    {"reference_contexts": 42},
    {"reference_contexts": [42]},
    {"reference_contexts": [None]},
    {"reference_contexts": [""]},
    {"reference_contexts": [" "]},
    {"reference_contexts": {"a": 1}},
    {"reference_ids": "a"},
    {"reference_ids": [7]},
    {"reference_contexts": ["a"], "reference_ids": ["1"], "contexts": ["a"]},
    {"contexts": "a"},
    {"contexts": 42},
    {"contexts": [1]},
    {"contexts": [None]},
    {"contexts": None},
    {"response": 42},
    {"response": None},
    {"response": "only a text"},
    {"response": Response("a", source_nodes=None)},  # type: ignore[arg-type]
    {"response": Response("a", source_nodes=[1])},  # type: ignore[list-item]
    {"response": Response("a", source_nodes="nodes")},  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:60])
def test_a_row_of_the_wrong_type_is_an_invalid_result_and_never_an_exception(wrong: Any) -> None:
    evaluator = ResponseRecallEvaluator()
    if "response" in wrong:
        arguments = {"reference_contexts": ["a"], **wrong}
        rows = [
            evaluator.evaluate_response("q", **arguments),
            asyncio.run(evaluator.aevaluate_response("q", **arguments)),
        ]
    else:
        arguments = {"contexts": ["a"], "reference_contexts": ["a"], **wrong}
        if "reference_ids" in wrong and "reference_contexts" not in wrong:
            del arguments["reference_contexts"]
        rows = [
            evaluator.evaluate("q", "r", **arguments),
            asyncio.run(evaluator.aevaluate("q", "r", **arguments)),
        ]
    for row in rows:
        assert (row.invalid_result, row.score) == (True, None)
        assert row.invalid_reason
        json.dumps(row.model_dump())


@pytest.mark.parametrize(("query", "score"), [(None, 1.0), (42, None), (b"q", None)])
def test_a_query_may_be_missing_and_one_that_is_no_text_is_invalid(query: Any, score: Any) -> None:
    row = ResponseRecallEvaluator().evaluate(query, contexts=["a"], reference_contexts=["a"])
    assert (row.score, row.query, row.invalid_result) == (score, None, score is None)


@pytest.mark.parametrize("bad", [0, -1, 2.5, "5", True])
def test_a_bad_cutoff_or_threshold_is_refused_when_it_is_made(bad: Any) -> None:
    with pytest.raises(ValueError, match="k"):
        ResponseRecallEvaluator(bad)
    with pytest.raises(ValueError, match="threshold"):
        ResponseRecallEvaluator(threshold=2)


# What is left alone.


def test_a_pipeline_gives_the_same_under_the_recorders_as_without() -> None:
    asking = engine(TransformRetriever(Scripted(), PassesOn()), CUT)
    plain = asking.query("both")
    with record_recall(LABELS, k=3), record_recall(LABELS, k=1):
        recorded = asking.query("both")
    assert [one.to_dict() for one in recorded.source_nodes] == [
        one.to_dict() for one in plain.source_nodes
    ]
    assert recorded.response == plain.response


class PassesOn:
    """A query transform that changes nothing."""

    def run(self, query_bundle: QueryBundle, metadata: Any = None) -> QueryBundle:
        return query_bundle
