"""Cases from real bug reports, area native, as far as LangChain has them; ids in the names."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda

from chunkrecall import ChunkId, Dataset, Label, Query, evaluate_retriever
from chunkrecall.langchain import RecallCallbackHandler, record_recall


class Scripted(BaseRetriever):
    answers: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        answer = self.answers[query] if isinstance(self.answers, dict) else self.answers
        if answer is None:
            return None
        return [d if isinstance(d, Document) else Document(page_content=d) for d in answer]


class Inner(Scripted):
    """Another class name, for the stages."""


def test_F074_a_retriever_called_without_a_chain_is_recorded() -> None:
    handler = RecallCallbackHandler({"q1": ["a"]}, k=1)
    Scripted(answers=["a"]).invoke("q1", config={"callbacks": [handler]})
    report = handler.report()
    assert report.mean(1) == 1.0
    assert report.summary["recall@1"].total == 1


def test_F075_an_ensemble_is_one_score_and_its_parts_are_stages() -> None:
    ensemble = EnsembleRetriever(
        retrievers=[Inner(answers=["a", "x"]), Inner(answers=["b"])], weights=[0.5, 0.5]
    )
    with record_recall({"q": ["a", "b"]}, k=5) as recorder:
        ensemble.invoke("q")
    report = recorder.report()
    assert report.mean(5) == 1.0
    assert report.queries[0].calls == ()
    assert {name: stage.mean(5) for name, stage in recorder.stages.items()} == {
        "Inner": 0.5,
        "Inner#2": 0.5,
        "EnsembleRetriever": 1.0,
        "final": 1.0,
    }


def test_F080_a_rewritten_question_is_unlabelled_unless_the_query_is_bound() -> None:
    labels = Dataset([Query(query_id="q1", text="What are its limits?", relevant=["a"])])
    chain = RunnableLambda(lambda text: "What are the API limits?") | Scripted(answers=["a"])
    with record_recall(labels, k=1) as recorder:
        chain.invoke("What are its limits?")
    report = recorder.report()
    assert report.mean(1) is None
    assert (report.unlabelled, report.queries[0].status) == (1, "not_run")
    with record_recall(labels, k=1) as recorder, recorder.query("q1"):
        chain.invoke("What are its limits?")
    assert recorder.report().mean(1) == 1.0
    handler = RecallCallbackHandler(labels, k=1)
    metadata = {"chunkrecall_query_id": "q1"}
    chain.invoke("?", config={"callbacks": [handler], "metadata": metadata})
    assert handler.report().mean(1) == 1.0


def test_F081_no_retriever_events_are_said_and_are_no_success() -> None:
    labels = {f"q{i}": ["a"] for i in range(5)}
    with record_recall(labels, k=1) as recorder:
        chain = RunnableLambda(lambda text: [Document(page_content="a")])
        for text in labels:
            chain.invoke(text)
    report = recorder.report()
    assert report.mean(1) is None
    assert report.summary["recall@1"].not_run == 5
    (note,) = [note for note in report.notes if "no retriever events" in note]
    assert "5 labelled queries" in note
    assert "plain function" in note
    assert "no retriever events" in " ".join(str(report).split())


def test_F082_async_chains_score_like_sync_ones() -> None:
    chain = RunnableLambda(str) | Scripted(answers=["x", "a"]) | RunnableLambda(len)
    means = []
    for awaited in (False, True):
        handler = RecallCallbackHandler({"q": ["a", "b"]}, k=(1, 2))
        config: Any = {"callbacks": [handler]}
        if awaited:
            asyncio.run(chain.ainvoke("q", config=config))
        else:
            chain.invoke("q", config=config)
        means.append([handler.report().mean(k) for k in (1, 2)])
    assert means[0] == means[1] == [0.0, 0.5]


def test_F083_each_call_and_the_union_are_told_apart() -> None:
    labels = Dataset([Query(query_id="task", text="task", relevant=["a", "b"])])
    retriever = Scripted(answers={"first": ["a", "x"], "second": ["b", "y"]})
    with record_recall(labels, k=2) as recorder, recorder.query("task"):
        retriever.invoke("first")
        retriever.invoke("second")
    (query,) = recorder.report().queries
    assert [call["recall@2"] for call in query.calls] == [0.5, 0.5]
    assert query.union == {"recall@2": 1.0}
    assert query.recall == {"recall@2": 0.5}
    assert recorder.report().mean(2) == 0.5


def test_F085_a_retriever_that_returns_none_is_an_error_record() -> None:
    retriever = Scripted(answers={"q1": ["a"], "q2": None})
    handler = RecallCallbackHandler({"q1": ["a"], "q2": ["a"]}, k=1)
    for text in ("q1", "q2"):
        retriever.invoke(text, config={"callbacks": [handler]})
    report = handler.report()
    assert [query.status for query in report.queries] == ["scored", "errored"]
    assert "returned None" in str(report.queries[1].error)
    assert report.mean(1) == 1.0


def test_F095_parents_of_labelled_chunks_are_a_miss_by_child_id() -> None:
    parent = Document(page_content="c1 text c2 text", id="P1", metadata={"doc_id": "P1"})
    retriever = Scripted(answers=[parent])
    children = Dataset([Query(query_id="q", text="q", relevant_ids=["c1", "c2"])])
    assert evaluate_retriever(retriever, children, k=1, progress=False).mean(1) == 0.0
    parents = Dataset([Query(query_id="q", text="q", relevant_ids=["P1", "P1"])])
    assert evaluate_retriever(retriever, parents, k=1, progress=False).mean(1) == 1.0


def test_F097_an_ensembles_kept_copy_decides_the_id_and_not_the_text() -> None:
    ensemble = EnsembleRetriever(
        retrievers=[
            Scripted(answers=[Document(page_content="t", metadata={"id": "a1"})]),
            Scripted(answers=[Document(page_content="t", metadata={"id": "b1"})]),
        ]
    )
    labels = Dataset([Query(query_id="q", text="q", relevant=[Label(text="t", chunk_id="b1")])])
    by_id = evaluate_retriever(ensemble, labels, k=1, matcher=ChunkId("id"), progress=False)
    assert by_id.mean(1) == 0.0
    assert evaluate_retriever(ensemble, labels, k=1, progress=False).mean(1) == 1.0


TOP_TEN = ["x", "a", "y", "z", "u", "v", "b", "w", "s", "t"]


def rerank(documents: list[Document]) -> list[Document]:
    kept = {"a": 0, "x": 1, "y": 2}
    chosen = [one for one in documents if one.page_content in kept]
    return sorted(chosen, key=lambda one: kept[one.page_content])


def test_F100_what_the_reranker_lost_is_attributed_to_it() -> None:
    calls = []

    class Counted(Scripted):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            calls.append(query)
            return super()._get_relevant_documents(query, run_manager=run_manager)

    chain = Counted(answers=TOP_TEN) | RunnableLambda(rerank)
    with record_recall({"q": ["a", "b"]}, k=10) as recorder:
        assert len(chain.invoke("q")) == 3
    assert calls == ["q"]
    assert recorder.report().mean(10) == 1.0
    assert recorder.stages["rerank"].mean(10) == 0.5
    assert recorder.stages["final"].mean(10) == 0.5
    (lost,) = recorder.lost
    assert (lost.query_id, lost.label, lost.stage) == ("q", "b", "rerank")
    assert recorder.story("q") == "Counted@10 1.000 → rerank@3 0.500: 'b' lost at rerank"


class SecondSentence(BaseDocumentCompressor):
    drop: bool = False

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        if self.drop:
            return []
        return [Document(page_content=one.page_content.split(" ")[1]) for one in documents]


def test_F103_what_compression_cut_is_a_stage_of_its_own() -> None:
    for drop in (False, True):
        retriever = ContextualCompressionRetriever(
            base_compressor=SecondSentence(drop=drop), base_retriever=Inner(answers=["S1. S2. S3."])
        )
        with record_recall({"q": ["S1. S2. S3."]}, k=1) as recorder:
            retriever.invoke("q")
        assert recorder.stages["Inner"].mean(1) == 1.0
        assert recorder.report().mean(1) == 0.0
        (lost,) = recorder.lost
        assert lost.stage == "ContextualCompressionRetriever"


def test_F108_missing_ids_are_said_and_a_metadata_key_can_be_named() -> None:
    retriever = Scripted(answers=[Document(page_content="t", metadata={"chunk_id": "c1"})])
    labels = Dataset([Query(query_id="q", text="q", relevant_ids=["c1"])])
    without = evaluate_retriever(retriever, labels, k=1, progress=False)
    assert without.mean(1) == 0.0
    assert any("ChunkId(key=…)" in note for note in without.notes)
    named = ChunkId("chunk_id")
    assert evaluate_retriever(retriever, labels, k=1, matcher=named, progress=False).mean(1) == 1.0


def test_F181_tools_are_matched_by_their_name() -> None:
    tools = [
        Document(page_content="Sends a message", metadata={"name": "send_mail"}),
        Document(page_content="Something else", metadata={"name": "x"}),
    ]
    labels = Dataset([Query(query_id="q", text="q", relevant_ids=["send_mail", "find_contact"])])
    report = evaluate_retriever(
        Scripted(answers=tools), labels, k=2, matcher=ChunkId("name"), progress=False
    )
    assert report.mean(2) == 0.5
    assert report.queries[0].complete == {"complete@2": 0.0}
