"""How alike two texts read: a number to order candidates by, never a match."""

from __future__ import annotations

import re
from functools import lru_cache

from chunkrecall.text import collapse_whitespace

_MOST_CHARACTERS = 4_000
_GRAM = 3
_SENTENCE = re.compile("(?<=[.!?\u3002\uff01\uff1f])\\s*|\\n+")
_SHORTEST_SENTENCE = 25
_SHORTEST_WIDE = 8
_MOST_SENTENCES = 40


def similarity(one: str, other: str) -> float:
    """Dice's coefficient of the sets of three-character pieces, in [0, 1]; case is folded.

    Only the first 4,000 characters of a text are looked at.
    """
    first, second = grams(one), grams(other)
    if not first or not second:
        return 0.0
    return 2 * len(first & second) / (len(first) + len(second))


@lru_cache(maxsize=4_096)
def grams(text: str) -> frozenset[str]:
    """The three-character pieces of a text, as `similarity` compares them."""
    plain = f" {collapse_whitespace(text[:_MOST_CHARACTERS]).casefold()} "
    return frozenset([plain[i : i + _GRAM] for i in range(max(0, len(plain) - _GRAM + 1))])


def shared_sentence(label: str, chunk: str) -> str | None:
    """The longest sentence of the label that the chunk has word for word; None if it has none."""
    inside = collapse_whitespace(chunk)
    found = [
        sentence
        for part in _SENTENCE.split(label[: _MOST_CHARACTERS * 4])[:_MOST_SENTENCES]
        if _is_long(sentence := collapse_whitespace(part)) and sentence in inside
    ]
    return max(found, key=len, default=None)


def _is_long(sentence: str) -> bool:
    # A Chinese or Japanese sentence says with a third of the characters what a Latin one does.
    return len(sentence) >= (_SHORTEST_SENTENCE if sentence.isascii() else _SHORTEST_WIDE)
