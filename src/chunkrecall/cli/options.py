"""Options that several commands share, and how their text is read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from chunkrecall.matching import (
    ChunkId,
    Contains,
    Coverage,
    ExactText,
    Fuzzy,
    Matcher,
    NormalizedText,
)
from chunkrecall.metric import check_ks

if TYPE_CHECKING:
    from chunkrecall.metric import Cutoff


class OutputFormat(StrEnum):
    """How the one document on standard output is written."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


class Match(StrEnum):
    """How labels are compared with chunks."""

    AUTO = "auto"
    EXACT = "exact"
    NORMALIZED = "normalized"
    ID = "id"
    CONTAINS = "contains"
    COVERAGE = "coverage"
    FUZZY = "fuzzy"


class ContainsDirection(StrEnum):
    """Which of label and chunk must stand in the other."""

    LABEL_IN_CHUNK = "label-in-chunk"
    CHUNK_IN_LABEL = "chunk-in-label"


class NoRelevantPolicy(StrEnum):
    """What a query gets that was judged to have nothing relevant."""

    EXCLUDE = "exclude"
    ZERO = "zero"
    ONE = "one"
    MLFLOW = "mlflow"


class ErrorPolicy(StrEnum):
    """What a failing query does."""

    RECORD = "record"
    ZERO = "zero"
    RAISE = "raise"


KOption: TypeAlias = Annotated[
    str, typer.Option("--k", help="Cutoffs: 5, or 1,5,10; 'all' is the whole list.")
]
FormatOption: TypeAlias = Annotated[
    OutputFormat, typer.Option("--format", help="How the report on standard output is written.")
]
MatchOption: TypeAlias = Annotated[
    Match, typer.Option("--match", help="auto: ids where every label is an id alone, else exact.")
]
IdKeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--id-key", help="With --match id: the metadata key that holds a chunk's id."),
]
DirectionOption: TypeAlias = Annotated[
    ContainsDirection | None,
    typer.Option("--direction", help="With --match contains: what must stand in the other."),
]
ThresholdOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="With --match coverage or fuzzy: the least share or "
        "similarity that counts, above 0 and at most 1; 0.9 by default.",
    ),
]
LevelOption: TypeAlias = Annotated[
    int, typer.Option("--relevance-level", help="The grade from which on a label counts.")
]
DedupeOption: TypeAlias = Annotated[
    bool, typer.Option("--dedupe", help="Remove repeated chunks before the cut.")
]
ExcludeSelfOption: TypeAlias = Annotated[
    bool, typer.Option("--exclude-self", help="Remove a chunk whose id is the query's.")
]
NoRelevantOption: TypeAlias = Annotated[
    NoRelevantPolicy,
    typer.Option("--no-relevant", help="What a query with nothing relevant gets."),
]
OnErrorOption: TypeAlias = Annotated[
    ErrorPolicy, typer.Option("--on-error", help="What a failing query does.")
]
ReportOption: TypeAlias = Annotated[
    Path | None, typer.Option("--report", help="Also save the report here, as JSON.")
]


def cutoffs(text: str) -> tuple[Cutoff, ...]:
    """The cutoffs that `5`, `1,5` or `1,all` means.

    Raises:
        ValueError: A part is neither "all" nor a whole number of at least 1.
    """
    parsed: list[Cutoff] = []
    for part in text.split(","):
        word = part.strip()
        if word == "all":
            parsed.append(None)
        elif word.isascii() and word.removeprefix("-").isdigit():
            parsed.append(int(word))
        else:
            raise ValueError(f"--k takes whole numbers such as 5 or 1,5,10, or all; got {text!r}")
    return check_ks(parsed)


def matcher_of(
    match: Match,
    id_key: str | None,
    direction: ContainsDirection | None = None,
    threshold: float | None = None,
) -> Matcher | None:
    """The matcher that the options mean, None for the default.

    Raises:
        ValueError: An option that goes with another matcher, or a threshold that is none.
        MissingExtraError: `--match fuzzy` without rapidfuzz.
    """
    if id_key is not None and match is not Match.ID:
        raise ValueError("--id-key goes with --match id")
    if direction is not None and match is not Match.CONTAINS:
        raise ValueError("--direction goes with --match contains")
    if threshold is not None and match not in (Match.COVERAGE, Match.FUZZY):
        raise ValueError("--threshold goes with --match coverage or --match fuzzy")
    if match is Match.CONTAINS:
        return Contains() if direction is None else Contains(direction.value)
    if match is Match.COVERAGE:
        return Coverage() if threshold is None else Coverage(threshold)
    if match is Match.FUZZY:
        return Fuzzy() if threshold is None else Fuzzy(threshold)
    if match is Match.ID:
        return ChunkId(id_key)
    if match is Match.EXACT:
        return ExactText()
    return NormalizedText() if match is Match.NORMALIZED else None
