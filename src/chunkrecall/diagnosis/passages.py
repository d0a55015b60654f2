"""Where a text stands in other texts, whole or in pieces, apart from whitespace.

Everything is found by searching one joined string, so the time is linear in it for each piece, and
there are at most `_MOST_PIECES` pieces: no text, however repetitive, makes it quadratic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from chunkrecall.text import collapse_whitespace

_MOST_PIECES = 32
_MOST_OCCURRENCES = 64
_LONG = 20
_SEPARATOR = "\0"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the wanted text that one passage has; all counts are without whitespace."""

    index: int
    """The passage's 0-based index."""
    start: int
    end: int
    reaches_back_to: int
    """Where in the wanted text the passage's part begins, at or before `start`."""
    size: int
    """Characters of the whole passage."""
    begins: bool
    """Whether the passage begins where its part does."""
    ends: bool
    """Whether the passage ends at `end`."""

    @property
    def is_inside(self) -> bool:
        """Whether the passage is nothing but a part of the wanted text."""
        return self.begins and self.ends

    def fits(self, size: int) -> bool:
        """Whether its part ends where the passage does, or where a wanted text of this size does.

        Texts that merely share a phrase agree up to some place within both.
        """
        return (self.begins or self.reaches_back_to == 0) and (self.ends or self.end == size)


def squeezed(text: str) -> str:
    """The text without whitespace (and without the separator of passages)."""
    return "".join(text.split()).replace(_SEPARATOR, "")


class Passages:
    """Texts in which others are looked for. Nothing is computed before the first question."""

    __slots__ = ("_ends", "_joined", "_starts", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._joined: str | None = None
        self._starts: list[int] = []
        self._ends: list[int] = []

    def containing(self, wanted: str) -> int | None:
        """The index of the first text that holds all of the wanted one, and more."""
        needle = squeezed(wanted)
        if not needle:
            return None
        joined = self._text()
        place = joined.find(needle)
        for _ in range(_MOST_OCCURRENCES):
            if place < 0:
                return None
            index = self._index_at(place)
            is_larger = self._ends[index] - self._starts[index] > len(needle)
            # So long a text stands in another by no chance, even where it begins within a word.
            if is_larger and (len(needle) >= _LONG or _has_words(self.texts[index], wanted)):
                return index
            place = joined.find(needle, self._ends[index])
        return None

    def cover(self, wanted: str) -> tuple[list[Piece], float]:
        """Pieces from left to right, and the share of the wanted text that they cover.

        A piece has at least `min(n, max(3, min(20, n // 3)))` characters, n being the wanted
        text's length; shorter agreements are chance.
        """
        needle = squeezed(wanted)
        size = len(needle)
        shortest = min(size, max(3, min(20, size // 3)))
        if not size:
            return [], 0.0
        pieces: list[Piece] = []
        position = covered = 0
        for _ in range(_MOST_PIECES):
            if position >= size:
                break
            start = min(position, size - shortest)
            found = self._longest(needle, start, start + shortest)
            if found is None:
                position = start + shortest
                continue
            covered += found.end - max(position, found.start)
            pieces.append(found)
            position = found.end
        return pieces, covered / size

    def _longest(self, needle: str, start: int, end: int) -> Piece | None:
        """The longest agreement that begins at `start` and reaches `end` at least."""
        joined = self._text()
        anchor = needle[start:end]
        best: Piece | None = None
        place = joined.find(anchor)
        for _ in range(_MOST_OCCURRENCES):
            if place < 0:
                break
            index = self._index_at(place)
            low, high = self._starts[index], self._ends[index]
            ahead = _agreement(needle[start : start + high - place], joined[place:high])
            back = _agreement(
                needle[max(0, start - place + low) : start][::-1], joined[low:place][::-1]
            )
            piece = Piece(
                index=index,
                start=start,
                end=start + ahead,
                reaches_back_to=start - back,
                size=high - low,
                begins=back == place - low,
                ends=place + ahead == high,
            )
            if piece.fits(len(needle)) and (best is None or piece.end > best.end):
                best = piece
            if best is not None and best.end == len(needle):
                break
            place = joined.find(anchor, high)
        return best

    def _text(self) -> str:
        if self._joined is None:
            parts = [squeezed(text) for text in self.texts]
            position = 0
            for part in parts:
                self._starts.append(position)
                position += len(part)
                self._ends.append(position)
                position += 1
            self._joined = _SEPARATOR.join(parts)
        return self._joined

    def _index_at(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1


def _has_words(text: str, wanted: str) -> bool:
    """Whether the text has the wanted one as words of its own: "fee 10" is not in "fee 100"."""
    inside, words = collapse_whitespace(text), collapse_whitespace(wanted)
    place = inside.find(words)
    for _ in range(_MOST_OCCURRENCES):
        if place < 0:
            return False
        after = place + len(words)
        if not (
            _joins(inside[place - 1 : place], words[:1])
            or _joins(words[-1:], inside[after : after + 1])
        ):
            return True
        place = inside.find(words, place + 1)
    return False


def _joins(one: str, other: str) -> bool:
    """Whether two characters side by side belong to one word, in scripts that separate words."""
    return bool(one and other) and one.isascii() and other.isascii() and (one + other).isalnum()


def overlap_share(one: Piece, other: Piece) -> float:
    """How much of the smaller of two passages both have, as far as the wanted text shows it."""
    shared = one.end - max(other.reaches_back_to, one.reaches_back_to)
    return max(0, shared) / max(1, min(one.size, other.size))


def plain_id(value: str) -> str:
    """An id without spaces around it, case, and what a number may be written with."""
    plain = value.strip().casefold()
    if plain.endswith(".0") and plain[:-2].isdecimal():
        plain = plain[:-2]
    return plain.lstrip("0") or plain if plain.isdecimal() else plain


def _agreement(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning, in O(n log n) at most."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
