"""The adapter over LangChain's retrievers, Runnables and vector stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableBinding, RunnableLambda, RunnableSequence
from langchain_core.vectorstores import VectorStore

from chunkrecall.adapters import to_chunks
from chunkrecall.errors import UnsupportedRetrieverError
from chunkrecall.langchain.documents import TextFrom, chunks_of_documents, documents_to_chunks
from chunkrecall.langchain.probing import deeper, limits_of, list_chunks
from chunkrecall.records import Chunks
from chunkrecall.retrieval import describe_error

__all__ = ["LangChainAdapter", "adapt", "chunks_from", "list_chunks", "quiet"]

_ASYNC_ONLY = "Cannot invoke a coroutine function synchronously"


class LangChainAdapter:
    """Asks any LangChain retriever, LCEL chain that ends in documents, or vector store.

    Args:
        retriever: A BaseRetriever, a Runnable from a query text to documents, or a VectorStore,
            of which a retriever is made as deep as the largest cutoff.
        text_from: A metadata key, or a function of the Document, that gives the chunk's text where
            `page_content` does not hold it.
        tracing: Whether LangSmith tracing, if the environment asks for it, stays on while
            chunkrecall runs the retriever. Off by default: nothing leaves the machine.

    Raises:
        UnsupportedRetrieverError: The object is none of these.
    """

    def __init__(
        self, retriever: object, *, text_from: TextFrom = None, tracing: bool = False
    ) -> None:
        if isinstance(retriever, BaseLanguageModel):
            raise UnsupportedRetrieverError(
                f"{type(retriever).__name__} is a language model and retrieves nothing: pass the "
                "retriever that feeds it"
            )
        if not isinstance(retriever, (Runnable, VectorStore)):
            raise UnsupportedRetrieverError(
                f"LangChainAdapter takes a BaseRetriever, a Runnable or a VectorStore, got "
                f"{type(retriever).__name__}"
            )
        self._store = retriever if isinstance(retriever, VectorStore) else None
        self._retriever: Runnable[Any, Any] = (
            retriever.as_retriever() if isinstance(retriever, VectorStore) else retriever
        )
        self._text_from = text_from
        self.tracing = tracing
        self.name = getattr(retriever, "name", None) or type(retriever).__name__
        self.has_sync = not _is_async_only(self._retriever)
        self.has_async = _is_native_async(self._retriever)
        self.notes: tuple[str, ...] = ()
        self._made_depth: int | None = None

    def at_depth(self, depth: int | None) -> LangChainAdapter:
        """For a vector store, the adapter of its retriever with `k=depth`; else itself."""
        if self._store is None:
            return self
        made = LangChainAdapter(self._store, text_from=self._text_from, tracing=self.tracing)
        if depth is None:
            made.notes = (f"depth: {self.name}.as_retriever()'s own default, as no k was given",)
        else:
            made._retriever = self._store.as_retriever(search_kwargs={"k": depth})
            made._made_depth = depth
        return made

    def retrieve(self, query: str) -> Chunks:
        """The ranked chunks that `invoke(query)` returns."""
        return self._chunks(self._retriever.invoke(query))

    async def aretrieve(self, query: str) -> Chunks:
        """The ranked chunks that `ainvoke(query)` returns."""
        return self._chunks(await self._retriever.ainvoke(query))

    def describe(self) -> Mapping[str, Any]:
        """Class, and how deep it searches where the retriever says so."""
        settings = getattr(self._retriever, "search_kwargs", None)
        depth = settings.get("k") if isinstance(settings, Mapping) else None
        depth = getattr(self._retriever, "k", None) if depth is None else depth
        return {
            "framework": "langchain",
            "type": type(self._store or self._retriever).__name__,
            "depth": depth if isinstance(depth, int) else None,
            "made_depth": self._made_depth,
        }

    @property
    def limits(self) -> Mapping[str, str]:
        """The retriever's own "filter" and "threshold", as the user wrote them."""
        return limits_of(self._retriever)

    def probe(self, depth: int, *, without: Collection[str] = ()) -> LangChainAdapter | None:
        """The adapter of a copy that searches this deep, without some of the limits.

        None where the retriever has no depth that could be set.
        """
        if self._store is not None:
            return self.at_depth(depth)
        made = deeper(self._retriever, depth, without)
        if made is None:
            return None
        return LangChainAdapter(made, text_from=self._text_from, tracing=self.tracing)

    def is_wrong_way(self, error: Exception) -> bool:
        """Whether the retriever lacks this way of being called."""
        return isinstance(error, NotImplementedError) or (
            isinstance(error, TypeError) and _ASYNC_ONLY in describe_error(error)
        )

    def _chunks(self, value: object) -> Chunks:
        if self._text_from is not None and isinstance(value, (list, tuple)):
            return documents_to_chunks(value, text_from=self._text_from)
        chunks = chunks_of_documents(value) if isinstance(value, list) else None
        return to_chunks(value) if chunks is None else chunks


def adapt(retriever: object) -> LangChainAdapter | None:
    """The adapter of a LangChain object, None for any other object."""
    if isinstance(retriever, (Runnable, VectorStore, BaseLanguageModel)):
        return LangChainAdapter(retriever)
    return None


def chunks_from(value: object) -> Chunks | None:
    """The chunks of a list of Documents, None for any other value."""
    if isinstance(value, list) and value:
        return chunks_of_documents(value)
    return None


def quiet() -> AbstractContextManager[object]:
    """A context in which nothing is traced to LangSmith, whatever the environment says."""
    from langsmith import tracing_context  # langchain-core defers this import too

    return tracing_context(enabled=False)


def _is_async_only(runnable: object) -> bool:
    """A lambda made of a coroutine function alone cannot be invoked."""
    if isinstance(runnable, RunnableLambda):
        return not hasattr(runnable, "func")
    if isinstance(runnable, RunnableBinding):
        return _is_async_only(runnable.bound)
    if isinstance(runnable, RunnableSequence):
        return any(map(_is_async_only, runnable.steps))
    return False


def _is_native_async(part: object) -> bool:
    """Whether `ainvoke` awaits all the way down.

    LangChain's fallback for a part without async code is a call in asyncio's default executor, a
    handful of threads whatever concurrency was asked for; such a retriever runs better in ours.
    """
    if isinstance(part, RunnableLambda):
        return hasattr(part, "afunc")
    if isinstance(part, VectorStore):
        return _overrides(part, VectorStore, "asimilarity_search") and _is_native_async(
            part.embeddings
        )
    if isinstance(part, BaseRetriever) and not _overrides(
        part, BaseRetriever, "_aget_relevant_documents"
    ):
        return False
    if isinstance(part, Runnable) and not isinstance(part, BaseRetriever):
        if not _overrides(part, Runnable, "ainvoke"):
            return False
    elif part is not None and hasattr(part, "embed_query"):
        from langchain_core.embeddings import Embeddings

        return _overrides(part, Embeddings, "aembed_query")
    return all(map(_is_native_async, _parts(part)))


def _parts(runnable: object) -> Iterable[object]:
    """The retrievers, Runnables and vector stores inside a composite."""
    values = vars(runnable).values() if hasattr(runnable, "__dict__") else ()
    for value in values:
        inside = value if isinstance(value, (list, tuple)) else (value,)
        if isinstance(value, Mapping):
            inside = tuple(value.values())
        for part in inside:
            if isinstance(part, (Runnable, VectorStore)):
                yield part


def _overrides(part: object, base: type, method: str) -> bool:
    own = getattr(type(part), method, None)
    return own is not None and own is not getattr(base, method, None)
