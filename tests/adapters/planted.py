"""Real indexes with one fault planted in 20 of 100 queries, the same in either framework."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.core.storage import StorageContext
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore

from chunkrecall import Chunk, Dataset, Label, Query, Report, evaluate_retriever
from chunkrecall.langchain import record_recall
from chunkrecall.llama_index import RetrieverRecallEvaluator

K = 5
QUERIES = 100
PLANTED = range(0, QUERIES, 5)
_SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "wu", "xa", "ze", "go", "pi"]
_WORDS = random.Random(7).sample(
    [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES], 500
)


def words(number: int, seed: object) -> str:
    return " ".join(random.Random(f"{seed}").sample(_WORDS, number))


def sentence(seed: object) -> str:
    return f"{words(8, seed).capitalize()}."


def text_of(number: int) -> str:
    """Three sentences of made-up words, and two that only this chunk and its question have."""
    return f"{sentence(f'{number}a')} Key{number}a key{number}b {sentence(f'{number}b')} {sentence(f'{number}c')}"


def question_of(number: int) -> str:
    return f"key{number}a key{number}b"


class Bag:
    """Counts words; every word that is met first gets a place of its own."""

    def __init__(
        self, *, size: int = 1_600, reads: int | None = None, skewed: Sequence[str] = ()
    ) -> None:
        self.places: dict[str, int] = {}
        self.size = size
        self.reads = reads
        self.skewed = frozenset(skewed)

    def vector(self, text: str, *, as_document: bool = False) -> list[float]:
        vector = [0.0] * self.size
        for word in text.lower().split()[: self.reads]:
            plain = word.strip(".,?")
            place = self.places.setdefault(plain, len(self.places))
            if as_document and text in self.skewed:  # as another model would have embedded it
                place = self.size - 1 - place
            vector[place] += 1.0
        norm = sum(value * value for value in vector) ** 0.5
        return [value / norm for value in vector] if norm else [1e-9] * self.size


class LangChainBag(Embeddings):
    def __init__(self, bag: Bag) -> None:
        self.bag = bag

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.bag.vector(text, as_document=True) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.bag.vector(text)


class LlamaIndexBag(BaseEmbedding):
    bag: Any

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.bag.vector(text, as_document=True)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.bag.vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.bag.vector(query)


class Store(InMemoryVectorStore):
    """With relevance scores, and blind to some ids unless it searches deep."""

    blind: frozenset[str] = frozenset()

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: score

    def similarity_search_with_score_by_vector(self, embedding, k=4, *args, **kwargs):
        if k >= 20 or not self.blind:
            return super().similarity_search_with_score_by_vector(embedding, k, *args, **kwargs)
        found = super().similarity_search_with_score_by_vector(embedding, k + 1, *args, **kwargs)
        return [pair for pair in found if pair[0].id not in self.blind][:k]


class BlindStore(SimpleVectorStore):
    def query(self, query, **kwargs):
        if query.similarity_top_k < 20:
            query = replace(query, node_ids=[i for i in self.data.embedding_dict if i not in BLIND])
        return super().query(query, **kwargs)


BLIND = frozenset(f"c{number}" for number in PLANTED)


def langchain(chunks: Sequence[Chunk], bag: Bag, settings: dict[str, Any]) -> Any:
    store = Store(LangChainBag(bag))
    store.blind = BLIND if settings.get("blind") else frozenset()
    store.add_documents(
        [Document(id=c.chunk_id, page_content=c.text, metadata=dict(c.metadata)) for c in chunks]
    )
    kwargs: dict[str, Any] = {"k": K}
    if "language" in settings:
        kwargs["filter"] = lambda document: (
            document.metadata.get("language") == settings["language"]
        )
    if "threshold" in settings:
        kwargs["score_threshold"] = settings["threshold"]
        return store.as_retriever(
            search_type="similarity_score_threshold", search_kwargs=kwargs
        ), store
    return store.as_retriever(search_kwargs=kwargs), store


def llama_index(chunks: Sequence[Chunk], bag: Bag, settings: dict[str, Any]) -> Any:
    nodes = [
        TextNode(
            id_=c.chunk_id or "",
            text=c.text,
            metadata=dict(c.metadata),
            excluded_embed_metadata_keys=list(c.metadata),
            excluded_llm_metadata_keys=list(c.metadata),
        )
        for c in chunks
    ]
    context = StorageContext.from_defaults(
        vector_store=BlindStore() if settings.get("blind") else SimpleVectorStore()
    )
    index = VectorStoreIndex(nodes, embed_model=LlamaIndexBag(bag=bag), storage_context=context)
    filters = None
    if "language" in settings:
        filters = MetadataFilters(
            filters=[MetadataFilter(key="language", value=settings["language"])]
        )
    retriever: Any = index.as_retriever(similarity_top_k=K, filters=filters)
    if "threshold" in settings:
        cut = SimilarityPostprocessor(similarity_cutoff=settings["threshold"])
        retriever = RetrieverQueryEngine.from_args(
            retriever, llm=MockLLM(), node_postprocessors=[cut]
        )
    return retriever, index


FRAMEWORKS = {"LangChain": langchain, "LlamaIndex": llama_index}


@dataclass
class Fault:
    """What stands in the index, what is asked and labelled, and what diagnosis may be told."""

    chunks: list[Chunk] = field(default_factory=list)
    queries: dict[int, str] = field(
        default_factory=lambda: {n: question_of(n) for n in range(QUERIES)}
    )
    labels: dict[int, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    bag: Bag = field(default_factory=Bag)
    tells: tuple[str, ...] = ()
    """The evidence that the cause needs: corpus, retriever, others, stages, tokens."""
    step: Callable[[list[tuple[str, str]]], list[int]] | None = None
    """A later stage: from (id, text) pairs to the indexes that it keeps."""
    is_fact: bool = True
    without: str = "unknown"
    """What is said where that evidence is missing."""

    def dataset(self) -> Dataset:
        return Dataset(
            [
                Query(query_id=f"q{n}", text=self.queries[n], relevant=[self.labels[n]])
                for n in range(QUERIES)
            ]
        )


def sound(**options: Any) -> Fault:
    """Every question finds its own chunk first."""
    fault = Fault(**options)
    for n in range(QUERIES):
        fault.chunks.append(Chunk(chunk_id=f"c{n}", text=text_of(n), metadata={"doc_id": f"d{n}"}))
        fault.labels[n] = text_of(n)
    return fault


def changed(fault: Fault, n: int, **fields: Any) -> None:
    fault.chunks[n] = replace(fault.chunks[n], **fields)


def added(
    fault: Fault, n: int, number: int, make: Callable[[int], str], doc: str | None = None
) -> None:
    for i in range(number):
        fault.chunks.append(
            Chunk(chunk_id=f"x{n}-{i}", text=make(i), metadata={"doc_id": doc or f"x{n}-{i}"})
        )


def closer(n: int, i: int) -> str:
    """A chunk that has nothing but the question's words and a few of its own."""
    return f"{question_of(n).capitalize()} {words(3, f'closer{n}-{i}')}."


FORMS: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(". ", ".\n\n"),
    lambda text: text.upper(),
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: text.replace("a", "a\u00ad"),
    lambda text: text.replace("&", "&amp;"),
    lambda text: f"source: a.md\npage: 3\n\n{text}",
)


def text_differs() -> Fault:
    fault = sound()
    for place, n in enumerate(PLANTED):
        label = text_of(n).replace("Key", "Caf\u00e9 & key")
        fault.labels[n] = label
        metadata = {"source": "a.md", "page": 3}
        changed(fault, n, text=FORMS[place % len(FORMS)](label), metadata=metadata)
    return fault


def id_differs() -> Fault:
    fault = sound()
    for n in range(QUERIES):
        fault.labels[n] = Label(chunk_id=f"d{n}" if n in PLANTED else f"c{n}")
    return fault


def dropped_as_duplicate() -> Fault:
    def one_of_each_text(pairs: list[tuple[str, str]]) -> list[int]:
        twins = {text for chunk_id, text in pairs if chunk_id.startswith("twin")}
        return [
            i for i, (chunk_id, text) in enumerate(pairs) if text not in twins or chunk_id[0] == "t"
        ]

    fault = sound(tells=("stages",), step=one_of_each_text)
    for n in range(QUERIES):
        fault.labels[n] = Label(chunk_id=f"c{n}")
    for n in PLANTED:
        fault.chunks.insert(0, Chunk(chunk_id=f"twin{n}", text=text_of(n)))
    return fault


def lost_at_stage() -> Fault:
    lost = {text_of(n) for n in PLANTED}
    return sound(
        tells=("stages",),
        step=lambda pairs: [i for i, (_, text) in enumerate(pairs) if text not in lost],
    )


def stale() -> Fault:
    fault = sound(tells=("corpus",), without="stale")
    for n in PLANTED:
        text = f"{closer(n, 0)} {sentence(f'{n}a')} The fee is {{}} euros."
        fault.labels[n] = text.format(900 + n)
        changed(
            fault, n, text=text.format(900 + n) + "", metadata={"doc_id": f"d{n}", "version": 2025}
        )
        for i in range(K + 1):
            # The question's words once more, so that the old ones come first.
            old = Chunk(
                chunk_id=f"old{n}-{i}",
                text=text.format(100 + i).replace("fee", f"key{n}a"),
                metadata={"doc_id": f"d{n}", "version": 2018 + i},
            )
            fault.chunks.append(old)
    return fault


def merged() -> Fault:
    fault = sound()
    for n in PLANTED:
        changed(fault, n, text=f"{sentence(f'before{n}')} {text_of(n)} {sentence(f'after{n}')}")
    return fault


def neighbour_window() -> Fault:
    fault = sound()
    for n in PLANTED:
        parts = [sentence(f"{n}-{i}") for i in range(6)]
        parts[0] = f"{question_of(n).capitalize()} {parts[0]}"
        parts[5] = f"{question_of(n).capitalize()} {parts[5]}"
        windows = [" ".join(parts[i : i + 4]) for i in range(3)]
        fault.labels[n] = windows[1]
        for i, window in enumerate(windows):
            chunk = Chunk(chunk_id=f"w{n}-{i}", text=window, metadata={"doc_id": f"d{n}"})
            fault.chunks.append(chunk)
        changed(fault, n, text=sentence(f"elsewhere{n}"))
        added(
            fault,
            n,
            K,
            lambda i, n=n: f"Key{n}b {sentence(f'filler{n}{i}')} {sentence(i)}",
            f"d{n}",
        )
    return fault


def split() -> Fault:
    fault = sound()
    for n in PLANTED:
        first = f"{question_of(n).capitalize()} {sentence(f'{n}-1')}"
        second = f"And {question_of(n)} {sentence(f'{n}-2')}"
        fault.labels[n] = f"{first} {second}"
        changed(fault, n, text=first)
        added(fault, n, 1, lambda i, text=second: text, f"d{n}")
    return fault


def not_indexed() -> Fault:
    fault = sound(tells=("corpus",))
    for n in PLANTED:
        changed(fault, n, text=f"{words(9, f'gone{n}')}.")
    return fault


def filtered() -> Fault:
    fault = sound(tells=("retriever",), settings={"language": "en"})
    for n in range(QUERIES):
        changed(fault, n, metadata={"language": "lt" if n in PLANTED else "en"})
    return fault


def below_threshold() -> Fault:
    fault = sound(tells=("retriever",), settings={"threshold": 0.2})
    for n in PLANTED:
        fault.queries[n] = f"key{n}a " + " ".join(f"noise{n}x{i}" for i in range(12))
        added(fault, n, K, lambda i, n=n: f"{fault.queries[n]} {words(2, f'near{n}{i}')}")
    return fault


def approximate_search() -> Fault:
    return sound(tells=("retriever",), settings={"blind": True})


def model_mismatch() -> Fault:
    fault = sound(
        tells=("retriever", "corpus"),
        bag=Bag(skewed=[text_of(n) for n in PLANTED]),
        is_fact=False,
    )
    for n in PLANTED:
        added(fault, n, K, lambda i, n=n: closer(n, i))
    return fault


def nothing_returned() -> Fault:
    fault = sound(settings={"threshold": 0.05})
    for n in PLANTED:
        fault.queries[n] = f"klausimas{n} lietuviskai{n}"
    return fault


def crowded_out() -> Fault:
    fault = sound(tells=("retriever",))
    for n in PLANTED:
        added(fault, n, K + 2, lambda i, n=n: closer(n, 0))
    return fault


def below_cutoff() -> Fault:
    fault = sound(tells=("retriever",))
    for n in PLANTED:
        added(fault, n, K + 3, lambda i, n=n: closer(n, i))
    return fault


def found_by_other() -> Fault:
    fault = below_cutoff()
    fault.tells = ("others",)
    return fault


def wrong_chunk() -> Fault:
    fault = sound(tells=("corpus",))
    for n in PLANTED:
        added(fault, n, K + 3, lambda i, n=n: closer(n, i), f"d{n}")
    return fault


def truncated() -> Fault:
    fault = sound(tells=("tokens",), bag=Bag(reads=30), is_fact=False)
    for n in PLANTED:
        text = f"{words(40, f'long{n}').capitalize()}. {question_of(n).capitalize()} {sentence(n)}"
        fault.labels[n] = text
        changed(fault, n, text=text)
        added(fault, n, K, lambda i, n=n: closer(n, i))
    return fault


def label_doubtful() -> Fault:
    fault = sound(is_fact=False, without="label_doubtful")
    for n in PLANTED:
        key = f"{question_of(n).capitalize()} {sentence(f'key{n}')}"
        fault.labels[n] = f"{sentence(f'l{n}')} {sentence(f'm{n}')} {key} {sentence(f'o{n}')}"
        changed(fault, n, text=fault.labels[n])
        added(fault, n, K + 2, lambda i, n=n, key=key: f"{key} {words(2 + i, f'alt{n}-{i}')}.")
    return fault


FAULTS: dict[str, Callable[[], Fault]] = {
    make.__name__: make
    for make in (
        text_differs, id_differs, dropped_as_duplicate, lost_at_stage, stale, merged,
        neighbour_window, split, not_indexed, filtered, below_threshold, approximate_search,
        model_mismatch, nothing_returned, crowded_out, below_cutoff, found_by_other, wrong_chunk,
        truncated, label_doubtful,
    )
}  # fmt: skip


class Step(BaseNodePostprocessor):
    keep: Any

    def _postprocess_nodes(self, nodes, query_bundle=None):
        pairs = [(node.node_id, node.text) for node in nodes]
        return [nodes[index] for index in self.keep(pairs)]


def measured(fault: Fault, framework: str) -> tuple[Report, dict[str, Any]]:
    """The report of the index with the fault in it, and all the evidence that there is."""
    retriever, store = FRAMEWORKS[framework](fault.chunks, fault.bag, fault.settings)
    dataset = fault.dataset()
    evidence: dict[str, Any] = {"corpus": store, "retriever": retriever}
    if fault.step is None:
        report = evaluate_retriever(retriever, dataset, k=(1, K), progress=False)
    elif framework == "LangChain":
        keep = fault.step

        def step(documents: list[Document]) -> list[Document]:
            return [documents[i] for i in keep([(d.id or "", d.page_content) for d in documents])]

        with record_recall(dataset, k=(1, K)) as recorder:
            (retriever | step).batch([query.text for query in dataset])
        report = recorder.stages["final"]
        evidence["stages"] = recorder
    else:
        made = RetrieverRecallEvaluator(
            retriever=retriever, node_postprocessors=[Step(keep=fault.step)], k=[1, K]
        )
        whole = made.evaluate_dataset(dataset)
        evidence["stages"] = whole.stages
        report = replace(whole, stages={})
    other = {query.text: next(iter(query.relevant or ())).text or "" for query in dataset}
    evidence["others"] = [
        evaluate_retriever(
            lambda text: [other[text]], dataset, k=(1, K), progress=False, name="other"
        )
    ]
    evidence["token_counter"] = len_of_words
    evidence["token_limit"] = 30
    return report, evidence


def len_of_words(text: str) -> int:
    return len(text.split())


def told(fault: Fault, evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence that the cause needs."""
    names = {
        name
        for one in fault.tells
        for name in ({"tokens": ("token_counter", "token_limit")}.get(one, (one,)))
    }
    return {name: value for name, value in evidence.items() if name in names}
