"""What the handlers of both of LlamaIndex's observation systems do with a retrieval.

Spans and callback events tell of the same calls. Either handler names a call by the id of its
`retrieve` span, so one call that both tell of is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import BaseNode, NodeWithScore

from chunkrecall.adapters import to_chunks
from chunkrecall.llama_index.nodes import TextFrom, chunks_of_nodes, nodes_to_chunks
from chunkrecall.recording import Call, Recorder
from chunkrecall.records import Chunks

if TYPE_CHECKING:
    from collections.abc import Hashable

_DEEPEST = 16
_MOST_WRITTEN = 100

QUERY_ID_TAG = "chunkrecall.query_id"
"""The key of LlamaIndex's instrument tags that names the labelled query."""


@dataclass(slots=True, eq=False)
class _Open:
    """A retrieval that runs in this context."""

    watch: Watch
    call: Call
    query: object
    written: tuple[str, ...] = ()
    """What query engines inside it have answered."""

    def add_written(self, *texts: str) -> None:
        self.written = (*self.written, *texts)[-_MOST_WRITTEN:]


# A context variable and not the parents of spans: LlamaIndex hands both on alike, and this one
# costs nothing on the spans that are no retrievals.
_OPEN: ContextVar[tuple[_Open, ...]] = ContextVar("chunkrecall_llama_index_open", default=())
_LAST: ContextVar[tuple[Watch, str] | None] = ContextVar(
    "chunkrecall_llama_index_last", default=None
)


class Watch:
    """Hands what a handler is told to a recorder."""

    def __init__(self, recorder: Recorder, text_from: TextFrom = None) -> None:
        self.recorder = recorder
        self._text_from = text_from

    def start(self, key: Hashable, *, name: str, query: object, query_id: object = None) -> None:
        """A retriever was called; `query` is a text or a QueryBundle."""
        known = _OPEN.get()
        around = [one for one in known if one.watch is self and one.call.is_open] if known else ()
        call = self.recorder.start(
            key,
            name=name,
            query_text=_text_of(query),
            query_id=query_id,
            enclosing=around[-1].call if around else None,
            is_inner=True,
        )
        if call is None:
            return
        opened = _Open(self, call, query)
        if not known:
            _OPEN.set((opened,))
        else:
            others = [one for one in known if one.watch is not self]
            _OPEN.set((*others[-_DEEPEST:], *around[-_DEEPEST:], opened))

    def end(self, key: Hashable, nodes: object, *, answers_as: str | None = None) -> None:
        """A retriever returned; texts are copied now, since postprocessors edit nodes in place.

        Args:
            key: Identifies the retrieval.
            nodes: What it returned.
            answers_as: The template in which it wraps the answers of query engines inside it.

        Raises:
            TypeError: It returned no list of nodes.
        """
        opened = self._leave(key)
        if nodes is None or isinstance(nodes, (str, bytes)):
            raise TypeError(f"the retriever returned {nodes!r:.80}, not a list of nodes")
        chunks = self._chunks(nodes)
        if opened is not None and opened.written:
            chunks = self._flagged(chunks, opened, answers_as)
        query_id = self.recorder.end(key, chunks)
        if query_id is not None:
            _LAST.set((self, query_id))
        elif self._innermost() is None:
            _LAST.set(None)  # steps after an unlabelled retrieval belong to no labelled query

    def fail(self, key: Hashable, error: BaseException) -> bool:
        """A retriever raised, or was cancelled; False where the retrieval is not open."""
        self._leave(key)
        return self.recorder.fail(key, error)

    def step(self, name: str, before: object, after: object, query: object = None) -> None:
        """A postprocessor turned one list of nodes into another."""
        around = self._innermost()
        if around is not None:
            self.recorder.inner_step(around.call, name, self._chunks(after))
            return
        query_id = self._query_behind(before, query)
        if query_id is not None:
            self.recorder.step(query_id, name, self._chunks(after))

    def given(self, receiver: str, unseen: str | None, nodes: object, query: object) -> None:
        """A component was given nodes: what postprocessors without a span made of them.

        Native async postprocessors have none. New nodes, such as the numbered sources of citations,
        are no step.

        Args:
            receiver: The component's class.
            unseen: The postprocessors' classes, where they are known.
            nodes: What it was given.
            query: What it was asked.
        """
        if self._innermost() is not None or not isinstance(nodes, Sequence):
            return
        query_id = self._query_behind(nodes, query, may_be_emptied=unseen is not None)
        last = None if query_id is None else self.recorder.last_chunks(query_id)
        if query_id is None or last is None or last.chunk_ids is None:
            return
        ids = _ids(nodes)
        if ids != list(last.chunk_ids) and set(ids) <= set(last.chunk_ids):
            self.recorder.step(query_id, unseen or f"{receiver} input", self._chunks(nodes))

    def wrote(self, text: str) -> None:
        """A query engine answered; inside a retrieval its answer may come back as a node."""
        around = self._innermost()
        if around is not None:
            around.add_written(text)

    def _innermost(self) -> _Open | None:
        return next(
            (one for one in reversed(_OPEN.get()) if one.watch is self and one.call.is_open), None
        )

    def _leave(self, key: Hashable) -> _Open | None:
        known = _OPEN.get()
        for one in known:
            if one.watch is self and one.call.key == key:
                _OPEN.set(tuple([other for other in known if other is not one]))
                return one
        return None

    def _query_behind(
        self, nodes: object, query: object, *, may_be_emptied: bool = False
    ) -> str | None:
        """The labelled query whose last list these nodes came from."""
        if not isinstance(nodes, Sequence):
            return None
        last = _LAST.get()
        candidates = (
            self.recorder.bound_query(),
            last[1] if last is not None and last[0] is self else None,
            self.recorder.query_of_text(_text_of(query)),
        )
        for query_id in dict.fromkeys(candidates):
            found = None if query_id is None else self.recorder.last_chunks(query_id)
            if found is None:
                continue
            ids = set(found.chunk_ids or ())
            if not ids.isdisjoint(_ids(nodes)) or (not nodes and (may_be_emptied or not found)):
                return query_id
        return None

    def _chunks(self, nodes: object) -> Chunks:
        items = nodes
        if isinstance(nodes, Iterable) and not isinstance(nodes, (list, str, bytes, dict)):
            items = list(nodes)  # a router tells of a view of dict values
        if self._text_from is not None and isinstance(items, list):
            return nodes_to_chunks(items, text_from=self._text_from)
        chunks = chunks_of_nodes(items) if isinstance(items, list) else None
        return to_chunks(items) if chunks is None else chunks

    def _flagged(self, chunks: Chunks, opened: _Open, answers_as: str | None) -> Chunks:
        written = opened.written
        if answers_as is not None:
            asked = _text_of(opened.query)
            wrapped = [answers_as.format(query_str=asked, response=one) for one in written]
            written = (*written, *wrapped)
        at = [index for index, text in enumerate(chunks.texts) if text in written]
        if not at:
            return chunks
        around = self._innermost()
        if around is None:
            self.recorder.count(generated=len(at))
        else:  # it may hand them on
            around.add_written(*[chunks.texts[index] for index in at])
        metadatas = [dict(chunks.metadata_at(index)) for index in range(len(chunks))]
        for index in at:
            metadatas[index]["generated"] = True
        return Chunks(chunks.texts, chunks.chunk_ids, scores=chunks.scores, metadatas=metadatas)


def _text_of(query: object) -> object:
    return query if isinstance(query, str) else getattr(query, "query_str", None)


def _ids(nodes: Sequence[Any]) -> list[str | None]:
    return [
        node.node.node_id
        if isinstance(node, NodeWithScore)
        else node.node_id
        if isinstance(node, BaseNode)
        else None
        for node in nodes
    ]
