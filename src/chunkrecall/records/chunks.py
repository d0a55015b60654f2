"""What was found: chunks, ranked lists of them, and all the lists of one retriever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, overload

from chunkrecall.records.spans import Span, document_in, span_in

NO_METADATA: Mapping[str, Any] = MappingProxyType({})
Column: TypeAlias = "Sequence[Any] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved passage."""

    text: str
    """The chunk's own text, without metadata; empty when it has none (an image)."""
    chunk_id: str | None = None
    score: float | None = None
    """As the retriever gave it; kept, never used to sort."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Chunk: text must be a string, got {type(self.text).__name__}")
        if self.chunk_id is not None and not isinstance(self.chunk_id, str):
            raise TypeError(f"Chunk: chunk_id must be a string, got {type(self.chunk_id).__name__}")

    @property
    def doc_id(self) -> str | None:
        """The document it comes from: metadata "doc_id", else "ref_doc_id", else "source"."""
        return document_in(self.metadata)

    @property
    def span(self) -> Span | None:
        """Where in its document it stands; None where the metadata carry no offsets.

        Read are "start_index" (LangChain's `add_start_index=True`) and "start_char_idx" with
        "end_char_idx" (LlamaIndex), together with a document.
        """
        return span_in(self.metadata, len(self.text))


class Chunks(Sequence[Chunk]):
    """A ranked list of chunks, kept as columns; its `Chunk`s are made when somebody looks.

    Making ten objects a query costs more than retrieving from memory and scoring do together.
    """

    __slots__ = ("chunk_ids", "metadatas", "scores", "texts")

    def __init__(
        self,
        texts: Sequence[str],
        chunk_ids: Column = None,
        *,
        scores: Column = None,
        metadatas: Column = None,
    ) -> None:
        self.texts = texts
        self.chunk_ids = chunk_ids
        """A column is None where no chunk has a value."""
        self.scores = scores
        self.metadatas = metadatas

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Chunks:
        """The columns of ready-made chunks."""
        if isinstance(chunks, Chunks):
            return chunks
        if isinstance(chunks, (str, bytes, Mapping)):
            raise TypeError(f"chunks must be a list of Chunk, got a bare {type(chunks).__name__}")
        listed = list(chunks)
        for index, chunk in enumerate(listed):
            if not isinstance(chunk, Chunk):
                raise TypeError(f"chunks[{index}] must be a Chunk, got {type(chunk).__name__}")
        return cls(
            [chunk.text for chunk in listed],
            _column([chunk.chunk_id for chunk in listed]),
            scores=_column([chunk.score for chunk in listed]),
            metadatas=[c.metadata for c in listed] if any(c.metadata for c in listed) else None,
        )

    def take(self, indexes: Sequence[int]) -> Chunks:
        """The chunks at these 0-based indexes, in that order."""

        def taken(column: Column) -> Column:
            return None if column is None else [column[index] for index in indexes]

        return Chunks(
            [self.texts[index] for index in indexes],
            taken(self.chunk_ids),
            scores=taken(self.scores),
            metadatas=taken(self.metadatas),
        )

    def metadata_at(self, index: int) -> Mapping[str, Any]:
        """The metadata of the chunk at this 0-based index."""
        found = None if self.metadatas is None else self.metadatas[index]
        return NO_METADATA if found is None else found

    def span_at(self, index: int) -> Span | None:
        """Where in its document the chunk at this 0-based index stands; see `Chunk.span`."""
        metadata = self.metadata_at(index)
        return span_in(metadata, len(self.texts[index])) if metadata else None

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        metadata = self.metadata_at(index)
        return Chunk(
            text=self.texts[index],
            chunk_id=None if self.chunk_ids is None else self.chunk_ids[index],
            score=None if self.scores is None else self.scores[index],
            # Neither pickle nor dataclasses.asdict copies a mapping proxy.
            metadata={} if metadata is NO_METADATA else metadata,
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return len(self) == len(other) and all(
                mine == theirs for mine, theirs in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # columns may be lists

    def __repr__(self) -> str:
        return repr(tuple(self))


class Ranking:
    """One ranked list for one query, or the error that came instead."""

    # The columns themselves, not a Chunks: every object that lives as long as the run makes the
    # garbage collector walk through all of the caller's objects sooner.
    __slots__ = (
        "_chunk_ids",
        "_metadatas",
        "_scores",
        "error",
        "exception",
        "latency_s",
        "query_id",
        "query_text",
        "texts",
    )

    def __init__(
        self,
        *,
        query_id: str,
        chunks: Iterable[Chunk] = (),
        error: str | None = None,
        latency_s: float | None = None,
        query_text: str | None = None,
        exception: Exception | None = None,
    ) -> None:
        if not isinstance(query_id, str):
            raise TypeError(f"Ranking: query_id must be a string, got {type(query_id).__name__}")
        self.query_id = query_id
        columns = Chunks.of(chunks)
        texts = columns.texts
        self.texts: tuple[str, ...] = texts if type(texts) is tuple else tuple(texts)
        """The chunk texts in rank order."""
        self._chunk_ids = columns.chunk_ids
        self._scores = columns.scores
        self._metadatas = columns.metadatas
        self.error = error
        """Type and message of the failure; None when the retriever answered."""
        self.latency_s = latency_s
        """Seconds that the last attempt took."""
        self.query_text = query_text
        """What the retriever was asked, where the dataset does not say it."""
        self.exception = exception
        """The retriever's own exception, kept in memory and never saved."""

    @property
    def chunks(self) -> Chunks:
        """In the order the retriever returned them; a sequence of `Chunk`."""
        return Chunks(self.texts, self._chunk_ids, scores=self._scores, metadatas=self._metadatas)

    def without_chunks(self) -> Ranking:
        """The same outcome, and none of what was retrieved."""
        return Ranking(
            query_id=self.query_id,
            error=self.error,
            latency_s=self.latency_s,
            query_text=self.query_text,
            exception=self.exception,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranking):
            return NotImplemented
        mine = (self.query_id, self.error, self.latency_s, self.query_text, self.chunks)
        return mine == (
            other.query_id,
            other.error,
            other.latency_s,
            other.query_text,
            other.chunks,
        )

    __hash__ = None  # type: ignore[assignment]  # its chunks may hold lists

    def __repr__(self) -> str:
        outcome = f"error={self.error!r}" if self.error else f"{len(self.texts)} chunks"
        return f"Ranking({self.query_id!r}, {outcome})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All the ranked lists of one retriever.

    Raises:
        ValueError: Two rankings belong to one query.
    """

    name: str = "run"
    rankings: Sequence[Ranking] = ()
    complete: bool = True
    """Whether every query was asked. A query that a complete run lacks retrieved nothing (absent);
    one that a partial run lacks was not run."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it was retrieved, as plain JSON values."""
    notes: tuple[str, ...] = ()
    """What a reader of its scores should know."""

    def __post_init__(self) -> None:
        if isinstance(self.rankings, (str, bytes, Mapping)):
            raise TypeError(f"Run: rankings must be a list, got {type(self.rankings).__name__}")
        object.__setattr__(self, "rankings", tuple(self.rankings))
        seen: set[str] = set()
        for index, ranking in enumerate(self.rankings):
            if not isinstance(ranking, Ranking):
                raise TypeError(
                    f"Run: rankings[{index}] must be a Ranking, got {type(ranking).__name__}"
                )
            if ranking.query_id in seen:
                raise ValueError(f"Run: query {ranking.query_id!r} has more than one ranking")
            seen.add(ranking.query_id)


def _column(values: list[Any]) -> Column:
    return None if all(value is None for value in values) else values
