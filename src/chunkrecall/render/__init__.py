"""Hostile text, numbers and tables made fit to be shown: terminal, Markdown, HTML."""

from chunkrecall.render.escape import html, markdown, printable, quoted
from chunkrecall.render.markup import to_html, to_markdown
from chunkrecall.render.numbers import count, percent, seconds, share
from chunkrecall.render.table import Column, Document, Paragraph, Table
from chunkrecall.render.terminal import to_terminal

__all__ = [
    "Column",
    "Document",
    "Paragraph",
    "Table",
    "count",
    "html",
    "markdown",
    "percent",
    "printable",
    "quoted",
    "seconds",
    "share",
    "to_html",
    "to_markdown",
    "to_terminal",
]
