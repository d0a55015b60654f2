"""A matcher for texts that differ in a few characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from chunkrecall.errors import MissingExtraError
from chunkrecall.matching.keyed import ranks_by_key
from chunkrecall.matching.protocol import check_threshold, text_of
from chunkrecall.records import Chunk, Chunks, Label

_FEW_EDITS = 512
"""Where the search for the number of edits begins; it goes on in doubled steps."""


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A chunk's text is similar enough: 1 - edits / length of the longer text >= `threshold`.

    Edits are insertions, deletions and substitutions of one character (Levenshtein, 1966). The
    comparison is exact: one edit in ten characters reaches 0.9.

    Equal texts are found by hashing, so only the chunks before an equal one are compared at all,
    and none whose length alone rules it out. A comparison stops once too many edits are certain; at
    most it fills a band of (1 - threshold) x length diagonals, 64 cells at a time.

    Raises:
        ValueError: A threshold that is no number above 0 and at most 1.
        MissingExtraError: rapidfuzz is not installed.
    """

    threshold: float = 0.9
    _exact: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", check_threshold(self.threshold))
        try:
            import rapidfuzz  # noqa: F401 - better missed now than after retrieving
        except ImportError as error:
            raise MissingExtraError("fuzzy", needed_for="Fuzzy") from error

    def describe(self) -> str:
        """The rule's name with its threshold."""
        return f"fuzzy text (similarity of at least {self.threshold:g})"

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """The rank of the first chunk that is similar enough to the label, for each label."""
        texts = Chunks.of(chunks).texts
        wanted = [text_of(label, self.describe()) for label in labels]
        equal = dict(zip(wanted, ranks_by_key(wanted, texts), strict=True))
        ranks = {text: self._rank(text, texts, rank) for text, rank in equal.items()}
        return tuple(ranks[text] for text in wanted)

    def _rank(self, wanted: str, texts: Sequence[str], equal_at: int | None) -> int | None:
        """The first rank up to that of the equal text, where there is one."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import extract_iter

        near = []
        size, longest = len(wanted), 0
        for index, text in enumerate(texts[: equal_at and equal_at - 1]):
            edits = self._most_edits(size, len(text))
            if abs(size - len(text)) <= edits:
                near.append(index)
                longest = max(longest, edits)
        candidates = [texts[index] for index in near]
        found = extract_iter(
            wanted,
            candidates,
            scorer=Levenshtein.distance,
            score_cutoff=longest,
            score_hint=_FEW_EDITS,
        )
        for text, edits, position in found:
            if edits <= self._most_edits(size, len(text)):
                return near[position] + 1
        return equal_at

    def _most_edits(self, size: int, other: int) -> int:
        return floor((1 - self._exact) * max(size, other))
