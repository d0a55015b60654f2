"""A document drawn with characters, for a terminal or a log."""

from __future__ import annotations

from io import StringIO
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from chunkrecall.render.escape import printable
from chunkrecall.render.table import Document, Paragraph, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

_SIZE_WITHOUT_TERMINAL = (100, 24)
_NARROWEST = 40


def to_terminal(document: Document, *, width: int | None = None, color: bool = False) -> str:
    """The document as lines of at most `width` columns, without a line break at the end.

    Args:
        document: What is drawn.
        width: Columns, at least 40 (less is taken as 40); None for the terminal's, or 100 where
            there is none.
        color: Whether headings are styled with ANSI codes; without it there are none.
    """
    from rich.console import Console

    columns, lines = get_terminal_size(_SIZE_WITHOUT_TERMINAL)
    # All is given, because what is not is taken from the environment (NO_COLOR, TERM, COLUMNS …).
    console = Console(
        file=StringIO(),
        width=max(columns if width is None else width, _NARROWEST),
        height=lines,
        force_terminal=color,
        force_jupyter=False,
        color_system="standard" if color else None,
        no_color=not color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    blocks = []
    for block in document.blocks:
        with console.capture() as capture:
            for drawn in _drawn(block, console.width):
                console.print(drawn)
        blocks.append("\n".join(line.rstrip(" ") for line in capture.get().splitlines()))
    return "\n\n".join(blocks)


def _drawn(block: Table | Paragraph, width: int) -> list[RenderableType]:
    from rich.text import Text

    if isinstance(block, Paragraph):
        return [Text(printable(block.text), overflow="fold")]
    table = _drawn_table(block, width)
    if not block.title:
        return [table]
    return [Text(printable(block.title), style="bold", overflow="fold"), table]


def _drawn_table(table: Table, width: int) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    wrapping = any(column.wrap for column in table.columns)
    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        drawn.add_column(
            Text(printable(column.title)),
            header_style="bold",
            justify=column.align,
            no_wrap=not column.wrap,
            # Rich takes all it can from the wrapping columns first, down to nothing.
            max_width=width // 3 if wrapping and not column.wrap else None,
            overflow="fold" if column.wrap else "ellipsis",
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn
