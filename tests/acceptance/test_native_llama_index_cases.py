"""Cases from real bug reports, area native, as far as LlamaIndex has them; ids in the names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core import Settings, StorageContext, VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
)
from llama_index.core.schema import (
    IndexNode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from chunkrecall import Chunk, ChunkId, Dataset, Query, evaluate_retriever
from chunkrecall.llama_index import (
    RecallCallbackHandler,
    RetrieverRecallEvaluator,
    record_recall,
)


class Scripted(BaseRetriever):
    def __init__(self, answers: Any) -> None:
        super().__init__(callback_manager=Settings.callback_manager)
        self._answers = answers

    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        found = self._answers
        if isinstance(found, dict):
            found = found[query_bundle.query_str]
        if isinstance(found, str):
            raise ConnectionError(found)
        return [
            one
            if isinstance(one, NodeWithScore)
            else NodeWithScore(node=one if not isinstance(one, str) else TextNode(text=one))
            for one in found
        ]


@pytest.mark.parametrize("awaited", [False, True])
def test_F077_a_retrieval_that_raises_is_errored_though_no_end_event_tells_of_it(
    awaited: bool,
) -> None:
    labels = {text: ["a"] for text in ("q1", "q2", "q3")}
    retriever = Scripted({"q1": ["a"], "q2": "down", "q3": ["x"]})

    async def run_all() -> None:
        for text in labels:
            try:
                await retriever.aretrieve(text) if awaited else retriever.retrieve(text)
            except ConnectionError:
                assert text == "q2"

    handler = RecallCallbackHandler(labels, k=1)
    retriever.callback_manager = CallbackManager([handler])
    with record_recall(labels, k=1) as recorder:
        asyncio.run(run_all())
    for report in (recorder.report(), handler.report()):
        assert [row.status for row in report.queries] == ["scored", "errored", "scored"]
        assert report.queries[1].error == "ConnectionError: down"
        summary = report.summary["recall@1"]
        assert (summary.scored, summary.errored, summary.mean) == (2, 1, 0.5)
        assert not [note for note in report.notes if "never ended" in note]


def test_F078_one_retrieval_told_by_events_and_by_spans_is_one_record() -> None:
    before = Settings.callback_manager
    try:
        with record_recall({"q1": ["a"]}, k=1) as recorder:
            shared = RecallCallbackHandler(recorder)
            own = RecallCallbackHandler({"q1": ["a"]}, k=1)
            Settings.callback_manager = CallbackManager([shared, own])
            Scripted(["a"]).retrieve("q1")
    finally:
        Settings.callback_manager = before
    assert shared.recorder is recorder.recorder
    for report in (recorder.report(), shared.report(), own.report()):
        (row,) = report.queries
        assert (row.status, row.calls) == ("scored", ())
        assert report.summary["recall@1"].total == 1


class OfItsParent:
    """Credit via the parent: a label counts where a chunk contains it."""

    def describe(self) -> str:
        return "contained"

    def first_ranks(self, labels: Any, chunks: Sequence[Chunk]) -> tuple[int | None, ...]:
        return tuple(
            next((rank for rank, one in enumerate(chunks, 1) if label.text in one.text), None)
            for label in labels
        )


def test_F094_leaves_merged_into_their_parent_are_a_miss_that_says_so() -> None:
    parent = TextNode(text="l1 text l2 text", id_="p")
    leaves = [TextNode(text="l1 text", id_="l1"), TextNode(text="l2 text", id_="l2")]
    parent.relationships[NodeRelationship.CHILD] = [
        RelatedNodeInfo(node_id=one.node_id) for one in leaves
    ]
    for one in leaves:
        one.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="p")
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents([parent, *leaves])
    index = VectorStoreIndex(
        leaves, storage_context=storage, embed_model=MockEmbedding(embed_dim=4)
    )
    retriever = AutoMergingRetriever(index.as_retriever(similarity_top_k=2), storage)
    labels = {"q": ["l1 text"]}
    exact = evaluate_retriever(retriever, labels, k=1, progress=False)
    assert exact.queries[0].retrieved == ("l1 text l2 text",)
    assert exact.mean(1) == 0.0
    credited = evaluate_retriever(retriever, labels, k=1, matcher=OfItsParent(), progress=False)
    assert credited.mean(1) == 1.0
    with record_recall(labels, k=2) as recorder:
        RetrieverQueryEngine.from_args(retriever, llm=MockLLM()).query("q")
    assert recorder.stages["VectorIndexRetriever"].mean(2) == 1.0
    assert recorder.report().mean(2) == 0.0
    (lost,) = recorder.lost
    assert (lost.stage, lost.how) == ("AutoMergingRetriever", "merged into parent 'p'")


@pytest.mark.parametrize("order", [("q1", "q2"), ("q2", "q1")])
def test_F098_a_window_swapped_in_place_changes_no_other_query(order: tuple[str, str]) -> None:
    node = TextNode(text="s2", id_="w", metadata={"window": "s1 s2 s3"})
    evaluator = RetrieverRecallEvaluator(
        retriever=Scripted([node]),
        node_postprocessors=[MetadataReplacementPostProcessor("window")],
        k=1,
    )
    labels = {text: ["s2"] for text in order}
    for report in (
        evaluator.evaluate_dataset(labels, workers=1),
        asyncio.run(evaluator.aevaluate_dataset(labels)),
    ):
        before, after = report.stages["Scripted"], report.stages["final"]
        assert [row.recall["recall@1"] for row in before.queries] == [1.0, 1.0]
        assert [row.retrieved for row in before.queries] == [("s2",)] * 2
        assert [row.retrieved for row in after.queries] == [("s1 s2 s3",)] * 2
    assert node.text == "s2"


class Answers(BaseQueryEngine):
    def __init__(self) -> None:
        super().__init__(callback_manager=None)

    def _query(self, query_bundle: QueryBundle) -> Response:
        return Response("The answer is 42.")

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        return self._query(query_bundle)

    def _get_prompt_modules(self) -> Any:
        return {}


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("kind", ["index node", "recursive", "inside another"])
def test_F099_a_written_answer_holds_its_rank_and_is_flagged(awaited: bool, kind: str) -> None:
    pointer = IndexNode(text="ask me", index_id="e", obj=Answers() if kind != "recursive" else None)
    retriever: BaseRetriever = Scripted([pointer, "a"])
    if kind == "recursive":
        retriever = RecursiveRetriever(
            "root", {"root": retriever}, query_engine_dict={"e": Answers()}
        )
    elif kind == "inside another":
        retriever = QueryFusionRetriever([retriever], llm=MockLLM(), num_queries=1)
    with record_recall({"q": ["a"]}, k=(1, 2)) as recorder:
        found = asyncio.run(retriever.aretrieve("q")) if awaited else retriever.retrieve("q")
    assert "The answer is 42." in found[0].text
    report = recorder.report()
    assert report.queries[0].recall == {"recall@1": 0.0, "recall@2": 1.0}
    assert any("1 retrieved chunks are generated text, not chunks" in one for one in report.notes)
    assert report.run is not None
    chunks = report.run.rankings[0].chunks
    assert [one.metadata.get("generated") for one in chunks] == [True, None]
    # An evaluation scores it alike.
    evaluated = evaluate_retriever(retriever, {"q": ["a"]}, k=(1, 2), progress=False)
    assert evaluated.queries[0].recall == {"recall@1": 0.0, "recall@2": 1.0}


def test_F109_several_chunks_of_one_page_count_once_and_keep_their_ranks() -> None:
    chunks = [("p1#1", "p1"), ("p1#4", "p1"), ("p2#1", "p2")]
    nodes = [TextNode(text=i, id_=i, metadata={"page": page}) for i, page in chunks]
    for one, (_, page) in zip(nodes, chunks, strict=True):
        one.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=page)
    for key in ("page", "ref_doc_id"):
        for pages, expected in ((["p1"], (1.0, 1.0)), (["p1", "p2"], (0.5, 1.0))):
            labels = Dataset([Query(query_id="q", text="q", relevant_ids=pages)])
            report = evaluate_retriever(
                Scripted(nodes), labels, k=(2, 3), matcher=ChunkId(key), progress=False
            )
            assert (report.mean(2), report.mean(3)) == expected
            assert key in report.rules["matcher"]
            with record_recall(labels, k=(2, 3), matcher=ChunkId(key)) as recorder:
                Scripted(nodes).retrieve("q")
            assert (recorder.report().mean(2), recorder.report().mean(3)) == expected
