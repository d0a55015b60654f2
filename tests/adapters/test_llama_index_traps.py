"""What is known to mislead a recall measurement over LlamaIndex, and the right answer for each.

The comments number the traps; only real LlamaIndex classes are asked.
"""

from __future__ import annotations

import ast
import asyncio
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.callbacks import CallbackManager
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.llms.mock import MockLLM
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.postprocessor import LongContextReorder, MetadataReplacementPostProcessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
)
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools import RetrieverTool

import chunkrecall.llama_index
from chunkrecall import (
    Chunk,
    ChunkId,
    Dataset,
    Label,
    NormalizedText,
    Query,
    Report,
    aevaluate_retriever,
    evaluate_retriever,
)
from chunkrecall.errors import RetrievalError
from chunkrecall.llama_index import (
    LlamaIndexAdapter,
    RecallAtK,
    RecallCallbackHandler,
    ResponseRecallEvaluator,
    RetrieverRecallEvaluator,
    record_recall,
    register_metrics,
)

EMBEDDING = MockEmbedding(embed_dim=4)


def node(text: str, score: float | None = None, **fields: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, **{"id_": text, **fields}), score=score)


class Scripted(BaseRetriever):
    """The same nodes to every query, or those of the query; texts are made nodes."""

    def __init__(self, answers: Any) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []
        self.threads: set[int] = set()

    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        self.asked.append(query_bundle.query_str)
        self.threads.add(threading.get_ident())
        found = self.answers
        if isinstance(found, dict):
            found = found[query_bundle.query_str]
        if isinstance(found, type):
            raise found("boom")  # a new one: core marks an exception that it has told of
        if not isinstance(found, list):
            return found
        return [node(one) if isinstance(one, str) else one for one in found]


class Dense(Scripted):
    """Another class name, for the stages."""


class Sparse(Scripted):
    """And a third."""


class AsyncOnly(Scripted):
    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        raise NotImplementedError

    async def _aretrieve(self, query_bundle: QueryBundle) -> Any:
        await asyncio.sleep(0)
        return super()._retrieve(query_bundle)


def every_way(retriever: Any, labels: Any, **options: Any) -> list[Report]:
    """The reports of all entry points that take a retriever."""
    k, matcher = options.pop("k"), options.pop("matcher", None)
    assert not options
    return [
        *evaluated(retriever, labels, k=k, matcher=matcher),
        recorded(retriever, labels, k=k, matcher=matcher).report(),
        asyncio.run(arecorded(retriever, labels, k=k, matcher=matcher)).report(),
        called_back(retriever, labels, k=k, matcher=matcher).report(),
    ]


def evaluated(retriever: Any, labels: Any, **options: Any) -> list[Report]:
    evaluator = RetrieverRecallEvaluator(retriever=retriever, **options)
    return [
        evaluate_retriever(retriever, labels, progress=False, **options),
        asyncio.run(aevaluate_retriever(retriever, labels, progress=False, **options)),
        evaluator.evaluate_dataset(labels),
        asyncio.run(evaluator.aevaluate_dataset(labels)),
    ]


def recorded(retriever: Any, labels: Any, **options: Any) -> Any:
    with record_recall(labels, **options) as recorder:
        for query in recorder.recorder.dataset:
            try:
                retriever.retrieve(query.text)
            except Exception as error:  # noqa: BLE001 - the recorder's row is what matters
                assert str(error) != ""  # noqa: PT017
    assert recorder.recorder.faults == []
    return recorder


async def arecorded(retriever: Any, labels: Any, **options: Any) -> Any:
    with record_recall(labels, **options) as recorder:
        texts = [query.text for query in recorder.recorder.dataset]
        await asyncio.gather(*map(retriever.aretrieve, texts), return_exceptions=True)
    assert recorder.recorder.faults == []
    return recorder


def called_back(retriever: Any, labels: Any, **options: Any) -> RecallCallbackHandler:
    handler = RecallCallbackHandler(labels, **options)
    before = retriever.callback_manager
    retriever.callback_manager = CallbackManager([handler])
    try:
        for query in handler.recorder.dataset:
            try:
                retriever.retrieve(query.text)
            except Exception as error:  # noqa: BLE001 - the handler's row is what matters
                assert str(error) != ""  # noqa: PT017
    finally:
        retriever.callback_manager = before
    assert handler.recorder.faults == []
    return handler


def only_row(report: Report) -> Any:
    (row,) = report.queries
    assert row.calls == ()
    assert report.unlabelled == 0
    return row


class Rewriting(MockLLM):
    def complete(self, prompt: Any, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="rewrite 1\nrewrite 2")


# trap 1
@pytest.mark.parametrize(("num_queries", "inner"), [(1, 2), (3, 6)])
@pytest.mark.parametrize("use_async", [False, True])
def test_a_fusion_of_rewritten_queries_is_one_retrieval_of_the_question(
    num_queries: int, inner: int, use_async: bool
) -> None:
    answers = {"q": [node("x", 0.9), node("a", 0.8)], "rewrite 1": [], "rewrite 2": [node("b", 1)]}
    fusion = QueryFusionRetriever(
        [Dense(answers), Sparse({**answers, "q": [node("c", 0.7)]})],
        llm=Rewriting(),
        num_queries=num_queries,
        use_async=use_async,
        similarity_top_k=4,
    )
    expected = {1: 2 / 3, 3: 1.0}[num_queries]
    labels = {"q": ["a", "b", "c"]}
    for report in every_way(fusion, labels, k=4):
        assert only_row(report).recall == {"recall@4": pytest.approx(expected)}
    for recorder in (recorded(fusion, labels, k=4), asyncio.run(arecorded(fusion, labels, k=4))):
        assert len(recorder.stages) == inner + 2  # fusion and final
        assert recorder.stages["Dense"].mean(4) == pytest.approx(1 / 3)
        assert recorder.stages["QueryFusionRetriever"].mean(4) == pytest.approx(expected)


class Chooses(BaseSelector):
    """The tools that it is told to."""

    def __init__(self, *chosen: int) -> None:
        self.chosen = chosen

    def _select(self, choices: Any, query: Any) -> SelectorResult:
        made = [SingleSelection(index=index, reason="told") for index in self.chosen]
        return SelectorResult(selections=made)

    async def _aselect(self, choices: Any, query: Any) -> SelectorResult:
        return self._select(choices, query)

    def _get_prompts(self) -> Any:
        return {}

    def _update_prompts(self, prompts_dict: Any) -> None:
        pass


def router(*chosen: int, retrievers: Sequence[BaseRetriever]) -> RouterRetriever:
    tools = [RetrieverTool.from_defaults(one, description="d") for one in retrievers]
    return RouterRetriever(Chooses(*chosen), tools, llm=MockLLM())


# trap 2
@pytest.mark.parametrize(("chosen", "expected"), [((0,), (1.0, 0.5)), ((0, 1), (1.0, 1.0))])
def test_a_router_is_one_retrieval_and_keeps_its_order_whatever_the_scores(
    chosen: tuple[int, ...], expected: tuple[float, float]
) -> None:
    # The second retriever finds "a" again with a lower score than that of "x" behind it.
    inner = [Dense([node("a", 0.9), node("x", 0.8)]), Sparse([node("b", 1), node("a", 0.1)])]
    routed = router(*chosen, retrievers=inner)
    for report in every_way(routed, {"q": ["a", "b"]}, k=(1, 3)):
        row = only_row(report)
        assert (row.ranks["a"], row.recall["recall@1"], row.recall["recall@3"]) == (
            1,
            0.5,
            expected[1],
        )


# trap 2
@pytest.mark.parametrize("chosen", [(0,), (0, 1)])
def test_the_events_that_a_router_tells_its_callbacks_are_one_retrieval(
    chosen: tuple[int, ...],
) -> None:
    handler = RecallCallbackHandler({"q": ["a", "b"]}, k=3)
    manager = CallbackManager([handler])
    inner = [Dense(["a", "x"]), Sparse(["b", "a"])]
    routed = router(*chosen, retrievers=inner)
    for one in (*inner, routed):
        one.callback_manager = manager
    routed.retrieve("q")
    asyncio.run(routed.aretrieve("q"))
    (row,) = handler.report().queries
    recall = len(chosen) / 2
    assert [call["recall@3"] for call in row.calls] == [recall, recall]
    assert handler.report().unlabelled == 0
    assert handler.recorder.faults == []
    means = {name: stage.mean(3) for name, stage in handler.stages.items()}
    inner_means = {"Dense": 0.5, "Sparse": 1.0} if len(chosen) > 1 else {"Dense": 0.5}
    assert means == {**inner_means, "RouterRetriever": recall, "final": recall}


class Translated(BaseQueryTransform):
    """Says every query in other words."""

    def _get_prompts(self) -> Any:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        pass

    def _run(self, query_bundle: QueryBundle, metadata: Any) -> QueryBundle:
        return QueryBundle("in other words")


# trap 3
def test_a_query_transformed_inside_the_retriever_still_belongs_to_the_question() -> None:
    inner = Scripted({"in other words": ["a"]})
    retriever = TransformRetriever(inner, Translated())
    for report in every_way(retriever, {"q": ["a"]}, k=1):
        assert only_row(report).recall == {"recall@1": 1.0}
    assert set(inner.asked) == {"in other words"}
    assert LlamaIndexAdapter(retriever).has_async is False  # its `aretrieve` asks synchronously


# trap 3
def test_a_query_transformed_before_the_retriever_is_unlabelled_unless_it_is_bound() -> None:
    inner = RetrieverQueryEngine.from_args(Scripted(["a"]), llm=MockLLM())
    engine = TransformQueryEngine(inner, Translated())
    labels = Dataset([Query(query_id="q1", text="q", relevant=["a"])])
    with record_recall(labels, k=1) as recorder:
        engine.query("q")
    assert (recorder.report().unlabelled, recorder.report().mean(1)) == (1, None)
    with record_recall(labels, k=1) as recorder, recorder.query("q1"):
        engine.query("q")
    assert (recorder.report().unlabelled, recorder.report().mean(1)) == (0, 1.0)


def pointing(obj: Any, score: float | None = 0.5, index_id: str = "i") -> NodeWithScore:
    pointer = IndexNode(text="summary", index_id=index_id, id_=index_id, obj=obj)
    return NodeWithScore(node=pointer, score=score)


# trap 4
def test_an_index_node_that_becomes_many_is_cut_at_k_and_keeps_its_place() -> None:
    many = Dense(["x", "a", "b"])
    for score in (0.0, None, 0.9):  # core makes 1.0 of 0.0, which must not move it
        retriever = Scripted([pointing(many, score), node("c", 0.5)])
        for report in every_way(retriever, {"q": ["a", "b", "c"]}, k=(1, 2, 4)):
            row = only_row(report)
            assert row.retrieved == ("x", "a", "b", "c")
            assert list(row.recall.values()) == pytest.approx([0.0, 1 / 3, 1.0])


# trap 4
def test_an_index_node_may_point_at_a_node_or_at_nothing_and_holds_one_rank() -> None:
    found = [pointing(TextNode(text="a", id_="a")), pointing(None, index_id="j")]
    for report in every_way(Scripted(found), {"q": ["a"]}, k=2):
        assert only_row(report).retrieved == ("a", "summary")
        assert report.mean(2) == 1.0


# trap 4
def test_an_index_node_that_points_at_no_retriever_is_an_errored_row() -> None:
    for report in every_way(Scripted([pointing({"a": 1})]), {"q": ["a"]}, k=1):
        row = only_row(report)
        assert (row.status, row.recall) == ("errored", {"recall@1": None})
        assert "ValueError" in str(row.error)


# trap 4
def test_a_recursive_retriever_is_scored_on_what_it_resolved() -> None:
    summaries = Dense([node("x", 0.9), pointing(None, 0.8, "details")])
    recursive = RecursiveRetriever("root", {"root": summaries, "details": Sparse(["a", "b"])})
    for report in every_way(recursive, {"q": ["a", "b"]}, k=(2, 3)):
        assert only_row(report).recall == {"recall@2": 0.5, "recall@3": 1.0}
    stages = recorded(recursive, {"q": ["a", "b"]}, k=3).stages
    assert {name: stage.mean(3) for name, stage in stages.items()} == {
        "Dense": 0.0,
        "Sparse": 1.0,
        "RecursiveRetriever": 1.0,
        "final": 1.0,
    }


def auto_merging() -> AutoMergingRetriever:
    leaves = [TextNode(text=f"l{number} text", id_=f"l{number}") for number in (1, 2)]
    parent = TextNode(text="l1 text l2 text", id_="p")
    parent.relationships[NodeRelationship.CHILD] = [
        RelatedNodeInfo(node_id=leaf.node_id) for leaf in leaves
    ]
    for leaf in leaves:
        leaf.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="p")
    storage = StorageContext.from_defaults()
    storage.docstore.add_documents([parent, *leaves])
    index = VectorStoreIndex(leaves, storage_context=storage, embed_model=EMBEDDING)
    return AutoMergingRetriever(index.as_retriever(similarity_top_k=2), storage)


class Contained:
    """A label is found where a chunk contains it."""

    def describe(self) -> str:
        return "contained"

    def first_ranks(self, labels: Any, chunks: Sequence[Chunk]) -> tuple[int | None, ...]:
        return tuple(
            next((rank for rank, one in enumerate(chunks, 1) if label.text in one.text), None)
            for label in labels
        )


# trap 5
def test_merged_leaves_are_no_exact_hit_and_the_merge_is_named() -> None:
    labels = {"q": ["l1 text", "l2 text"]}
    for report in every_way(auto_merging(), labels, k=2):
        assert only_row(report).retrieved_ids == ("p",)
        assert report.mean(2) == 0.0
    for report in every_way(auto_merging(), labels, k=2, matcher=Contained()):
        assert report.mean(2) == 1.0
    recorder = recorded(auto_merging(), labels, k=2)
    assert recorder.stages["VectorIndexRetriever"].mean(2) == 1.0
    assert recorder.stages["AutoMergingRetriever"].mean(2) == 0.0
    assert [(one.label, one.stage, one.how) for one in recorder.lost] == [
        ("l1 text", "AutoMergingRetriever", "merged into parent 'p'"),
        ("l2 text", "AutoMergingRetriever", "merged into parent 'p'"),
    ]


class Doubled(BaseNodePostprocessor):
    """Every node twice."""

    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return [one for one in nodes for _ in range(2)]


# trap 6
def test_a_repeated_chunk_occupies_slots_and_counts_once() -> None:
    # Unlike metadata, so that every version of core keeps both.
    copies = [node("a", id_="1", metadata={"n": 1}), node("a", id_="2", metadata={"n": 2})]
    found = [*copies, copies[0], node("b")]
    for report in every_way(Scripted(found), {"q": ["a", "b"]}, k=(1, 2, 3)):
        assert only_row(report).recall == {"recall@1": 0.5, "recall@2": 0.5, "recall@3": 1.0}
    evaluator = RetrieverRecallEvaluator(
        retriever=Scripted(["a", "b"]), node_postprocessors=[Doubled()], k=(2, 3)
    )
    for report in (
        evaluator.evaluate_dataset({"q": ["a", "b"]}),
        asyncio.run(evaluator.aevaluate_dataset({"q": ["a", "b"]})),
    ):
        assert only_row(report).recall == {"recall@2": 0.5, "recall@3": 1.0}
    metrics = [RecallAtK((1, 4)), RecallAtK(3)]
    stock = RetrieverEvaluator(
        metrics=metrics, retriever=Scripted(["a", "b"]), node_postprocessors=[Doubled()]
    )
    assert stock.evaluate("q", ["a", "a", "b"]).metric_vals_dict == {
        "recall@4": 1.0,
        "recall@3": 1.0,
    }


# trap 7
def test_what_core_removed_as_a_duplicate_is_decided_by_core_alone() -> None:
    # Since core 0.14.19 by id, before that by a hash of the text: "a" or both of them survive.
    found = [node("same", id_="a"), node("same", id_="b"), node("c")]
    ids = tuple(one.node.node_id for one in Scripted(found).retrieve("q"))
    assert ids in (("a", "b", "c"), ("a", "c"))
    labels = {"q": ["c"]}
    for report in every_way(Scripted(found), labels, k=2):
        assert only_row(report).retrieved_ids == ids
        assert report.mean(2) == (1.0 if len(ids) == 2 else 0.0)
    deduped = [
        evaluate_retriever(Scripted(found), labels, k=2, dedupe=True, progress=False),
        RetrieverRecallEvaluator(retriever=Scripted(found), k=2).evaluate_dataset(
            labels, dedupe=True
        ),
        recorded(Scripted(found), labels, k=2, dedupe=True).report(),
    ]
    assert [report.mean(2) for report in deduped] == [1.0, 1.0, 1.0]


# trap 8
def test_the_copy_that_a_fusion_keeps_decides_the_id_and_not_the_text() -> None:
    fusion = QueryFusionRetriever(
        [Dense([node("t", 0.9, id_="dense-1")]), Sparse([node("t", 0.8, id_="sparse-1")])],
        llm=MockLLM(),
        num_queries=1,
        use_async=False,
    )
    labels = Dataset([Query(query_id="q", text="q", relevant=[Label(text="t", chunk_id="x")])])
    for report in every_way(fusion, labels, k=2):
        assert report.mean(2) == 1.0
    by_id = Dataset([Query(query_id="q", text="q", relevant_ids=["sparse-1"])])
    for report in every_way(fusion, by_id, k=2):
        assert report.mean(2) == 0.0
    recorder = recorded(fusion, by_id, k=2)
    assert recorder.stages["Sparse"].mean(2) == 1.0
    (lost,) = recorder.lost
    assert (lost.stage, lost.how) == ("QueryFusionRetriever", "dropped as duplicate of 'dense-1'")


def sentences(text: str) -> list[str]:
    """Instead of NLTK's, which needs a file."""
    return re.split(r"(?<=\s)(?=[A-Z])", text)


def split(*documents: Document, size: int = 8) -> list[Any]:
    parser = SentenceSplitter(chunk_size=size, chunk_overlap=0, chunking_tokenizer_fn=sentences)
    return parser.get_nodes_from_documents(documents)


def windows() -> list[TextNode]:
    parser = SentenceWindowNodeParser.from_defaults(window_size=1, sentence_splitter=sentences)
    return parser.get_nodes_from_documents([Document(text="One is here. Two is there. Three.")])


# trap 9
def test_a_sentence_window_is_scored_by_its_sentence_before_and_if_asked_after() -> None:
    nodes = windows()
    assert nodes[1].text == "Two is there. "
    index = VectorStoreIndex(nodes, embed_model=EMBEDDING)
    replacement = MetadataReplacementPostProcessor("window")
    exact, stripped = {"q": ["Two is there. "]}, {"q": ["Two is there."]}
    by_id = Dataset([Query(query_id="q", text="q", relevant_ids=[nodes[1].node_id])])
    for labels, options, expected in (
        (exact, {}, (1.0, 0.0)),
        (exact, {"text_from": "original_text"}, (1.0, 1.0)),
        (stripped, {"text_from": "original_text"}, (0.0, 0.0)),
        (stripped, {"text_from": "original_text", "matcher": NormalizedText()}, (1.0, 1.0)),
        (by_id, {}, (1.0, 1.0)),
    ):
        evaluator = RetrieverRecallEvaluator(
            retriever=index, node_postprocessors=[replacement], k=3, **options
        )
        for report in (
            evaluator.evaluate_dataset(labels),
            asyncio.run(evaluator.aevaluate_dataset(labels)),
        ):
            stages = report.stages
            assert (stages["VectorStoreIndex"].mean(3), report.mean(3)) == expected
            assert stages["MetadataReplacementPostProcessor"].mean(3) == expected[1]
        engine = RetrieverQueryEngine.from_args(
            index.as_retriever(similarity_top_k=3),
            llm=MockLLM(),
            node_postprocessors=[replacement],
        )
        with record_recall(labels, k=3, **options) as recorder:
            engine.query("q")
        assert recorder.recorder.faults == []
        assert (recorder.report().mean(3), recorder.stages["final"].mean(3)) == expected


# trap 10
def test_a_postprocessor_that_edits_nodes_in_place_changes_no_later_evaluation() -> None:
    held = [node("s2", metadata={"window": "s1 s2 s3"}), node("b")]
    evaluator = RetrieverRecallEvaluator(
        retriever=Scripted(held), node_postprocessors=[MetadataReplacementPostProcessor("window")]
    )
    labels = {"q1": ["s2", "b"], "q2": ["s2", "b"]}
    for _ in range(2):
        for report in (
            evaluator.evaluate_dataset(labels),
            asyncio.run(evaluator.aevaluate_dataset(labels)),
        ):
            assert [row.recall["recall@5"] for row in report.stages["Scripted"].queries] == [1, 1]
            assert [row.retrieved for row in report.queries] == [("s1 s2 s3", "b")] * 2
        assert evaluator.evaluate("q1", expected_texts=["s2", "b"]).metric_vals_dict == {
            "recall@5": 0.5
        }
    assert [one.node.get_content() for one in held] == ["s2", "b"]
    assert held[0].node.metadata == {"window": "s1 s2 s3"}


# trap 11
def test_a_recorder_keeps_the_text_that_was_retrieved_and_not_what_became_of_it() -> None:
    held = [node("s2", metadata={"window": "s1 s2 s3"})]
    engine = RetrieverQueryEngine.from_args(
        Scripted(held),
        llm=MockLLM(),
        node_postprocessors=[MetadataReplacementPostProcessor("window")],
    )
    with record_recall({"q": ["s2"]}, k=1) as recorder:
        engine.query("q")
    held[0].node.set_content("edited much later")
    assert recorder.report().queries[0].retrieved == ("s2",)
    assert recorder.report().mean(1) == 1.0
    (lost,) = recorder.lost
    assert (lost.stage, lost.how) == (
        "MetadataReplacementPostProcessor",
        "its text was replaced by a longer one",
    )


# trap 12
def test_a_retriever_that_is_only_async_is_asked_that_way_by_all() -> None:
    retriever = AsyncOnly({"q1": ["a"], "q2": ["x"]})
    labels = {"q1": ["a"], "q2": ["a"]}
    for report in evaluated(retriever, labels, k=1):
        assert [row.recall["recall@1"] for row in report.queries] == [1.0, 0.0]
    assert asyncio.run(arecorded(retriever, labels, k=1)).report().mean(1) == 0.5
    one = RetrieverRecallEvaluator(retriever=retriever, k=1)
    assert one.evaluate("q1", expected_texts=["a"]).metric_vals_dict == {"recall@1": 1.0}


async def aevaluated(retriever: Any, labels: Any) -> Report:
    return await RetrieverRecallEvaluator(retriever=retriever).aevaluate_dataset(labels)


# trap 13
def test_a_sync_retriever_never_runs_on_the_event_loop_not_even_inside_another() -> None:
    labels = {f"q{number}": ["a"] for number in range(8)}
    loop_thread = threading.get_ident()
    for wrap in (
        lambda inner: inner,
        lambda inner: TransformRetriever(inner, Translated()),
        lambda inner: QueryFusionRetriever([inner], llm=MockLLM(), num_queries=1, use_async=False),
        lambda inner: RecursiveRetriever("r", {"r": inner}),
    ):
        inner = Scripted(["a"])
        report = asyncio.run(aevaluated(wrap(inner), labels))
        assert report.mean(5) == 1.0
        assert loop_thread not in inner.threads
    native = AsyncOnly(["a"])
    asyncio.run(aevaluated(native, labels))
    assert native.threads == {loop_thread}


DOCUMENTS = [Document(text="alpha fact one."), Document(text="beta fact two.")]


# trap 14
def test_ids_change_with_every_build_and_text_labels_do_not() -> None:
    first, second = (
        VectorStoreIndex.from_documents(DOCUMENTS, embed_model=EMBEDDING) for _ in range(2)
    )
    ids = [one.node.node_id for one in first.as_retriever().retrieve("q")]
    by_id = Dataset([Query(query_id="q", text="q", relevant_ids=ids)])
    # The shape of an EmbeddingQAFinetuneDataset; its corpus gives each id its text.
    finetune = SimpleNamespace(
        queries={"q": "q"},
        relevant_docs={"q": ids},
        corpus={key: doc.text for key, doc in first.docstore.docs.items()},
    )
    for index, by_ids in ((first, 1.0), (second, 0.0)):
        evaluator = RetrieverRecallEvaluator(retriever=index, k=2)
        assert evaluator.evaluate_dataset(by_id).mean(2) == by_ids
        assert evaluator.evaluate_dataset(finetune).mean(2) == 1.0
        assert evaluator.evaluate_dataset({"q": [doc.text for doc in DOCUMENTS]}).mean(2) == 1.0


# trap 15
def test_scores_that_are_missing_or_unsorted_change_no_order() -> None:
    summary = SummaryIndex([TextNode(text=text) for text in ("x", "a", "b")])
    retriever = summary.as_retriever()
    assert [one.score for one in retriever.retrieve("q")] == [None, None, None]
    for report in every_way(retriever, {"q": ["a", "b"]}, k=(1, 2, 3)):
        assert list(only_row(report).recall.values()) == [0.0, 0.5, 1.0]
    unsorted = Scripted([node("x", 0.1), node("a", None), node("b", 0.9)])
    for report in every_way(unsorted, {"q": ["a", "b"]}, k=(1, 2, 3)):
        assert list(only_row(report).recall.values()) == [0.0, 0.5, 1.0]


# trap 15
def test_a_fusion_that_fails_on_a_missing_score_costs_one_row() -> None:
    answers = {"q1": [node("a", 1), node("b", None)], "q2": [node("a", 1), node("b", 0.5)]}
    fusion = QueryFusionRetriever(
        [Scripted(answers)], llm=MockLLM(), mode="relative_score", num_queries=1, use_async=False
    )
    for report in every_way(fusion, {"q1": ["a"], "q2": ["b"]}, k=2):
        assert [row.status for row in report.queries] == ["errored", "scored"]
        assert report.mean(2) == 1.0


# trap 15
def test_bm25_pads_its_list_and_cannot_reach_deeper_than_its_corpus() -> None:
    bm25 = pytest.importorskip("llama_index.retrievers.bm25")
    nodes = [TextNode(text=text) for text in ("red apple", "green pear", "blue sky")]
    retriever = bm25.BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10)
    for report in every_way(retriever, {"apple": ["red apple", "blue sky"]}, k=(1, 10)):
        row = only_row(report)
        assert (row.retrieved_count, row.recall) == (3, {"recall@1": 0.5, "recall@10": 1.0})
        assert any("lists of at most 3 chunks" in note for note in report.notes)


# trap 16
def test_a_reorder_for_long_contexts_is_a_stage_of_its_own() -> None:
    found = [node(str(number), 1 - number / 10) for number in range(6)]
    evaluator = RetrieverRecallEvaluator(
        retriever=Scripted(found), node_postprocessors=[LongContextReorder()], k=(2, None)
    )
    labels = {"q": ["0", "1"]}
    for report in (
        evaluator.evaluate_dataset(labels),
        asyncio.run(evaluator.aevaluate_dataset(labels)),
    ):
        assert report.stages["Scripted"].mean(2) == 1.0
        assert report.queries[0].retrieved == ("1", "3", "5", "4", "2", "0")
        assert (report.mean(2), report.mean(None)) == (0.5, 1.0)
        (lost,) = [s for s in report.stages if s not in ("Scripted", "final")]
        assert lost == "LongContextReorder"


# trap 17
def test_a_k_that_the_retriever_never_reaches_is_said() -> None:
    index = VectorStoreIndex([TextNode(text=text) for text in "abcdef"], embed_model=EMBEDDING)
    for report in every_way(index.as_retriever(), {"q": ["a"]}, k=10):
        assert only_row(report).retrieved_count == 2  # LlamaIndex's default
        (note,) = [note for note in report.notes if "recall@10" in note]
        assert "lists of at most 2 chunks" in note


# trap 18
def test_an_empty_retrieval_is_zero_everywhere() -> None:
    for report in every_way(Scripted([]), {"q": ["a"]}, k=1):
        assert (only_row(report).status, report.mean(1)) == ("scored", 0.0)
    for kind in (RetrieverEvaluator, RetrieverRecallEvaluator):
        evaluator = kind(metrics=[RecallAtK(1)], retriever=Scripted([]))
        for expected in ((["a"], None), ([], ["a"])):
            assert evaluator.evaluate("q", *expected).metric_vals_dict == {"recall@1": 0.0}
            result = asyncio.run(evaluator.aevaluate("q", *expected))
            assert result.metric_vals_dict == {"recall@1": 0.0}
    row = ResponseRecallEvaluator().evaluate("q", contexts=[], reference_contexts=["a"])
    assert (row.score, row.invalid_result) == (0.0, False)


# trap 19
def test_no_labels_are_no_score_and_are_counted() -> None:
    labels = Dataset(
        [
            Query(query_id="1", text="q1", relevant=["a"]),
            Query(query_id="2", text="q2", relevant=[]),
            Query(query_id="3", text="q3", relevant=None),
        ]
    )
    for report in every_way(Scripted(["a"]), labels, k=1):
        assert [row.status for row in report.queries] == ["scored", "undefined", "undefined"]
        assert report.mean(1) == 1.0
        summary = report.summary["recall@1"]
        assert (summary.averaged_over, summary.undefined, summary.total) == (1, 2, 3)
    for kind in (RetrieverEvaluator, RetrieverRecallEvaluator):
        evaluator = kind(metrics=[RecallAtK(1)], retriever=Scripted(["a"]))
        result = evaluator.evaluate("q", [])
        assert result.metric_vals_dict == {"recall@1": None}
        with pytest.raises(TypeError, match="no labels"):
            float(result.metric_dict["recall@1"])
    row = ResponseRecallEvaluator().evaluate("q", contexts=["a"], reference_contexts=[])
    assert (row.score, row.invalid_result) == (None, True)


class OwnRetrieve(Scripted):
    """Overrides `retrieve`, and so tells of no event, only of a span."""

    def retrieve(self, str_or_query_bundle: Any) -> Any:
        return self._retrieve(QueryBundle(str_or_query_bundle))


# trap 20
@pytest.mark.parametrize("kind", [Scripted, OwnRetrieve])
def test_none_is_an_errored_row(kind: type[Scripted]) -> None:
    retriever = kind({"q1": None, "q2": ["a"]})
    labels = {"q1": ["a"], "q2": ["a"]}
    reports = [evaluate_retriever(retriever, labels, k=1, progress=False)]
    reports.append(recorded(retriever, labels, k=1).report())
    if kind is Scripted:
        reports = every_way(retriever, labels, k=1)
    for report in reports:
        assert [row.status for row in report.queries] == ["errored", "scored"]
        assert "None" in str(report.queries[0].error)


# trap 20
def test_nodes_without_a_score_around_them_are_an_errored_row_or_are_read() -> None:
    bare = TextNode(text="a")
    for report in every_way(Scripted([bare]), {"q": ["a"]}, k=1):
        assert only_row(report).status == "errored"
        assert "AttributeError" in str(only_row(report).error)
    # Its own `retrieve` hands them out as they are.
    report = evaluate_retriever(OwnRetrieve([bare]), {"q": ["a"]}, k=1, progress=False)
    assert report.mean(1) == 1.0
    assert recorded(OwnRetrieve([bare]), {"q": ["a"]}, k=1).report().mean(1) == 1.0


# trap 21
def test_an_empty_query_is_what_the_retriever_makes_of_it() -> None:
    labels = Dataset([Query(query_id="empty", text="", relevant=["a"])])
    index = VectorStoreIndex([TextNode(text="a")], embed_model=EMBEDDING)
    for report in every_way(index.as_retriever(), labels, k=1):
        assert only_row(report).status == "errored"  # core asks the store without an embedding
        assert "TypeError" in str(only_row(report).error)
    for report in every_way(Scripted(["a"]), labels, k=1):
        assert (only_row(report).status, report.mean(1)) == ("scored", 1.0)


# trap 22
def test_a_failing_query_costs_one_row() -> None:
    labels = {"q1": ["a"], "q2": ["a"], "q3": ["a"]}
    for error in (ValueError, RuntimeError, NotImplementedError):
        retriever = Scripted({"q1": ["a"], "q2": error, "q3": ["x"]})
        for report in every_way(retriever, labels, k=1):
            assert [row.status for row in report.queries] == ["scored", "errored", "scored"]
            assert "boom" in str(report.queries[1].error)
            summary = report.summary["recall@1"]
            assert (summary.mean, summary.errored) == (0.5, 1)
            assert (summary.bound_low, summary.bound_high) == pytest.approx((1 / 3, 2 / 3))
    evaluator = RetrieverRecallEvaluator(retriever=Scripted({"q1": ValueError}))
    with pytest.raises(RetrievalError, match="boom"):
        evaluator.evaluate_dataset({"q1": ["a"]}, on_error="raise")
    with pytest.raises(RetrievalError, match="boom"):
        evaluator.evaluate("q1", expected_texts=["a"])
    with pytest.raises(RetrievalError, match="boom"):
        asyncio.run(evaluator.aevaluate("q1", expected_texts=["a"]))


class FansOut(BaseRetriever):
    """Asks others in a bare pool, which copies no context."""

    def __init__(self, *inner: BaseRetriever) -> None:
        super().__init__()
        self._inner = inner

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        with ThreadPoolExecutor() as pool:
            lists = list(pool.map(lambda one: one.retrieve(query_bundle), self._inner))
        return [found for one in lists for found in one]


# trap 23
def test_retrievers_asked_in_bare_threads_are_no_rows_of_their_own() -> None:
    retriever = FansOut(Dense(["x", "a"]), Sparse(["b"]))
    for report in every_way(retriever, {"q": ["a", "b"]}, k=(2, 3)):
        assert only_row(report).recall == {"recall@2": 0.5, "recall@3": 1.0}
    recorder = recorded(retriever, {"q": ["a", "b"]}, k=3)
    assert set(recorder.stages) == {"final"}
    assert any("2 retrievals ran outside the block" in note for note in recorder.report().notes)


# trap 24
def test_what_a_splitter_strips_is_no_exact_match_and_one_without_whitespace() -> None:
    text = "  First sentence stands here.\n\nSecond sentence stands here.  "
    nodes = split(Document(text=text))
    assert [one.text for one in nodes] == [
        "First sentence stands here.",
        "Second sentence stands here.",
    ]
    retriever = SummaryIndex(nodes).as_retriever()
    labels = {"q": ["  First sentence stands here.\n\n", "Second sentence stands here.  "]}
    for report in every_way(retriever, labels, k=2):
        assert report.mean(2) == 0.0
    for report in every_way(retriever, labels, k=2, matcher=NormalizedText()):
        assert report.mean(2) == 1.0


# trap 25
def test_labels_with_metadata_in_front_match_the_text_that_has_it() -> None:
    found = node("body", metadata={"file": "a.md"})
    label = found.node.get_content(metadata_mode=MetadataMode.ALL)
    assert label != "body"
    labels = {"q": [label]}
    for report in every_way(Scripted([found]), labels, k=1):
        assert report.mean(1) == 0.0

    def whole(one: Any) -> str:
        text: str = one.get_content(metadata_mode=MetadataMode.ALL)
        return text

    adapter = LlamaIndexAdapter(Scripted([found]), text_from=whole)
    evaluator = RetrieverRecallEvaluator(retriever=Scripted([found]), k=1, text_from=whole)
    reports = [
        evaluate_retriever(adapter, labels, k=1, progress=False),
        evaluator.evaluate_dataset(labels),
        asyncio.run(evaluator.aevaluate_dataset(labels)),
        recorded(Scripted([found]), labels, k=1, text_from=whole).report(),
        called_back(Scripted([found]), labels, k=1, text_from=whole).report(),
    ]
    assert [report.mean(1) for report in reports] == [1.0] * 5
    assert evaluator.evaluate("q", expected_texts=[label]).metric_vals_dict == {"recall@1": 1.0}


# trap 26
def test_document_labels_count_each_document_once_and_chunks_keep_their_ranks() -> None:
    documents = [
        Document(text=" ".join(f"Sentence {n} of {name}." for n in range(6)), id_=name)
        for name in ("D1", "D2", "D3")
    ]
    nodes = split(*documents, size=10)
    per_document = [sum(one.ref_doc_id == name for one in nodes) for name in ("D1", "D2", "D3")]
    assert min(per_document) > 1
    retriever = SummaryIndex(nodes).as_retriever()
    labels = Dataset([Query(query_id="q", text="q", relevant_ids=["D1", "D2"])])
    first = per_document[0]
    for report in every_way(
        retriever, labels, k=(1, first, first + 1), matcher=ChunkId("ref_doc_id")
    ):
        assert list(only_row(report).recall.values()) == [0.5, 0.5, 1.0]


# trap 27
def test_the_star_import_works_and_nothing_of_ours_needs_one_of_llama_indexs() -> None:
    names: dict[str, Any] = {}
    exec("from chunkrecall.llama_index import *", names)
    assert set(chunkrecall.llama_index.__all__) <= set(names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = chunkrecall.llama_index.nothing
    for path in Path(chunkrecall.llama_index.__file__).parent.glob("*.py"):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.ImportFrom):
                assert "*" not in [alias.name for alias in one.names], path


# The stock evaluator with our metric.


def test_the_stock_evaluator_keeps_metrics_of_several_k_side_by_side() -> None:
    evaluator = RetrieverEvaluator(
        metrics=[RecallAtK(k) for k in (1, 2, None)], retriever=Scripted(["x", "a", "b"])
    )
    for result in (
        evaluator.evaluate("q", [], ["a", "b"]),
        asyncio.run(evaluator.aevaluate("q", ["a", "b"])),
    ):
        assert result.metric_vals_dict == {"recall@1": 0.0, "recall@2": 0.5, "recall@all": 1.0}
    several = RecallAtK((1, 2)).compute("q", ["a"], ["x", "a"])
    assert (several.score, several.metadata["recall@1"], several.metadata["recall@2"]) == (1, 0, 1)
    assert several.metadata["missing"] == []


def test_metrics_are_registered_once_and_made_by_name() -> None:
    from llama_index.core.evaluation.retrieval.metrics import METRIC_REGISTRY

    before = dict(METRIC_REGISTRY)
    try:
        names = register_metrics()
        made = {name: METRIC_REGISTRY[name] for name in names}
        assert register_metrics() == names
        assert {name: METRIC_REGISTRY[name] for name in names} == made
        assert {**METRIC_REGISTRY, **before} == METRIC_REGISTRY  # LlamaIndex's own stay
        assert set(register_metrics((2, 5))) == {"recall@2", "recall@5"}
        for kind in (RetrieverEvaluator, RetrieverRecallEvaluator):
            evaluator = kind.from_metric_names(
                ["recall@1", "recall@all", "recall"], retriever=Scripted(["x", "a"])
            )
            result = asyncio.run(evaluator.aevaluate("q", ["a", "b"]))
            assert result.metric_vals_dict == {"recall@1": 0.0, "recall@all": 0.5, "recall": 0.5}
        METRIC_REGISTRY["recall@7"] = METRIC_REGISTRY["mrr"]
        with pytest.raises(ValueError, match=r"'recall@7' is taken"):
            register_metrics(7)
    finally:
        METRIC_REGISTRY.clear()
        METRIC_REGISTRY.update(before)


@pytest.mark.parametrize("expected", [{"expected_ids": "abc"}, {"expected_texts": "abc"}])
def test_a_bare_text_is_no_list_of_labels(expected: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="put it in a list"):
        RecallAtK(k=2).compute(**expected, retrieved_ids=["a"], retrieved_texts=["a"])  # type: ignore[arg-type]
