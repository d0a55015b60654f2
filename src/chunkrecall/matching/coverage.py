"""A matcher for labels that outlive the chunking: how much of a label the chunks hold together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from operator import not_
from struct import Struct

from chunkrecall.matching.keyed import ranks_by_key
from chunkrecall.matching.protocol import check_threshold, unreadable
from chunkrecall.records import Chunk, Chunks, Label, Span

Measured = tuple[int | None, tuple[float, ...]]

_WORD = 8
_SHORTEST_WITH_SEEDS = 2 * _WORD - 1
"""A run of so many characters holds a whole word of the chunk, wherever it starts."""
_SPACES = frozenset(b" \t\n\v\f\r\x1c\x1d\x1e\x1f")
_PADDING = bytes(2 * _WORD)
_word_at = Struct("=Q").unpack_from
_SEARCHES = 400
"""So many windows are looked for in the label's text before it pays to index them all."""
_IS_SOLID = bytes(code not in _SPACES for code in range(256))


def shortest_run(length: int) -> int:
    """How many characters in a row a label of this length must share to be held in part.

    A third of a short label, at least 3 and at most 20, so that common words prove nothing.
    """
    return min(length, max(3, min(20, length // 3)))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The first r chunks together hold at least `threshold` of the label.

    Held is a character that is not whitespace and lies in a run of at least
    `min(n, max(3, min(20, n // 3)))` characters that the label, of n characters, shares with some
    chunk. So a label that was split over two chunks is found when both came.

    A label with a source span (`Label.span`) is compared by position with chunks of its document
    that carry offsets, and by its text, if it has one, with all others. Without a text all its
    characters count, whitespace too.

    The work is linear in the characters of labels and chunks, whatever repeats in them.

    Raises:
        ValueError: A threshold that is no number above 0 and at most 1.
    """

    threshold: float = 0.9
    _exact: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", check_threshold(self.threshold))

    def describe(self) -> str:
        """The rule's name with its threshold."""
        return f"coverage (at least {self.threshold:g} of the label)"

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """For each label the smallest r such that the first r chunks hold enough of it."""
        return tuple(rank for rank, _ in self.measure(labels, chunks, ()))

    def measure(
        self, labels: Sequence[Label], chunks: Sequence[Chunk], cutoffs: Sequence[int | None]
    ) -> tuple[Measured, ...]:
        """For each label its first rank, and the share of it that each cutoff's chunks hold."""
        wanted = [(label.text, label.source_span) for label in labels]
        for label, (text, span) in zip(labels, wanted, strict=True):
            if text is None and span is None:
                raise ValueError(unreadable(label, "text", self.describe()))
        listed = _Listed(Chunks.of(chunks))
        texts = [text for text, _ in wanted if text is not None]
        equal = dict(zip(texts, ranks_by_key(texts, listed.texts), strict=True))
        measured = {}
        for one in dict.fromkeys(wanted):
            text, span = one
            at = None if text is None else equal[text]
            measured[one] = self._measured(_growth(text, span, listed, at), len(listed), cutoffs)
        return tuple(measured[one] for one in wanted)

    def _measured(
        self, growth: Iterator[tuple[int, Fraction]], size: int, cutoffs: Sequence[int | None]
    ) -> Measured:
        first: int | None = None
        ranks, shares = [0], [Fraction(0)]
        for rank, share in growth:
            ranks.append(rank)
            shares.append(share)
            if first is None and share >= self._exact:
                first = rank
                if not cutoffs:
                    break
        depths = [size if k is None else k for k in cutoffs]
        return first, tuple(float(shares[bisect_right(ranks, depth) - 1]) for depth in depths)


def held_share(text: str, chunk: str) -> float:
    """The share of a text's characters, whitespace apart, that a chunk holds, within [0, 1]."""
    growth = list(_growth(text, None, _Listed(Chunks([chunk])), None))
    return float(growth[-1][1]) if growth else 0.0


class _Listed:
    """A ranked list with what every label asks of it, made once and only if asked."""

    __slots__ = ("_chunks", "_sampled", "texts")

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self.texts = chunks.texts
        self._sampled: dict[tuple[int, int], tuple[bytes, tuple[int, ...]]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def span_at(self, index: int) -> Span | None:
        return self._chunks.span_at(index)

    def words_at(self, index: int, stride: int) -> tuple[bytes, tuple[int, ...]]:
        """The chunk's characters as one byte each, padded, and the words at every stride."""
        known = self._sampled.get((index, stride))
        if known is None:
            codes = _codes(self.texts[index])
            words = _words_form(stride, (len(codes) - _WORD) // stride).unpack_from(codes)
            known = self._sampled[index, stride] = _PADDING + codes + _PADDING, words
        return known


def _growth(
    text: str | None, span: Span | None, listed: _Listed, equal_at: int | None
) -> Iterator[tuple[int, Fraction]]:
    """Each rank at which the held share grows, with the share from there on."""
    passage = None if text is None else _Passage(text)
    stretch = None if span is None or passage is not None else _Stretch(span)
    for index in range(len(listed)):
        place = None if span is None else listed.span_at(index)
        if index + 1 == equal_at and place is None:
            yield index + 1, Fraction(1)
            return
        is_of_document = span is not None and place is not None and span.doc_id == place.doc_id
        if stretch is not None:
            grown = stretch.add(place) if place is not None and is_of_document else None
        elif passage is None:
            return
        elif span is not None and place is not None and is_of_document:
            grown = passage.add_place(place.start - span.start, place.end - span.start)
        else:
            grown = passage.add(listed, index)
        if grown is not None:
            yield index + 1, grown
            if grown == 1:
                return


class _Stretch:
    """What is left of a span whose text nobody knows."""

    __slots__ = ("_left", "_size")

    def __init__(self, span: Span) -> None:
        self._left = [(span.start, span.end)]
        self._size = span.end - span.start

    def add(self, place: Span) -> Fraction | None:
        """Take a chunk away; the share held by now, None if it held nothing new."""
        before = sum(end - start for start, end in self._left)
        pieces = [
            piece
            for start, end in self._left
            for piece in ((start, min(end, place.start)), (max(start, place.end), end))
        ]
        self._left = [(start, end) for start, end in pieces if start < end]
        left = sum(end - start for start, end in self._left)
        return None if left == before else Fraction(self._size - left, self._size)


class _Passage:
    """What is left of a label's text.

    A run that is long enough is a union of windows of exactly the shortest length, so it is enough
    to look for those. To look at few of them, words of eight characters, as one number each, are
    tried first, as many of a chunk's as are needed for every window to have one.
    """

    __slots__ = (
        "_codes",
        "_left",
        "_run",
        "_searches",
        "_seeds",
        "_size",
        "_solid",
        "_text",
        "_windows",
    )

    def __init__(self, text: str) -> None:
        self._text = text
        self._run = shortest_run(len(text))
        self._solid: bytearray | None = None
        self._size = self._left = self._searches = 0
        self._codes = b""
        self._seeds: set[int] | None = None
        self._windows: dict[str, list[int]] | None = None

    def add(self, listed: _Listed, index: int) -> Fraction | None:
        """Take away what a chunk shares; the share held by now, None if that is nothing new."""
        text = listed.texts[index]
        if len(text) < self._run:
            return None
        if self._run < _SHORTEST_WITH_SEEDS:
            found = [window for window in self._all_windows() if window in text]
        else:
            found = self._found_from_seeds(text, *listed.words_at(index, self._run - _WORD + 1))
        if not found:
            return None
        windows, solid = self._all_windows(), self._uncovered()
        nothing = bytes(self._run)
        for window in found:
            # Each window is taken out once, so its places are too.
            for start in windows.pop(window, ()):
                solid[start : start + self._run] = nothing
        return self._grown()

    def add_place(self, start: int, end: int) -> Fraction | None:
        """Take away the characters from `start` to `end`, counted from the label's own first."""
        start, end = max(0, start), min(len(self._text), end)
        if start >= end:
            return None
        self._uncovered()[start:end] = bytes(end - start)
        return self._grown()

    def _grown(self) -> Fraction | None:
        left = self._uncovered().count(1)
        if left == self._left:
            return None
        self._left = left
        return Fraction(self._size - left, self._size)

    def _found_from_seeds(self, text: str, codes: bytes, words: tuple[int, ...]) -> list[str]:
        seeds = self._all_seeds()
        stride = self._run - _WORD + 1
        side = stride // 2
        own = self._codes
        found = []
        tried = 0
        position = -1
        for word in filter(seeds.__contains__, words):  # faster than with their positions
            position = words.index(word, position + 1)
            start = position * stride
            # A long enough run reaches at least `side` beyond its word, before or after it.
            at = start + len(_PADDING)
            if not (
                (_word_at(codes, at - side)[0] in seeds and codes[at - side : at + _WORD] in own)
                or (_word_at(codes, at + side)[0] in seeds and codes[at : at + side + _WORD] in own)
            ):
                continue
            first = max(tried, start + _WORD - self._run, 0)
            tried = max(tried, min(start, len(text) - self._run) + 1)
            for begin in range(first, tried):
                window = text[begin : begin + self._run]
                if self._has(window):
                    found.append(window)
        return found

    def _has(self, window: str) -> bool:
        """Whether the window is in the label and not taken out; the first few are searched for."""
        if self._windows is None and self._searches < _SEARCHES:
            self._searches += 1
            return window in self._text
        return window in self._all_windows()

    def _all_windows(self) -> dict[str, list[int]]:
        if self._windows is None:
            windows: dict[str, list[int]] = {}
            for start in range(len(self._text) - self._run + 1):
                windows.setdefault(self._text[start : start + self._run], []).append(start)
            self._windows = windows
        return self._windows

    def _all_seeds(self) -> set[int]:
        if self._seeds is None:
            self._codes = codes = _codes(self._text)
            self._seeds = set()
            for shift in range(_WORD):
                self._seeds.update(_as_words(codes[shift:]))
        return self._seeds

    def _uncovered(self) -> bytearray:
        """1 for each character that counts and is not held yet."""
        if self._solid is None:
            if self._text.isascii():
                self._solid = bytearray(self._text.encode().translate(_IS_SOLID))
            else:
                self._solid = bytearray(map(not_, map(str.isspace, self._text)))
            self._size = self._left = self._solid.count(1)
        return self._solid


def _codes(text: str) -> bytes:
    """One byte a character: equal texts stay equal, and few different ones become so."""
    if text.isascii():
        return text.encode()
    return text.encode("utf-32-le", "surrogatepass")[::4]


def _as_words(codes: bytes) -> memoryview:
    return memoryview(codes)[: len(codes) // _WORD * _WORD].cast("Q")


@lru_cache(maxsize=64)
def _words_form(stride: int, further: int) -> Struct:
    """The form of so many words after the first, each a stride after the one before."""
    return Struct("=" + f"Q{stride - _WORD}x" * further + "Q")
