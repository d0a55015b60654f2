"""Finds the adapter and the converter of an object, without importing any framework.

A framework registers a module under the entry-point group `chunkrecall.adapters`, named after the
framework's root module. That module gives three things:

    adapt(retriever) -> Adapter | None       None: not an object of this framework
    chunks_from(value) -> Chunks | None      the chunks of what one of its retrievers returned
    quiet() -> context manager               in it, the framework traces nothing to anyone

It may also give `list_chunks(value) -> Chunks | None`, all chunks of one of its stores, and its
adapters may have `limits` and `probe(depth, *, without=())`, which diagnosis asks deeper with.

An object of a framework can only exist where that framework is imported, so only entry points
whose root module is in `sys.modules` are loaded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from numbers import Real
from typing import Any, Protocol

from pydantic import BaseModel

from chunkrecall.errors import UnsupportedRetrieverError
from chunkrecall.records import Chunk, Chunks

CONTAINER_KEYS = ("documents", "context", "source_documents", "output", "chunks", "retrieved")
_TEXT_KEYS = ("page_content", "text", "content")
_ID_KEYS = ("chunk_id", "id", "id_", "node_id")


class AwaitableReturnedError(TypeError):
    """A function that is not declared with `async def` returned an awaitable."""


class Adapter(Protocol):
    """One retriever, asked the same way whatever it is."""

    @property
    def name(self) -> str:
        """What the run is called by default."""
        ...

    @property
    def has_sync(self) -> bool:
        """Whether `retrieve` works at all."""
        ...

    @property
    def has_async(self) -> bool:
        """Whether `aretrieve` is native: it neither blocks the loop nor borrows a thread pool."""
        ...

    @property
    def tracing(self) -> bool:
        """Whether the caller asked for the framework's own tracing."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores should know of how the retriever was made."""
        ...

    def at_depth(self, depth: int | None) -> Adapter:
        """An adapter that asks for this many chunks, where we make the retriever; else itself."""
        ...

    def retrieve(self, query: str) -> Chunks:
        """The ranked chunks for one query text."""
        ...

    async def aretrieve(self, query: str) -> Chunks:
        """The same, awaited on the caller's loop."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Plain JSON values that tell the retriever apart: never keys, addresses or texts.

        "made_depth" is the depth that `at_depth` gave to a retriever of its own making.
        """
        ...

    def is_wrong_way(self, error: Exception) -> bool:
        """Whether the error says that this way of calling, sync or async, is not implemented."""
        ...


class AdapterModule(Protocol):
    """What an entry point of the group `chunkrecall.adapters` gives."""

    def adapt(self, retriever: object) -> Adapter | None:
        """The adapter of one of the framework's objects, None for any other object."""
        ...

    def chunks_from(self, value: object) -> Chunks | None:
        """The chunks of a value that holds the framework's objects, None for any other value."""
        ...

    def quiet(self) -> AbstractContextManager[object]:
        """A context in which the framework traces nothing to anyone."""
        ...


def loaded_frameworks() -> list[AdapterModule]:
    """The adapter modules of the frameworks that this process has imported so far."""
    return [_load(point) for point in _adapter_points() if point.name in sys.modules]


@cache
def _adapter_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group="chunkrecall.adapters"))


@cache
def _load(point: EntryPoint) -> AdapterModule:
    module: AdapterModule = point.load()
    return module


def adapt(retriever: object) -> Adapter:
    """The adapter through which a retriever is asked.

    Args:
        retriever: A LangChain BaseRetriever, Runnable or VectorStore; a LlamaIndex BaseRetriever,
            index or query engine; a function from a query text to texts, Documents, nodes or
            Chunks, sync or async; or an adapter, which is returned as it is.

    Raises:
        UnsupportedRetrieverError: It is none of these.
    """
    if isinstance(retriever, type):
        raise UnsupportedRetrieverError(
            f"got the class {retriever.__name__}: pass an instance of it"
        )
    # Of its class: a mock has any attribute one asks it for.
    if all(hasattr(type(retriever), name) for name in ("at_depth", "aretrieve", "is_wrong_way")):
        return retriever  # type: ignore[return-value]  # it has the adapter's methods
    for framework in loaded_frameworks():
        adapter = framework.adapt(retriever)
        if adapter is not None:
            return adapter
    if callable(retriever):
        return FunctionAdapter(retriever)
    hint = next((f".{n}" for n in ("retrieve", "invoke", "search") if hasattr(retriever, n)), None)
    raise UnsupportedRetrieverError(
        f"cannot ask {type(retriever).__name__} for chunks: pass a LangChain or LlamaIndex "
        "retriever, or a function that takes the query text and returns chunks"
        + (f", for example lambda text: retriever{hint}(text)" if hint else "")
    )


@dataclass(frozen=True, slots=True)
class FunctionAdapter:
    """Adapter of a plain function from a query text to chunks, sync or async."""

    function: Callable[[str], Any]
    tracing: bool = False
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def has_async(self) -> bool:
        """Whether the function is declared with `async def`."""
        call = getattr(self.function, "__call__", None)  # noqa: B004 - an object's own async __call__
        return any(
            inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
            for function in (self.function, call)
        )

    @property
    def has_sync(self) -> bool:
        """Whether the function is a plain one."""
        return not self.has_async

    def at_depth(self, depth: int | None) -> FunctionAdapter:  # noqa: ARG002 - the protocol's name
        """The adapter itself: how deep a function searches is its own affair."""
        return self

    def retrieve(self, query: str) -> Chunks:
        """The chunks the function returns."""
        return to_chunks(self.function(query))

    async def aretrieve(self, query: str) -> Chunks:
        """The chunks the function's coroutine or async generator gives."""
        value = self.function(query)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, AsyncIterator):
            value = [item async for item in value]
        return to_chunks(value)

    def describe(self) -> Mapping[str, Any]:
        """The function's module and name."""
        return {
            "type": "function",
            "module": getattr(self.function, "__module__", None),
            "name": self.name,
        }

    def is_wrong_way(self, error: Exception) -> bool:
        """Whether a plain function gave an awaitable: `lambda text: store.asearch(text)`."""
        return isinstance(error, AwaitableReturnedError)


def to_chunks(value: object) -> Chunks:
    """The chunks of whatever a retriever returned, in its order.

    Takes lists, tuples and generators of texts, Chunks, dicts with `page_content`, `text` or
    `content`, serialised Documents, and (item, score) pairs; one container around them
    (`{"documents": […]}`); and the objects of every loaded framework. Texts are copied at once.

    Raises:
        TypeError: None, a bare string, or an item of unknown type, with its index.
    """
    if isinstance(value, Chunks):
        return value
    if not isinstance(value, (list, tuple, str, bytes, Mapping, Iterator)):
        chunks = _framework_chunks(value)
        if chunks is not None:
            return chunks
    if isinstance(value, Mapping):
        return to_chunks(_contained(value))
    items = value if isinstance(value, list) else list(items_of(value))
    if all(type(item) is str for item in items):
        return Chunks([str(item) for item in items])
    chunks = _framework_chunks(items)
    if chunks is not None:
        return chunks
    return Chunks.of([to_chunk(item, index) for index, item in enumerate(items)])


def to_chunk(item: object, index: int) -> Chunk:
    """The chunk of one item of a ranked list.

    Raises:
        TypeError: The item's type is unknown; names it and the index.
    """
    if isinstance(item, Chunk):
        return item
    if isinstance(item, str):
        return Chunk(text=item)
    if isinstance(item, tuple) and len(item) == 2 and _is_score(item[1]):
        chunk = to_chunk(item[0], index)
        score = chunk.score if item[1] is None else float(item[1])
        return Chunk(text=chunk.text, chunk_id=chunk.chunk_id, score=score, metadata=chunk.metadata)
    if isinstance(item, Mapping):
        return _chunk_of_dict(item, index)
    chunks = _framework_chunks([item])
    if chunks is not None:
        return chunks[0]
    raise _unknown_item(item, index)


def pair_score(pair: tuple[object, object], index: int) -> float | None:
    """The score in a (chunk, score) pair.

    Raises:
        TypeError: It is no number; names the pair's types and the index.
    """
    score = pair[1]
    if not _is_score(score):
        raise _unknown_item(pair, index)
    return None if score is None else float(score)  # type: ignore[arg-type]  # a Real


def check_texts(texts: Sequence[object], kind: str) -> None:
    """Refuse chunk texts that are no strings, wherever a framework's object had them.

    Raises:
        TypeError: One is no string; names its object by kind and index.
    """
    if set(map(type, texts)) <= {str}:
        return
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"the text of {kind} {index} is a {type(text).__name__}, not a string")


def listed_chunks(value: object) -> Chunks | None:
    """All chunks that a store of a loaded framework holds; None for any other object.

    Raises:
        TypeError: A store that cannot be listed.
    """
    for framework in loaded_frameworks():
        lister = getattr(framework, "list_chunks", None)
        chunks: Chunks | None = None if lister is None else lister(value)
        if chunks is not None:
            return chunks
    return None


def _unknown_item(item: object, index: int) -> TypeError:
    kind = f"a {type(item).__name__}"
    if isinstance(item, tuple):
        kind += f" of {', '.join(type(part).__name__ for part in item) or 'nothing'}"
    return TypeError(
        f"item {index} of the returned list is {kind}, which holds no chunk text that chunkrecall "
        "knows — return texts, Documents, nodes or Chunks, or (chunk, score) pairs of them"
    )


def _framework_chunks(value: object) -> Chunks | None:
    for framework in loaded_frameworks():
        chunks = framework.chunks_from(value)
        if chunks is not None:
            return chunks
    return None


def _chunk_of_dict(item: Mapping[Any, Any], index: int) -> Chunk:
    fields = item
    if item.get("type") == "constructor" and isinstance(item.get("kwargs"), Mapping):
        fields = item["kwargs"]  # LangChain's dumpd form, read as data
    elif isinstance(item.get("node"), Mapping):
        fields = {"score": item.get("score"), **item["node"]}  # LlamaIndex's NodeWithScore.to_dict
    text_key = next((key for key in _TEXT_KEYS if isinstance(fields.get(key), str)), None)
    if text_key is None:
        raise TypeError(
            f"item {index} of the returned list is a dict without a text under "
            f"{', '.join(map(repr, _TEXT_KEYS))}; it has {sorted(map(str, fields))}"
        )
    chunk_id = next(
        (fields[key] for key in _ID_KEYS if isinstance(fields.get(key), str) and fields[key]), None
    )
    score = fields.get("score")
    metadata = fields.get("metadata")
    return Chunk(
        text=fields[text_key],
        chunk_id=chunk_id,
        score=float(score) if score is not None and _is_score(score) else None,
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
    )


def container_key(value: Mapping[Any, Any]) -> str | None:
    """The key under which a dict holds the chunks; None where it has none of the usual ones.

    A list goes before a dict, and a dict before anything else: a chain's answer or prompt may stand
    under a usual key too (`{"context": "the prompt", "source_documents": […]}`).
    """
    present = [key for key in CONTAINER_KEYS if value.get(key) is not None]
    for kinds in ((list, tuple, Chunks, Iterator), Mapping):
        for key in present:
            if isinstance(value[key], kinds):
                return key
    return next((key for key in (*present, *CONTAINER_KEYS) if key in value), None)


def _contained(value: Mapping[Any, Any]) -> object:
    key = container_key(value)
    if key is not None:
        return value[key]
    raise TypeError(
        f"the retriever returned a dict with the keys {sorted(map(str, value))}; expected a list "
        f"of chunks, or a dict that holds one under {', '.join(map(repr, CONTAINER_KEYS))}"
    )


def items_of(value: object) -> Iterator[object]:
    """The items of a ranked list, of whatever kind the list is.

    Raises:
        TypeError: It is no list: None, a bare string or Document, a mapping, a set, a table, an
            awaitable.
    """
    if value is None:
        raise TypeError("the retriever returned None; it must return a list, empty if need be")
    if isinstance(value, Awaitable):
        close = getattr(value, "close", None)
        if close is not None:
            close()
        raise AwaitableReturnedError("the retriever returned an awaitable, not chunks")
    is_one = isinstance(value, (str, bytes, Mapping)) or _is_record(value)
    if is_one or not isinstance(value, Iterable):
        raise TypeError(
            f"the retriever returned a bare {type(value).__name__}; it must return a list of "
            "texts, Documents, nodes or Chunks, even where there is only one"
        )
    if hasattr(value, "columns"):
        raise TypeError(
            f"the retriever returned a {type(value).__name__}, a table; return the column that "
            "holds the chunk texts, as a list"
        )
    if isinstance(value, (set, frozenset)):
        raise TypeError("the retriever returned a set, which has no order; return a ranked list")
    return iter(value)


def _is_record(value: object) -> bool:
    """Whether going through the value would give its fields: one Document, node or message."""
    return isinstance(value, BaseModel) and type(value).__iter__ is BaseModel.__iter__


def _is_score(value: object) -> bool:
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))
