"""A matcher for labels and chunks of different sizes: one contains the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chunkrecall.matching.keyed import ranks_by_key
from chunkrecall.matching.protocol import text_of
from chunkrecall.records import Chunk, Chunks, Label

Direction = Literal["label-in-chunk", "chunk-in-label"]
_NAMES: dict[Direction, str] = {
    "label-in-chunk": "label inside the chunk",
    "chunk-in-label": "chunk inside the label",
}


@dataclass(frozen=True, slots=True)
class Contains:
    """One text stands in the other, character for character.

    A blank chunk is in every label and satisfies none.
    """

    direction: Direction = "label-in-chunk"
    """What must contain what: "label-in-chunk" for labels that are sentences or answers,
    "chunk-in-label" for labels that are whole sections of which any chunk will do."""

    def __post_init__(self) -> None:
        if self.direction not in _NAMES:
            raise ValueError(
                "direction must be 'label-in-chunk' or 'chunk-in-label', got "
                f"{self.direction!r:.100}"
            )

    def describe(self) -> str:
        """The rule's name."""
        return _NAMES[self.direction]

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """The rank of the first chunk that contains the label, or that it contains."""
        texts = Chunks.of(chunks).texts
        wanted = [text_of(label, self.describe()) for label in labels]
        equal = dict(zip(wanted, ranks_by_key(wanted, texts), strict=True))
        ranks = {text: self._rank(text, texts, rank) for text, rank in equal.items()}
        return tuple(ranks[text] for text in wanted)

    def _rank(self, wanted: str, texts: Sequence[str], equal_at: int | None) -> int | None:
        """The first rank up to that of the equal text, where there is one."""
        before = enumerate(texts[: equal_at and equal_at - 1], start=1)
        if self.direction == "label-in-chunk":
            return next((rank for rank, text in before if wanted in text), equal_at)
        solid = ((rank, text) for rank, text in before if text and not text.isspace())
        return next((rank for rank, text in solid if text in wanted), equal_at)
