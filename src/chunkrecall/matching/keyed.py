"""Matchers that are equality of keys: the text, the text after normalising, an id."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Literal
from unicodedata import normalize

from chunkrecall.matching.protocol import KeyedMatcher, Matcher, text_of, unreadable
from chunkrecall.metric import hit_positions
from chunkrecall.records import Chunk, Chunks, Label
from chunkrecall.text import collapse_whitespace, strip_accents, strip_invisible, unescape_html

UnicodeForm = Literal["NFC", "NFD", "NFKC", "NFKD"]


@dataclass(frozen=True, slots=True)
class ExactText:
    """Equality of the chunk's own text: no metadata, no stripping, no folding."""

    def describe(self) -> str:
        """The rule's name."""
        return "exact text"

    def key(self, label: Label) -> str:
        """The label's text."""
        return text_of(label, self.describe())

    def chunk_keys(self, chunks: Chunks) -> Sequence[Hashable]:
        """The chunk texts."""
        return chunks.texts

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """The rank of the first chunk with the label's text, for each label."""
        return _equal_keys(self, labels, chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizedText:
    """Equality of texts after both sides went through the same steps.

    The steps run in a fixed order: HTML unescape, invisible characters, Unicode form, case fold,
    Unicode form again (folding can undo it), accents, whitespace.
    """

    unicode: UnicodeForm | None = "NFC"
    collapse_whitespace: bool = True
    casefold: bool = False
    strip_invisible: bool = False
    unescape_html: bool = False
    strip_accents: bool = False
    """Drops combining marks from Latin, Greek and Cyrillic letters only: elsewhere they are part
    of the letter."""

    def __post_init__(self) -> None:
        if self.unicode not in ("NFC", "NFD", "NFKC", "NFKD", None):
            raise ValueError(
                f"unicode must be 'NFC', 'NFD', 'NFKC', 'NFKD' or None, got {self.unicode!r}"
            )

    def normalize(self, text: str) -> str:
        """The text after all steps."""
        if self.unescape_html:
            text = unescape_html(text)
        if self.strip_invisible:
            text = strip_invisible(text)
        if self.unicode:
            text = normalize(self.unicode, text)
        if self.casefold:
            text = text.casefold()
            if self.unicode:
                text = normalize(self.unicode, text)
        if self.strip_accents:
            text = strip_accents(text, self.unicode or "NFC")
        if self.collapse_whitespace:
            text = collapse_whitespace(text)
        return text

    def describe(self) -> str:
        """The rule's name with the steps that are on."""
        steps = [
            ("HTML unescaped", self.unescape_html),
            ("invisible characters removed", self.strip_invisible),
            (self.unicode or "", self.unicode is not None),
            ("case folded", self.casefold),
            ("accents removed", self.strip_accents),
            ("whitespace collapsed", self.collapse_whitespace),
        ]
        return f"normalised text ({', '.join(name for name, on in steps if on) or 'no steps'})"

    def key(self, label: Label) -> str:
        """The label's normalised text."""
        text = self.normalize(text_of(label, self.describe()))
        if not text or text.isspace():
            raise ValueError(
                f"the label {label.text!r} is blank after normalising ({self.describe()}) — "
                "remove it or normalise less"
            )
        return text

    def chunk_keys(self, chunks: Chunks) -> Sequence[Hashable]:
        """The normalised chunk texts."""
        return [self.normalize(text) for text in chunks.texts]

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """The rank of the first chunk with the label's normalised text, for each label."""
        return _equal_keys(self, labels, chunks)


class ChunkId:
    """Equality of ids: the framework's own, or what a metadata key holds.

    Ids are compared as they stand: a number in the metadata equals no label. A chunk without an id
    equals nothing, not even another chunk without one.

    Args:
        key: The metadata key that holds the id; None for the framework's id. "ref_doc_id" is a
            LlamaIndex node's source document.
    """

    __slots__ = ("metadata_key",)

    def __init__(self, key: str | None = None) -> None:
        if key is not None and (not isinstance(key, str) or not key):
            raise ValueError(f"key must be a metadata key or None, got {key!r}")
        self.metadata_key = key

    def describe(self) -> str:
        """The rule's name."""
        if self.metadata_key is None:
            return "chunk id"
        return f"chunk id (metadata {self.metadata_key!r})"

    def key(self, label: Label) -> str:
        """The label's id."""
        if label.chunk_id is None:
            raise ValueError(unreadable(label, "chunk_id", self.describe()))
        return label.chunk_id

    def chunk_keys(self, chunks: Chunks) -> Sequence[Hashable]:
        """The chunks' ids, None where there is none that is a string."""
        if self.metadata_key is None:
            return [None] * len(chunks) if chunks.chunk_ids is None else chunks.chunk_ids
        found = _metadata_values(chunks, self.metadata_key)
        return [value if isinstance(value, str) else None for value in found]

    def odd_kinds(self, chunks: Chunks) -> set[str]:
        """The types of the values under the metadata key that are no strings and so no ids."""
        key = self.metadata_key
        values = () if key is None else _metadata_values(chunks, key)
        return {type(value).__name__ for value in values if not isinstance(value, (str, NoneType))}

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """The rank of the first chunk with the label's id, for each label."""
        return _equal_keys(self, labels, chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkId):
            return NotImplemented
        return self.metadata_key == other.metadata_key

    def __hash__(self) -> int:
        return hash((ChunkId, self.metadata_key))

    def __repr__(self) -> str:
        return f"ChunkId({'' if self.metadata_key is None else repr(self.metadata_key)})"


def ranks_by_key(wanted: Sequence[Hashable], keys: Sequence[Hashable]) -> tuple[int | None, ...]:
    """The first rank of each wanted key in a list of chunk keys."""
    distinct = set(wanted)
    first = {keys[rank - 1]: rank for rank in hit_positions(distinct, keys)}
    return tuple([first.get(key) for key in wanted])


def default_matcher(labels: Sequence[Label]) -> Matcher:
    """`ChunkId()` when every label has an id and none a text, else `ExactText()`."""
    if labels and all(label.text is None and label.chunk_id is not None for label in labels):
        return ChunkId()
    return ExactText()


def _equal_keys(
    matcher: KeyedMatcher, labels: Sequence[Label], chunks: Sequence[Chunk]
) -> tuple[int | None, ...]:
    keys = matcher.chunk_keys(Chunks.of(chunks))
    ranks: list[int | None] = []
    for label in labels:
        members = ranks_by_key([matcher.key(member) for member in label.members], keys)
        ranks.append(min((rank for rank in members if rank is not None), default=None))
    return tuple(ranks)


def _metadata_values(chunks: Chunks, key: str) -> Sequence[object]:
    return [chunks.metadata_at(index).get(key) for index in range(len(chunks))]
