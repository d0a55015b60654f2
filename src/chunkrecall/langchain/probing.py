"""Copies of a LangChain retriever that search deeper or without limits, and lists of its chunks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.stores import BaseStore
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from chunkrecall.langchain.documents import chunks_of_documents
from chunkrecall.records import Chunk, Chunks

# What the integrations call the filter that goes to the store.
_FILTERS = ("filter", "pre_filter", "where", "where_document", "expr", "where_filter")
_THRESHOLD = "similarity_score_threshold"


def deeper(retriever: object, depth: int, without: Collection[str]) -> Runnable[str, Any] | None:
    """A copy that asks for `depth` chunks; None for a retriever that has no such setting.

    The order of maximal marginal relevance depends on the depth, so it has no copy either.

    Args:
        retriever: Left as it is.
        depth: How many chunks to ask for.
        without: Which limits to lift, "filter" and "threshold".
    """
    if isinstance(retriever, VectorStoreRetriever):
        if retriever.search_type == "mmr":
            return None
        settings = {**retriever.search_kwargs, "k": depth}
        search_type = retriever.search_type
        if "filter" in without:
            settings = {key: value for key, value in settings.items() if key not in _FILTERS}
        if "threshold" in without:
            settings.pop("score_threshold", None)
            search_type = "similarity" if search_type == _THRESHOLD else search_type
        if type(retriever) is VectorStoreRetriever and search_type == "similarity":
            store = retriever.vectorstore
            if _overrides(store, "similarity_search_with_score"):  # the same search, with scores
                return RunnableLambda(
                    lambda query: store.similarity_search_with_score(query, **settings)
                )
        return retriever.model_copy(update={"search_kwargs": settings, "search_type": search_type})
    if isinstance(retriever, BaseRetriever) and isinstance(getattr(retriever, "k", None), int):
        return retriever.model_copy(update={"k": depth})
    return None


def limits_of(retriever: object) -> Mapping[str, str]:
    """The "filter" and the "threshold" of a retriever, as the user wrote them."""
    settings = getattr(retriever, "search_kwargs", None)
    if not isinstance(settings, Mapping):
        return {}
    found = {}
    for key in _FILTERS:
        if settings.get(key) is not None:
            found["filter"] = f"search_kwargs[{key!r}]={_shown(settings[key])}"
            break
    if settings.get("score_threshold") is not None:
        found["threshold"] = f"search_kwargs['score_threshold']={settings['score_threshold']!r:.80}"
    return found


def list_chunks(value: object) -> Chunks | None:
    """All chunks in a vector store, a docstore, or the retriever over one; None for other objects.

    Raises:
        TypeError: A store of LangChain's that cannot be listed.
    """
    if isinstance(value, VectorStoreRetriever):
        return list_chunks(value.vectorstore)
    if isinstance(value, BaseRetriever):
        documents = getattr(value, "docs", None)
        return chunks_of_documents(documents) if isinstance(documents, list) else None
    if isinstance(value, BaseStore):
        found = value.mget(list(value.yield_keys()))
        return _of_documents([one for one in found if isinstance(one, Document)])
    if not isinstance(value, VectorStore):
        contents = getattr(value, "_dict", None)  # langchain-community's InMemoryDocstore
        if isinstance(contents, Mapping) and type(value).__module__.startswith("langchain"):
            return _of_documents(_with_ids(contents))
        return None
    return _of_store(value)


def _of_store(store: VectorStore) -> Chunks:
    contents: Any = getattr(store, "store", None)  # InMemoryVectorStore
    if isinstance(contents, Mapping):
        rows = [row for row in contents.values() if isinstance(row, Mapping) and "text" in row]
        return Chunks.of(
            [
                Chunk(text=row["text"], chunk_id=row.get("id"), metadata=row.get("metadata") or {})
                for row in rows
            ]
        )
    inside = getattr(getattr(store, "docstore", None), "_dict", None)  # FAISS
    if isinstance(inside, Mapping):
        return _of_documents(_with_ids(inside))
    get = getattr(store, "get", None)  # Chroma
    if callable(get):
        got = get(include=["documents", "metadatas"])
        if isinstance(got, Mapping) and isinstance(got.get("documents"), list):
            columns = zip(got["ids"], got["documents"], got["metadatas"], strict=True)
            return Chunks.of(
                [Chunk(text=text, chunk_id=one, metadata=meta or {}) for one, text, meta in columns]
            )
    raise TypeError(
        f"{type(store).__name__} has no way to list its chunks that chunkrecall knows: pass the "
        "Documents that you added to it"
    )


def _overrides(store: VectorStore, method: str) -> bool:
    return getattr(type(store), method) is not getattr(VectorStore, method)


def _with_ids(contents: Mapping[Any, Any]) -> list[Document]:
    return [
        document if document.id else document.model_copy(update={"id": str(key)})
        for key, document in contents.items()
        if isinstance(document, Document)
    ]


def _of_documents(documents: list[Document]) -> Chunks:
    return chunks_of_documents(documents) or Chunks(())


def _shown(value: object) -> str:
    return getattr(value, "__name__", "a function") if callable(value) else f"{value!r:.80}"
