"""Where in its document a passage stands: the one place that survives another chunking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

DOCUMENT_KEYS = ("doc_id", "ref_doc_id", "source")
OFFSET_KEYS = (("start_index", "end_index"), ("start_char_idx", "end_char_idx"))
"""What LangChain's splitters (`add_start_index=True`) and LlamaIndex's node parsers call the
offsets. LangChain keeps no end: it follows from the length of the text."""


class Span(NamedTuple):
    """Characters `start` to `end` (exclusive, counted from 0) of one document."""

    doc_id: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.doc_id}[{self.start}:{self.end}]"

    def overlap(self, other: Span) -> int:
        """How many characters the two have in common."""
        if self.doc_id != other.doc_id:
            return 0
        return max(0, min(self.end, other.end) - max(self.start, other.start))


def document_in(metadata: Mapping[str, Any]) -> str | None:
    """The document that a chunk's metadata name: "doc_id", else "ref_doc_id", else "source"."""
    for key in DOCUMENT_KEYS:
        value = metadata.get(key)
        if isinstance(value, str):
            return value
    return None


def span_in(metadata: Mapping[str, Any], length: int) -> Span | None:
    """The span that a chunk's metadata give; None without a document or usable offsets.

    Args:
        metadata: The chunk's.
        length: How many characters its text has, for metadata without an end.
    """
    for start_key, end_key in OFFSET_KEYS:
        start = metadata.get(start_key)
        # LangChain writes -1 where it did not find its own chunk in the document.
        if not _is_offset(start):
            continue
        end = metadata.get(end_key, start + length)
        doc_id = document_in(metadata)
        if doc_id is not None and _is_offset(end) and start < end:
            return Span(doc_id, start, end)
    return None


def _is_offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
