"""A document as GitHub Markdown, and as HTML for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkrecall.render.escape import html, markdown
from chunkrecall.render.table import Column, Document, Paragraph, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

# Only inherited colours, so that it reads on a light and on a dark page.
_TABLE_STYLE = "border-collapse:collapse;margin:0.5em 0"
_TITLE_STYLE = "caption-side:top;text-align:left;font-weight:bold"
_CELL_STYLE = "padding:0.2em 0.7em;border-bottom:1px solid currentColor;vertical-align:top"
# Notebooks typeset what stands between dollar signs, except in these classes of MathJax 2 and 3.
_NO_MATH = "tex2jax_ignore mathjax_ignore"


def to_markdown(document: Document) -> str:
    """The document as GitHub Markdown, without a line break at the end."""
    return "\n\n".join(map(_markdown_block, document.blocks))


def _markdown_block(block: Table | Paragraph) -> str:
    if isinstance(block, Paragraph):
        return markdown(block.text)
    lines = [f"**{markdown(block.title)}**", ""] if block.title else []
    lines.append(_markdown_row(markdown(column.title) for column in block.columns))
    lines.append(
        _markdown_row("---:" if column.align == "right" else "---" for column in block.columns)
    )
    lines.extend(_markdown_row(map(markdown, row)) for row in block.rows)
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_html(document: Document) -> str:
    """The document as one HTML element that loads and runs nothing."""
    return f'<div class="chunkrecall">{"".join(map(_html_block, document.blocks))}</div>'


def _html_block(block: Table | Paragraph) -> str:
    if isinstance(block, Paragraph):
        return f'<p class="{_NO_MATH}" style="white-space:pre-wrap">{html(block.text)}</p>'
    title = f'<caption style="{_TITLE_STYLE}">{html(block.title)}</caption>' if block.title else ""
    head = _html_row("th", block.columns, [column.title for column in block.columns])
    body = "".join(_html_row("td", block.columns, row) for row in block.rows)
    return (
        f'<table class="{_NO_MATH}" style="{_TABLE_STYLE}">{title}'
        f"<thead>{head}</thead><tbody>{body}</tbody></table>"
    )


def _html_row(tag: str, columns: Iterable[Column], cells: Iterable[str]) -> str:
    drawn = (
        f'<{tag} style="{_cell_style(column)}">{html(cell)}</{tag}>'
        for column, cell in zip(columns, cells, strict=True)
    )
    return f"<tr>{''.join(drawn)}</tr>"


def _cell_style(column: Column) -> str:
    # Spaces are kept as they are: they may be what keeps a label and a chunk apart.
    wrapping = "white-space:pre-wrap;overflow-wrap:anywhere" if column.wrap else "white-space:pre"
    return f"{_CELL_STYLE};text-align:{column.align};{wrapping}"
