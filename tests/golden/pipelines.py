"""The retrievers behind the reference values, as the data's README describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chunkrecall import Dataset, Label, Query

DEPTH = 100


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def by_text(folder: Path) -> Dataset:
    return Dataset(
        [
            Query(query_id=row["id"], text=row["query"], relevant=row["relevant_texts"])
            for row in rows(folder / "queries.jsonl")
        ],
        name=folder.name,
    )


def by_id(folder: Path) -> Dataset:
    return Dataset(
        [
            Query(
                query_id=row["id"],
                text=row["query"],
                relevant=[Label(chunk_id=chunk_id) for chunk_id in row["relevant_ids"]],
            )
            for row in rows(folder / "queries.jsonl")
        ],
        name=folder.name,
    )


def bigrams(text: str) -> list[str]:
    joined = "".join(text.split())
    return [joined[i : i + 2] for i in range(max(1, len(joined) - 1))]


def build(folder: Path, pipeline: str) -> Any:
    """The retriever named like `langchain/bm25` over the folder's corpus."""
    corpus = rows(folder / "corpus.jsonl")
    framework, kind = pipeline.split("/")
    return (_langchain if framework == "langchain" else _llama_index)(corpus, kind)


def _langchain(corpus: list[dict[str, Any]], kind: str) -> Any:
    from langchain_core.documents import Document
    from langchain_core.vectorstores import InMemoryVectorStore

    from chunkrecall.demo.pipelines import langchain_embedding, load_embed

    documents = [
        Document(page_content=row["text"], metadata=row["metadata"], id=row["id"]) for row in corpus
    ]
    if kind.startswith("bm25"):
        from langchain_community.retrievers import BM25Retriever

        preprocess: dict[str, Any] = {
            "bm25": {},
            "bm25_lower": {"preprocess_func": lambda text: text.lower().split()},
            "bm25_bigrams": {"preprocess_func": bigrams},
        }[kind]
        return BM25Retriever.from_documents(documents, k=DEPTH, **preprocess)
    embedding = langchain_embedding(load_embed())
    if kind == "faiss_wordllama":
        from langchain_community.vectorstores import FAISS

        store: Any = FAISS.from_documents(documents, embedding)
    else:
        store = InMemoryVectorStore(embedding)
        store.add_documents(documents)
    return store.as_retriever(search_kwargs={"k": DEPTH})


def _llama_index(corpus: list[dict[str, Any]], kind: str) -> Any:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    from chunkrecall.demo.pipelines import llama_index_embedding, load_embed

    nodes = [
        TextNode(
            id_=row["id"],
            text=row["text"],
            metadata=row["metadata"],
            excluded_embed_metadata_keys=list(row["metadata"]),
            excluded_llm_metadata_keys=list(row["metadata"]),
        )
        for row in corpus
    ]
    if kind.startswith("bm25"):
        from llama_index.retrievers.bm25 import BM25Retriever

        options: dict[str, Any] = (
            {"skip_stemming": True, "token_pattern": r"(?u)\w"} if kind == "bm25_chars" else {}
        )
        return BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=DEPTH, **options)
    index = VectorStoreIndex(nodes, embed_model=llama_index_embedding(load_embed()))
    return index.as_retriever(similarity_top_k=DEPTH)
