"""Every shape of retriever and of result that the two frameworks have."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListLLM
from langchain_core.load import dumpd
from langchain_core.prompt_values import StringPromptValue
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBaseRetriever
from llama_index.core.base.response.schema import Response
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import (
    BaseQueryEngine,
    RetrieverQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.retrievers import TransformRetriever
from llama_index.core.schema import (
    Document as LlamaIndexDocument,
)
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import BaseModel

from chunkrecall import (
    Chunk,
    ChunkId,
    Label,
    Query,
    UnsupportedRetrieverError,
    adapt,
    aevaluate_retriever,
    evaluate_retriever,
)
from chunkrecall.langchain import LangChainAdapter, documents_to_chunks, documents_to_texts
from chunkrecall.llama_index import LlamaIndexAdapter, nodes_to_chunks, nodes_to_texts

TEXTS = [f"chunk {i}" for i in range(8)]


class Special(Document):
    """A subclass of Document."""


class LC(BaseRetriever):
    documents: list[Any]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        return self.documents


class Broken(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise RuntimeError("down")


class AsyncOnly(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise NotImplementedError

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content="a")]


async def coroutine(text: str) -> list[Document]:
    return [Document(page_content="a")]


def store() -> InMemoryVectorStore:
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    made.add_documents([Document(page_content=text, id=text) for text in TEXTS])
    return made


def both(retriever: Any, labels: Any, **options: Any) -> list[Any]:
    return [
        evaluate_retriever(retriever, labels, progress=False, **options),
        asyncio.run(aevaluate_retriever(retriever, labels, progress=False, **options)),
    ]


A = LC(documents=[Document(page_content="a")])


@pytest.mark.parametrize(
    "answer",
    [
        {"context": "the prompt", "source_documents": [Document(page_content="a")]},
        {"output": "the answer", "chunks": ["a"]},
        {"documents": None, "output": {"answer": "x"}, "retrieved": ("a",)},
        {"output": {"chunks": ["a"]}},
    ],
)
def test_the_list_is_found_beside_a_prompt_or_an_answer(answer: Any) -> None:
    for report in both(lambda text: answer, {"q": ["a"]}, k=1):
        assert report.mean(1) == 1.0


@pytest.mark.parametrize(
    "retriever",
    [
        A,
        A.with_config(tags=["x"]),
        A.with_retry(),
        Broken().with_fallbacks([A]),
        RunnableLambda(lambda text: {"documents": [Document(page_content="a")]}),
        RunnableLambda(coroutine),
        RunnableLambda(str) | RunnableLambda(coroutine),
        EnsembleRetriever(retrievers=[A, LC(documents=[Document(page_content="b")])]),
        AsyncOnly(),
        LC(documents=[Special(page_content="a")]),
        LC(documents=[(Document(page_content="a"), 0.5)]),
        LC(documents=["a"]),
        LC(documents=[{"page_content": "a", "metadata": {}, "type": "Document"}]),
        LC(documents=[dumpd(Document(page_content="a"))]),
        LC(documents=[dumpd(Document(page_content="a")), Document(page_content="b")]),
    ],
)
def test_langchain_retrievers_of_every_shape_are_asked(retriever: Any) -> None:
    for report in both(retriever, {"q": ["a"]}, k=2):
        assert report.mean(2) == 1.0, report.queries[0].error


def test_a_langchain_retriever_that_returns_none_is_an_error() -> None:
    retriever = RunnableLambda(lambda text: None)
    for report in both(retriever, {"q": ["a"]}, k=2):
        assert "None" in str(report.queries[0].error)


def test_a_vector_store_is_searched_as_deep_as_the_largest_k() -> None:
    for report in both(store(), {"q": ["chunk 1"]}, k=(1, 6)):
        assert report.queries[0].retrieved_count == 6
    for report in both(store(), {"q": ["chunk 1"]}, k=None):
        assert report.queries[0].retrieved_count == 4
        assert any("own default" in note for note in report.notes)
    assert (
        evaluate_retriever(store().as_retriever(), {"q": ["x"]}, k=8, progress=False)
        .queries[0]
        .retrieved_count
        == 4
    )


@pytest.mark.parametrize("bad", [FakeListLLM(responses=["x"]), MockLLM()])
def test_a_language_model_is_refused_and_never_asked(bad: Any) -> None:
    with pytest.raises(UnsupportedRetrieverError):
        adapt(bad)


def test_documents_become_chunks_with_ids_scores_and_copied_metadata() -> None:
    document = Document(page_content=" a\n", id="1", metadata={"n": 1})
    chunks = documents_to_chunks([(document, 0.25), Document(page_content="b")])
    assert chunks == (
        Chunk(text=" a\n", chunk_id="1", score=0.25, metadata={"n": 1}),
        Chunk(text="b"),
    )
    document.metadata["n"] = 2
    assert chunks[0].metadata == {"n": 1}
    assert documents_to_texts(iter([document])) == [" a\n"]
    with pytest.raises(TypeError, match="item 1.*int"):
        documents_to_texts([document, 3])


@pytest.mark.parametrize("text_from", ["original", lambda document: document.metadata["original"]])
def test_text_from_reads_langchain_text_from_elsewhere(text_from: Any) -> None:
    document = Document(page_content="window", metadata={"original": "a"})
    assert documents_to_texts([document], text_from=text_from) == ["a"]
    adapter = LangChainAdapter(LC(documents=[document]), text_from=text_from)
    for report in both(adapter, {"q": ["a"]}, k=1):
        assert report.mean(1) == 1.0


def test_text_from_that_is_not_there_is_an_error_that_names_the_keys() -> None:
    with pytest.raises(ValueError, match=r"'original'.*\['other'\]"):
        documents_to_texts(
            [Document(page_content="a", metadata={"other": 1})], text_from="original"
        )
    with pytest.raises(ValueError, match=r"'original'.*\['other'\]"):
        nodes_to_texts([TextNode(text="a", metadata={"other": 1})], text_from="original")
    with pytest.raises(TypeError, match="list of Documents"):
        documents_to_texts(["a"], text_from="original")


@pytest.mark.parametrize("text", [None, 5, ["a"]])
@pytest.mark.parametrize("text_from", ["original", lambda one: one.metadata["original"]])
def test_text_from_that_gives_no_string_is_an_errored_query(text: Any, text_from: Any) -> None:
    metadata = {"original": text}
    documents = [Document(page_content="a", metadata=metadata)]
    nodes = [NodeWithScore(node=TextNode(text="a", metadata=metadata))]
    for adapter, kind in (
        (LangChainAdapter(LC(documents=documents), text_from=text_from), "Document"),
        (LlamaIndexAdapter(LI(nodes), text_from=text_from), "node"),
    ):
        for report in both(adapter, {"q": ["a"]}, k=1):
            assert report.queries[0].status == "errored"
            phrase = f"the text of {kind} 0 is a {type(text).__name__}, not a string"
            assert phrase in str(report.queries[0].error)
            assert str(report)


@pytest.mark.parametrize(
    ("returned", "phrase"),
    [
        ([(Document(page_content="a"), {"score": 1})], "a tuple of Document, dict"),
        ([(TextNode(text="a"), "0.5")], "a tuple of TextNode, str"),
        ([("a", "b")], "a tuple of str, str"),
        ([()], "a tuple of nothing"),
        (Document(page_content="a"), "bare Document"),
        (TextNode(text="a"), "bare TextNode"),
        (NodeWithScore(node=TextNode(text="a")), "bare NodeWithScore"),
        ({"documents": Document(page_content="a")}, "bare Document"),
        (StringPromptValue(text="a"), "bare StringPromptValue"),
    ],
)
def test_pairs_and_single_objects_that_are_no_list_of_chunks_are_named(
    returned: Any, phrase: str
) -> None:
    for report in both(lambda _: returned, {"q": ["a"]}, k=1):
        assert report.queries[0].status == "errored"
        assert str(report.queries[0].error).startswith("TypeError")
        assert phrase in str(report.queries[0].error)
    if isinstance(returned, list):
        for convert in (nodes_to_chunks, documents_to_chunks):
            with pytest.raises(TypeError, match=phrase):
                convert(returned)


class Results(BaseModel):
    """A record of the user's own that is a list of chunks."""

    texts: list[str]

    def __iter__(self) -> Any:
        return iter(self.texts)


def test_a_record_that_goes_through_its_chunks_is_a_list() -> None:
    for report in both(lambda _: Results(texts=["a"]), {"q": ["a"]}, k=1):
        assert report.mean(1) == 1.0


class LI(LlamaIndexBaseRetriever):
    def __init__(self, nodes: Any) -> None:
        super().__init__()
        self._nodes = nodes

    def _retrieve(self, query_bundle: Any) -> Any:
        return self._nodes


class LIAsyncOnly(LI):
    def _retrieve(self, query_bundle: Any) -> Any:
        raise NotImplementedError

    async def _aretrieve(self, query_bundle: Any) -> Any:
        return self._nodes


def scored(*nodes: Any) -> list[NodeWithScore]:
    return [NodeWithScore(node=node, score=0.5) for node in nodes]


@pytest.mark.parametrize("kind", [LI, LIAsyncOnly])
def test_llama_index_retrievers_are_asked(kind: Any) -> None:
    for report in both(kind(scored(TextNode(text="a"))), {"q": ["a"]}, k=1):
        assert report.mean(1) == 1.0


def test_an_index_is_searched_as_deep_as_the_largest_k() -> None:
    index = VectorStoreIndex(
        [TextNode(text=text, id_=text) for text in TEXTS], embed_model=MockEmbedding(embed_dim=4)
    )
    for report in both(index, {"q": ["chunk 1"]}, k=(1, 6)):
        assert report.queries[0].retrieved_count == 6
    for report in both(index, {"q": ["chunk 1"]}, k=None):
        assert report.queries[0].retrieved_count == 2
        assert any("own default" in note for note in report.notes)
    summary = SummaryIndex([TextNode(text=text) for text in TEXTS])
    for report in both(summary, {"q": ["chunk 1"]}, k=3):
        assert report.queries[0].retrieved_count == 8


def test_the_whole_list_of_a_retriever_made_for_another_k_is_noted() -> None:
    nodes = [TextNode(text=text) for text in TEXTS]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))
    for retriever in (store(), index):
        for k, noted in (((1, None), True), ((1, 2), False), ((20, None), False), (None, False)):
            for report in both(retriever, {"q": TEXTS}, k=k):
                assert any("made as deep as" in note for note in report.notes) == noted, k
    for retriever in (
        store().as_retriever(search_kwargs={"k": 1}),
        index.as_retriever(similarity_top_k=1),
        SummaryIndex(nodes),
    ):
        for report in both(retriever, {"q": TEXTS}, k=(1, None)):
            assert not any("made as deep as" in note for note in report.notes)


class Counting(MockLLM):
    """A language model that must not be asked."""

    def complete(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked")

    def chat(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked")


def test_a_query_engine_is_asked_for_nodes_after_its_postprocessors_and_without_its_model() -> None:
    nodes = [
        NodeWithScore(node=TextNode(text="a"), score=0.9),
        NodeWithScore(node=TextNode(text="b"), score=0.1),
    ]
    engine = RetrieverQueryEngine.from_args(
        LI(nodes),
        llm=Counting(),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.5)],
    )
    for report in both(engine, {"q": ["a", "b"]}, k=2):
        assert report.mean(2) == 0.5
        assert report.queries[0].retrieved == ("a",)


def test_a_query_transform_that_asks_a_language_model_is_noted() -> None:
    retriever = LI(scored(TextNode(text="a")))
    engine = RetrieverQueryEngine.from_args(retriever, llm=Counting())
    hyde, plain = HyDEQueryTransform(llm=MockLLM()), IdentityQueryTransform()
    phrase = "asked a language model for every query: its HyDEQueryTransform"
    for asked, noted in (
        (TransformQueryEngine(engine, hyde), True),
        (TransformRetriever(retriever, hyde), True),
        (TransformQueryEngine(engine, plain), False),
        (engine, False),
    ):
        for report in both(asked, {"q": ["a"]}, k=1):
            assert report.mean(1) == 1.0
            assert any(phrase in note for note in report.notes) == noted


class Answering(BaseQueryEngine):
    def __init__(self) -> None:
        super().__init__(callback_manager=None)

    def _query(self, query_bundle: Any) -> Any:
        return Response("x")

    async def _aquery(self, query_bundle: Any) -> Any:
        return Response("x")

    def _get_prompt_modules(self) -> Any:
        return {}


def test_an_engine_that_only_answers_is_sent_to_the_recorder() -> None:
    with pytest.raises(UnsupportedRetrieverError, match="record_recall"):
        adapt(Answering())


def test_node_text_is_the_content_without_metadata_for_every_class() -> None:
    metadata = {"file": "a.md"}
    nodes = [
        TextNode(text=" body \n", metadata=metadata),
        IndexNode(text="summary", index_id="i", metadata=metadata),
        LlamaIndexDocument(text="whole", metadata=metadata),
        ImageNode(image="aGk=", metadata=metadata),
        Node(metadata=metadata),
    ]
    expected = [node.get_content(metadata_mode=MetadataMode.NONE) or "" for node in nodes]
    assert nodes_to_texts(scored(*nodes)) == expected == [" body \n", "summary", "whole", "", ""]
    assert nodes_to_texts(nodes[:1]) == [" body \n"]
    assert "file" in nodes[0].get_content(metadata_mode=MetadataMode.ALL)


def test_nodes_become_chunks_with_ids_scores_and_their_document() -> None:
    node = TextNode(id_="n", text="a", metadata={"x": 1})
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc-1")
    (chunk,) = nodes_to_chunks(scored(node))
    assert chunk == Chunk(
        text="a", chunk_id="n", score=0.5, metadata={"x": 1, "ref_doc_id": "doc-1"}
    )
    assert chunk.doc_id == "doc-1"
    labels = Query(query_id="q", text="q", relevant=[Label(chunk_id="doc-1")]).relevant or ()
    assert ChunkId("ref_doc_id").first_ranks(labels, [chunk]) == (1,)
    with pytest.raises(TypeError, match="item 1.*int"):
        nodes_to_texts([*scored(node), 3])


@pytest.mark.parametrize("bad", ["abc", b"abc", {"abc": 1}, None, {"a", "b"}])
def test_what_is_no_ranked_list_is_refused_and_never_taken_apart(bad: Any) -> None:
    for convert in (nodes_to_chunks, nodes_to_texts, documents_to_chunks, documents_to_texts):
        with pytest.raises(TypeError, match="returned"):
            convert(bad)


def test_a_sentence_window_is_read_from_its_original_text() -> None:
    node = TextNode(text="the whole window", metadata={"original_text": "a"})
    assert nodes_to_texts(scored(node), text_from="original_text") == ["a"]
    adapter = LlamaIndexAdapter(LI(scored(node)), text_from="original_text")
    for report in both(adapter, {"q": ["a"]}, k=1):
        assert report.mean(1) == 1.0


def test_a_response_and_serialised_nodes_are_read() -> None:
    nodes = scored(TextNode(text="a", id_="1"))
    for returned in (Response("answer", source_nodes=nodes), [nodes[0].to_dict()], nodes):
        report = evaluate_retriever(lambda _, r=returned: r, {"q": ["a"]}, k=1, progress=False)
        assert report.mean(1) == 1.0, report.queries[0].error
        assert report.queries[0].retrieved_ids == ("1",)


def test_an_evaluation_leaves_nodes_and_documents_as_they_were() -> None:
    nodes = scored(TextNode(text="a", metadata={"n": [1]}), TextNode(text="b"))
    documents = [Document(page_content="a", metadata={"n": [1]}), Document(page_content="b")]
    before = copy.deepcopy((nodes, documents))
    for retriever in (LI(nodes), LC(documents=documents)):
        both(retriever, {"q": ["b"]}, k=1, dedupe=True, exclude_self=True)
    assert (nodes, documents) == before


def test_documents_edited_after_they_were_returned_change_no_report() -> None:
    document = Document(page_content="a", metadata={"chunk": "1"})

    def search(text: str) -> list[Document]:
        document.page_content = "a" if text == "q1" else "edited"
        document.metadata["chunk"] = text
        return [document]

    labels = {"q1": ["a"], "q2": ["edited"]}
    report = evaluate_retriever(search, labels, k=1, max_concurrency=1, progress=False)
    assert report.mean(1) == 1.0
    assert report.run is not None
    assert [r.chunks[0].metadata["chunk"] for r in report.run.rankings] == ["q1", "q2"]
