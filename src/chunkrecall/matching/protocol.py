"""What a matcher is, and how one is checked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Protocol, runtime_checkable

from chunkrecall.records import Chunk, Chunks, Label


@runtime_checkable
class Matcher(Protocol):
    """What a custom matcher implements.

    It may also have `key(label) -> Hashable`: labels with equal keys are one label. Without it,
    labels merge by identical text, or id where they have no text.
    """

    def describe(self) -> str:
        """A short name of the rule for the report, such as "exact text"."""
        ...

    def first_ranks(
        self, labels: Sequence[Label], chunks: Sequence[Chunk]
    ) -> tuple[int | None, ...]:
        """For each label, in order, the 1-based rank at which it is satisfied, or None.

        Groups of alternatives never arrive here, only their members. An empty list of chunks does,
        before anything is retrieved, so that a label this matcher cannot read is found early.

        Raises:
            ValueError: A label that this matcher cannot read.
        """
        ...


@runtime_checkable
class KeyedMatcher(Matcher, Protocol):
    """A matcher that is equality of keys; the built-in ones are."""

    def key(self, label: Label) -> str:
        """What the label is equal by.

        Raises:
            ValueError: The label has nothing that this matcher reads.
        """
        ...

    def chunk_keys(self, chunks: Chunks) -> Sequence[Hashable]:
        """For each chunk what it is equal by; None or an empty text equals no label."""
        ...


@runtime_checkable
class MeasuringMatcher(Matcher, Protocol):
    """A matcher that also says how much of a label was found, beside whether it was."""

    def measure(
        self, labels: Sequence[Label], chunks: Sequence[Chunk], cutoffs: Sequence[int | None]
    ) -> Sequence[tuple[int | None, tuple[float, ...]]]:
        """For each label its first rank, and its share within [0, 1] found by each cutoff."""
        ...


def check_matcher(matcher: object) -> Matcher:
    """The matcher, if it has the two methods of the protocol.

    Raises:
        TypeError: It has not, or it is a class where an instance belongs.
    """
    if isinstance(matcher, type) or not isinstance(matcher, Matcher):
        hint = f" — write {matcher.__name__}()" if isinstance(matcher, type) else ""
        raise TypeError(
            "matcher must have the methods describe() and first_ranks(labels, chunks), got "
            f"{matcher!r:.120}{hint}"
        )
    return matcher


def text_of(label: Label, rule: str) -> str:
    """The text that a rule compares.

    Raises:
        ValueError: The label has none.
    """
    if label.text is None:
        raise ValueError(unreadable(label, "text", rule))
    return label.text


def unreadable(label: Label, field: str, rule: str) -> str:
    """What to do about a label that lacks what a rule reads."""
    problem = f"{label!r:.200} has no {field}, which matching by {rule} reads — "
    if label.source_span is not None:
        return problem + (
            "match spans by Coverage(), or resolve them to chunks with relabel(dataset, corpus)"
        )
    other = "chunk_id" if field == "text" else "text"
    return problem + (
        f"give every label a {field} (Label(text=…, chunk_id=…) is one label that has both), or "
        f"pass a matcher that reads its {other}"
    )


def check_threshold(threshold: object, name: str = "threshold") -> Fraction:
    """The threshold exactly as it is written in decimals, so that 9 of 10 reaches 0.9.

    Raises:
        ValueError: It is no number above 0 and at most 1.
    """
    try:
        exact = Fraction(str(threshold))
    except (ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if isinstance(threshold, (bool, str)) or not 0 < exact <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {threshold!r}")
    return exact
