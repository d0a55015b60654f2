"""All chunks that are indexed, from anything that lists them, and what a label is among them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from chunkrecall.adapters import listed_chunks, to_chunks
from chunkrecall.diagnosis.passages import Passages, plain_id
from chunkrecall.diagnosis.similarity import grams, similarity
from chunkrecall.formats import load_corpus
from chunkrecall.matching import KeyedMatcher
from chunkrecall.records import Chunk, Chunks
from chunkrecall.text import NearMisses

_MOST_ALIKE = 20
_RAREST = 12
_MOST_NEAR = 50
_LEAST_ALIKE = 0.2


class Corpus:
    """The indexed chunks, looked up by text, by id and by document."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks
        self.near = NearMisses(chunks.texts)
        self.passages = Passages(chunks.texts)
        self._keyed: tuple[KeyedMatcher, dict[Hashable, list[int]]] | None = None

    def __len__(self) -> int:
        return len(self.chunks)

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """The indexes of the chunks with a text."""
        return _grouped(self.chunks.texts)

    @cached_property
    def by_id(self) -> dict[str, list[int]]:
        """The indexes of the chunks with an id."""
        return _grouped(self.chunks.chunk_ids or ())

    @cached_property
    def has_places(self) -> bool:
        """Whether any chunk says where in its document it stands."""
        return any(self.chunks.span_at(index) is not None for index in range(len(self)))

    def by_key(self, matcher: KeyedMatcher) -> dict[Hashable, list[int]]:
        """The indexes of the chunks by what a matcher compares them by."""
        if self._keyed is None or self._keyed[0] != matcher:
            groups: dict[Hashable, list[int]] = {}
            for index, key in enumerate(matcher.chunk_keys(self.chunks)):
                groups.setdefault(key, []).append(index)
            self._keyed = matcher, groups
        return self._keyed[1]

    def passages_like(self, text: str) -> list[int]:
        """The chunks that share their last line with the text, few as they are."""
        return self._by_ending.get(_ending(text), [])[:_MOST_ALIKE]

    @cached_property
    def _by_ending(self) -> dict[str, list[int]]:
        return _grouped([_ending(text) for text in self.chunks.texts])

    def ids_like(self, wanted: Collection[str]) -> list[int]:
        """The chunks that have one of the ids in some form, or somewhere in their metadata."""
        found = [index for one in wanted for index in self._by_plain_id.get(plain_id(one), [])]
        found += [index for one in wanted for index in self._by_value.get(one, [])]
        return list(dict.fromkeys(found))[:_MOST_ALIKE]

    @cached_property
    def _by_plain_id(self) -> dict[str, list[int]]:
        return _grouped([plain_id(one) if one else None for one in self.chunks.chunk_ids or ()])

    @cached_property
    def _by_value(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for index in range(len(self.chunks)):
            for value in self.chunks.metadata_at(index).values():
                if isinstance(value, (str, int, float)):
                    groups.setdefault(str(value), []).append(index)
        return groups

    def nearest(self, text: str) -> tuple[int, float] | None:
        """The chunk that reads most like the text, and how much; None if none does at all.

        Looked for among the chunks that share the text's rarest pieces.
        """
        wanted = grams(text)
        rare = sorted((len(found), gram) for gram in wanted if (found := self._by_gram.get(gram)))
        indexes = {
            index for _, gram in rare[:_RAREST] for index in self._by_gram[gram][:_MOST_NEAR]
        }
        scored = [(similarity(text, self.chunks.texts[index]), -index) for index in indexes]
        alike, index = max(scored, default=(0.0, 0))
        return (-index, alike) if alike >= _LEAST_ALIKE else None

    @cached_property
    def _by_gram(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for index, text in enumerate(self.chunks.texts):
            for gram in grams(text):
                groups.setdefault(gram, []).append(index)
        return groups

    def named(self, index: int) -> str:
        """How a chunk is called: its id, or its place."""
        chunk_id = self.chunks[index].chunk_id
        return f"chunk {index}" if chunk_id is None else f"chunk {chunk_id!r:.80}"


def read_corpus(corpus: object) -> Corpus:
    """The chunks that a corpus lists.

    Args:
        corpus: A list of texts, Documents, nodes, dicts or Chunks; a mapping from ids to texts; a
            vector store, docstore or index of either framework; the path of a `corpus.jsonl`.

    Raises:
        TypeError: It lists no chunks.
        DatasetError: A file with bad rows.
    """
    if isinstance(corpus, Corpus):
        return corpus
    if isinstance(corpus, (str, Path)):
        return Corpus(load_corpus(corpus))
    if isinstance(corpus, Mapping) and all(isinstance(one, str) for one in corpus.values()):
        pairs = ((str(key), text) for key, text in corpus.items())
        return Corpus(Chunks.of([Chunk(text=text, chunk_id=key) for key, text in pairs]))
    chunks = listed_chunks(corpus)
    if chunks is None:
        try:
            chunks = to_chunks(corpus)
        except TypeError as error:
            raise TypeError(
                f"cannot list the chunks of {type(corpus).__name__}: pass corpus= as a list of "
                "texts, Documents or nodes, a vector store or docstore that can be listed, or the "
                f"path of a corpus.jsonl ({error})"
            ) from error
    return Corpus(chunks)


def _grouped(values: Sequence[str | None]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        if value:
            groups.setdefault(value, []).append(index)
    return groups


def _ending(text: str) -> str:
    return text.rstrip().rpartition("\n")[2].strip()[-60:]
