"""The adapter over LlamaIndex's retrievers, indexes and query engines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.indices.base import BaseIndex
from llama_index.core.schema import QueryBundle

from chunkrecall.adapters import to_chunks
from chunkrecall.errors import UnsupportedRetrieverError
from chunkrecall.llama_index.muting import muted
from chunkrecall.llama_index.nodes import TextFrom, chunks_of_nodes, nodes_to_chunks
from chunkrecall.llama_index.probing import deeper, limits_of, list_chunks
from chunkrecall.records import Chunks

__all__ = ["LlamaIndexAdapter", "adapt", "chunks_from", "list_chunks", "quiet"]


class LlamaIndexAdapter:
    """Asks any LlamaIndex retriever, index or query engine.

    A query engine is asked through its `retrieve`, postprocessors included, and never for an
    answer. A query transform inside that (HyDE) asks its own language model; the run says so.

    Args:
        retriever: A BaseRetriever, a BaseQueryEngine that can retrieve, or an index, of which a
            retriever is made as deep as the largest cutoff.
        text_from: A metadata key, or a function of the node, that gives the chunk's text where the
            content does not hold it, such as "original_text" of a sentence window.
        tracing: Whether the handlers attached to LlamaIndex's dispatchers see what chunkrecall
            retrieves. Off by default: nothing leaves the machine.

    Raises:
        UnsupportedRetrieverError: The object cannot be asked for nodes.
    """

    def __init__(
        self, retriever: object, *, text_from: TextFrom = None, tracing: bool = False
    ) -> None:
        self._index: BaseIndex[Any] | None = None
        self._text_from = text_from
        self.tracing = tracing
        self.name = type(retriever).__name__
        self.notes: tuple[str, ...] = ()
        self._made_depth: int | None = None
        if isinstance(retriever, BaseIndex):
            self._index = retriever
            self._set_retriever(retriever.as_retriever())
        elif isinstance(retriever, BaseRetriever) or (
            isinstance(retriever, BaseQueryEngine)
            and _overrides(retriever, BaseQueryEngine, "retrieve")
        ):
            self._set_retriever(retriever)
            self.notes = _transform_notes(retriever)
        else:
            raise UnsupportedRetrieverError(
                f"{type(retriever).__name__} has no retrieve() that gives nodes without asking a "
                "language model: run it inside `with chunkrecall.llama_index.record_recall(dataset)"
                ":`, which scores what its retrievers return, or pass the retriever inside it"
            )

    def _set_retriever(self, retriever: BaseRetriever | BaseQueryEngine) -> None:
        self._retriever = retriever
        self._is_engine = isinstance(retriever, BaseQueryEngine)
        # Core's default `_aretrieve` calls the sync body on the loop; engines have no `aretrieve`.
        self.has_async = isinstance(retriever, BaseRetriever) and _is_native_async(retriever)
        self.has_sync = True

    def at_depth(self, depth: int | None) -> LlamaIndexAdapter:
        """For an index, the adapter of its retriever with `similarity_top_k=depth`; else itself."""
        if self._index is None:
            return self
        made = LlamaIndexAdapter(self._index, text_from=self._text_from, tracing=self.tracing)
        if depth is None:
            made.notes = (f"depth: {self.name}.as_retriever()'s own default, as no k was given",)
            return made
        try:
            made._set_retriever(self._index.as_retriever(similarity_top_k=depth))
            made._made_depth = depth
        except (TypeError, ValueError):  # an index kind without that option
            made.notes = (
                f"depth: {self.name}.as_retriever() takes no similarity_top_k and kept its own",
            )
        return made

    def retrieve(self, query: str) -> Chunks:
        """The ranked chunks that `retrieve` returns."""
        return self.chunks(self.nodes(query))

    async def aretrieve(self, query: str) -> Chunks:
        """The ranked chunks that `aretrieve` returns."""
        return self.chunks(await self.anodes(query))

    def nodes(self, query: str) -> object:
        """What `retrieve` returns, as it is."""
        if self._is_engine:
            return self._retriever.retrieve(QueryBundle(query))
        return self._retriever.retrieve(query)  # type: ignore[arg-type]  # str or bundle

    async def anodes(self, query: str) -> object:
        """What `aretrieve` returns, as it is."""
        if not isinstance(self._retriever, BaseRetriever):
            raise NotImplementedError("query engines retrieve synchronously")
        return await self._retriever.aretrieve(query)

    def describe(self) -> Mapping[str, Any]:
        """Class, and how deep it searches where the retriever says so."""
        depth = getattr(self._retriever, "similarity_top_k", None)
        return {
            "framework": "llama-index",
            "type": type(self._index or self._retriever).__name__,
            "depth": depth if isinstance(depth, int) else None,
            "made_depth": self._made_depth,
        }

    @property
    def limits(self) -> Mapping[str, str]:
        """The retriever's own "filter" and "threshold", as the user wrote them."""
        return limits_of(self._retriever)

    def probe(self, depth: int, *, without: Collection[str] = ()) -> LlamaIndexAdapter | None:
        """The adapter of a copy that searches this deep, without some of the limits.

        None where the retriever has no depth that could be set.
        """
        if self._index is not None:
            return self.at_depth(depth)
        made = deeper(self._retriever, depth, without)
        if made is None:
            return None
        return LlamaIndexAdapter(made, text_from=self._text_from, tracing=self.tracing)

    def is_wrong_way(self, error: Exception) -> bool:
        """Whether the retriever lacks this way of being called."""
        return isinstance(error, NotImplementedError)

    def chunks(self, value: object) -> Chunks:
        """The chunks of what the retriever returned."""
        if self._text_from is not None and isinstance(value, (list, tuple)):
            return nodes_to_chunks(value, text_from=self._text_from)
        chunks = chunks_of_nodes(value) if isinstance(value, list) else None
        return to_chunks(value) if chunks is None else chunks


def adapt(retriever: object) -> LlamaIndexAdapter | None:
    """The adapter of a LlamaIndex object, None for any other object.

    Raises:
        UnsupportedRetrieverError: A LlamaIndex object that answers but does not retrieve.
    """
    if isinstance(retriever, (BaseRetriever, BaseIndex, BaseQueryEngine)):
        return LlamaIndexAdapter(retriever)
    if type(retriever).__module__.startswith("llama_index.") and not callable(retriever):
        return LlamaIndexAdapter(retriever)
    return None


def chunks_from(value: object) -> Chunks | None:
    """The chunks of a list of nodes or of a response's source nodes, None for any other value."""
    nodes = value if isinstance(value, list) else getattr(value, "source_nodes", None)
    if isinstance(nodes, list) and (nodes or nodes is not value):
        return chunks_of_nodes(nodes)
    return None


def quiet() -> AbstractContextManager[object]:
    """A context in which no handler of LlamaIndex's dispatchers sees what happens."""
    return muted()


def _transform_notes(retriever: object) -> tuple[str, ...]:
    """That retrieving asks a language model, where a query transform has one."""
    transform = getattr(retriever, "_query_transform", None)
    if not isinstance(getattr(transform, "_llm", None), BaseLLM):
        return ()
    note = (
        f"{type(retriever).__name__} asked a language model for every query: its "
        f"{type(transform).__name__} rewrites the query with one"
    )
    return (note,)


def _is_native_async(part: object) -> bool:
    """Whether `aretrieve` awaits all the way down, as far as the classes tell."""
    if isinstance(part, BaseRetriever) and not _overrides(part, BaseRetriever, "_aretrieve"):
        return False
    if isinstance(part, BaseEmbedding):
        return _overrides(part, BaseEmbedding, "_aget_query_embedding")
    return all(map(_is_native_async, _parts(part)))


def _parts(retriever: object) -> Iterable[object]:
    """The retrievers and embedding models inside a retriever."""
    for value in vars(retriever).values() if hasattr(retriever, "__dict__") else ():
        inside = value if isinstance(value, (list, tuple)) else (value,)
        if isinstance(value, Mapping):
            inside = tuple(value.values())
        for part in inside:
            if isinstance(part, (BaseRetriever, BaseEmbedding)):
                yield part


def _overrides(part: object, base: type, method: str) -> bool:
    return getattr(type(part), method) is not getattr(base, method)
