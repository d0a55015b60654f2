"""The error tree.

    ChunkRecallError
    ├── DatasetError             a labelled set or a run that cannot be used; names every bad place
    ├── RetrievalError           the retriever failed and `on_error` is "raise"
    ├── UnsupportedRetrieverError  an object that chunkrecall cannot ask for chunks
    ├── MissingExtraError        an optional dependency is not installed (also an ImportError)
    ├── ComparisonError          two reports that must not be compared
    └── GateError                a recall threshold was missed (also an AssertionError)

Wrong arguments are plain `TypeError` and `ValueError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN_PROBLEMS = 20


class ChunkRecallError(Exception):
    """Root of every error that chunkrecall raises on its own account."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One bad place in a labelled set or a run."""

    place: str
    """Where: a file with its line, or a query and its field."""
    message: str
    """What was found, what was expected and what to write instead."""
    file: str | None = None
    row: int | None = None
    """The line of a text file, or the row of a table, numbered from 1."""
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"

    def to_dict(self) -> dict[str, str | int | None]:
        """Plain JSON values."""
        return {
            "place": self.place,
            "message": self.message,
            "file": self.file,
            "row": self.row,
            "column": self.column,
        }


class DatasetError(ChunkRecallError):
    """A labelled set or a run is unusable; `problems` holds every bad place, in order."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = ()
            super().__init__(problems)
            return
        self.problems = tuple(problems)
        shown = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) == 1:
            super().__init__(shown[0])
            return
        rest = len(self.problems) - len(shown)
        if rest:
            shown.append(f"… and {rest} more (see .problems)")
        super().__init__("\n".join([f"{len(self.problems)} problems", *shown]))


class RetrievalError(ChunkRecallError):
    """The retriever failed for one query; the cause is the retriever's own exception."""

    def __init__(self, message: str, *, query_id: str) -> None:
        super().__init__(message)
        self.query_id = query_id


class UnsupportedRetrieverError(ChunkRecallError):
    """The object is no retriever that chunkrecall knows how to ask."""


class MissingExtraError(ChunkRecallError, ImportError):
    """An optional dependency is missing; the message is the command that installs it."""

    def __init__(self, extra: str, *, needed_for: str) -> None:
        super().__init__(f'{needed_for} needs an extra: pip install "chunkrecall[{extra}]"')
        self.extra = extra


class ComparisonError(ChunkRecallError):
    """Two reports measure different things and must not be compared."""


class GateError(ChunkRecallError, AssertionError):
    """A recall threshold was missed."""
