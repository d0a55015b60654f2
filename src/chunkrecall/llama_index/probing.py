"""Copies of a LlamaIndex retriever that search deeper or without limits, and lists of chunks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.base import BaseIndex
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.storage import StorageContext
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from chunkrecall.llama_index.nodes import chunks_of_nodes
from chunkrecall.records import Chunks

_DEPTH = "similarity_top_k"


def deeper(retriever: Any, depth: int, without: Collection[str]) -> Any:
    """A copy that asks for `depth` nodes; None for a retriever that has no such setting.

    Args:
        retriever: A retriever, or a query engine over one; left as it is.
        depth: How many nodes to ask for.
        without: Which limits to lift, "filter" and "threshold".
    """
    if isinstance(retriever, BaseQueryEngine):
        inner = getattr(retriever, "_retriever", None)
        made = None if inner is None else deeper(inner, depth, without)
        if made is None:
            return None
        engine: Any = copy(retriever)
        engine._retriever = made
        if "threshold" in without:
            engine._node_postprocessors = [
                one for one in _postprocessors(retriever) if not _is_threshold(one)
            ]
        return engine
    if not isinstance(retriever, BaseRetriever) or not isinstance(
        getattr(retriever, _DEPTH, None), int
    ):
        return None
    made = copy(retriever)
    listed = getattr(retriever, "corpus", None)  # BM25, which refuses more than it has
    setattr(made, _DEPTH, min(depth, len(listed)) if isinstance(listed, list) else depth)
    if "filter" in without:
        for name in ("_filters", "_node_ids", "_doc_ids", "corpus_weight_mask"):
            if getattr(made, name, None) is not None:
                setattr(made, name, None)
    return made


def limits_of(retriever: Any) -> Mapping[str, str]:
    """The "filter" and the "threshold" of a retriever or query engine, as the user wrote them."""
    found = {}
    for one in _postprocessors(retriever):
        if _is_threshold(one):
            found["threshold"] = (
                f"SimilarityPostprocessor(similarity_cutoff={one.similarity_cutoff!r})"
            )
    inner = getattr(retriever, "_retriever", retriever)
    for name in ("_filters", "_doc_ids", "_node_ids", "corpus_weight_mask"):
        value = getattr(inner, name, None)
        if value is not None and not (name == "_node_ids" and _is_whole(inner, value)):
            found["filter"] = f"{name.lstrip('_')}={_shown(value)}"
            break
    return found


def list_chunks(value: object) -> Chunks | None:
    """All nodes in an index, a docstore, a vector store or a BM25 retriever; None for others.

    Raises:
        TypeError: A vector store that keeps no texts.
    """
    if isinstance(value, BaseIndex):
        return _of_index(value)
    if isinstance(value, StorageContext):
        return list_chunks(value.docstore)
    if isinstance(value, BaseDocumentStore):
        return chunks_of_nodes(list(value.docs.values())) or Chunks(())
    if isinstance(value, BasePydanticVectorStore):
        return _of_store(value)
    if isinstance(value, BaseRetriever):
        index = getattr(value, "_index", None)
        if isinstance(index, BaseIndex):
            return _of_index(index)
        rows = getattr(value, "corpus", None)
        if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
            return chunks_of_nodes([metadata_dict_to_node(dict(row)) for row in rows])
    return None


def _of_index(index: BaseIndex[Any]) -> Chunks:
    documents = index.docstore.docs
    if documents:
        return chunks_of_nodes(list(documents.values())) or Chunks(())
    store = getattr(index, "vector_store", None)  # a store that holds the texts itself
    return Chunks(()) if store is None else _of_store(store)


def _of_store(store: BasePydanticVectorStore) -> Chunks:
    nodes = getattr(store, "nodes", None)
    if store.stores_text or isinstance(nodes, dict):
        try:
            listed = list(nodes.values()) if isinstance(nodes, dict) else store.get_nodes()
        except (NotImplementedError, TypeError, ValueError):
            listed = []
        chunks = chunks_of_nodes(listed) if listed else None
        if chunks is not None:
            return chunks
    raise TypeError(
        f"{type(store).__name__} cannot list the texts of its nodes: pass the index, its docstore "
        "or the nodes"
    )


def _postprocessors(retriever: Any) -> list[Any]:
    return list(getattr(retriever, "_node_postprocessors", None) or ())


def _is_whole(retriever: Any, node_ids: Any) -> bool:
    """Whether these are all nodes of the index: its own retriever is made with them."""
    nodes = getattr(
        getattr(getattr(retriever, "_index", None), "index_struct", None), "nodes_dict", {}
    )
    return set(nodes.values()) <= set(node_ids)


def _is_threshold(postprocessor: object) -> bool:
    return isinstance(postprocessor, SimilarityPostprocessor)


def _shown(value: Any) -> str:
    filters = getattr(value, "filters", None)
    if filters is not None:
        parts = [
            f"{getattr(one, 'key', '?')} {getattr(getattr(one, 'operator', None), 'value', '')} "
            f"{getattr(one, 'value', '?')!r}"
            for one in filters
        ]
        return f"{', '.join(parts):.80}"
    return f"{value!r:.80}"
