"""What is shown, before anything is escaped or drawn: every string here is raw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and layout."""

    title: str
    align: Literal["left", "right"] = "left"
    wrap: bool = False
    """Long cells go on in the next line; without it they stay on one, cut if there is no room."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns, with a line above them if there is a title.

    Raises:
        ValueError: There is no column, or a row has more or fewer cells than there are columns.
    """

    title: str | None
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("a table needs at least one column")
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {index} has {len(row)} cells, but there are {len(self.columns)} columns"
                )


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text of its own between tables; line breaks in it are escaped, not kept."""

    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Tables and paragraphs in reading order."""

    blocks: tuple[Table | Paragraph, ...]
