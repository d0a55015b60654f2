"""Hostile text made safe to show: in a terminal, in a message, in Markdown and in HTML.

Chunk texts, query texts and error messages come from anywhere. `printable` decides what is shown,
and the other functions add only what their medium needs, so that all media show the same text. A
`limit` counts the characters that are shown, and is at least 1.
"""

from __future__ import annotations

import re
from html import escape as html_escape
from itertools import islice
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Iterator

# Controls, format characters (bidi among them), surrogates, private use, line and paragraph breaks.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Signs that span the digits after them: format characters by category, but with a glyph.
_VISIBLE_FORMAT = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# Letters, marks and unassigned code points that are default-ignorable, and the noncharacters.
_HIDDEN_ELSEWHERE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufdd0-\ufdef\ufe00-\ufe0f\uffa0"
    r"\ufff0-\ufff8\ufffe\uffff\U000e0000-\U000e0fff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
    + "]"
)
# No orthography stacks more; a tall stack covers the lines above.
_COMBINING_MARKS_IN_A_ROW = 4


def printable(text: str, *, limit: int | None = None) -> str:
    r"""The text on one line, safe in any terminal, with visible escapes for what cannot be shown.

    Escapes look like Python's (`\n`, `\x1b`, `\u202e`), also for every invisible character, such
    as joiners and variation selectors in emoji. Letters of every script, symbols and spaces stay,
    and so does a backslash: `quoted` is the unambiguous form.

    Raises:
        ValueError: limit is below 1.
    """
    if text.isascii() and text.isprintable() and (limit is None or 0 < len(text) <= limit):
        return text
    return _cut(_pieces(text), limit)


def quoted(text: str, *, limit: int | None = None) -> str:
    """The printable text in single quotes, unambiguous: backslash and quote are escaped.

    The limit includes the quotes.

    Raises:
        ValueError: limit is below 3.
    """
    shown = text if limit is None or len(text) <= limit - 2 else text[: max(0, limit - 2)]
    if shown.isascii() and shown.isprintable() and "\\" not in shown and "'" not in shown:
        if shown is text and (limit is None or limit > 2):
            return f"'{text}'"
        if len(shown) > 1:
            return f"'{shown[:-1]}…'"
    pieces = (f"\\{piece}" if piece in ("\\", "'") else piece for piece in _pieces(text))
    return f"'{_cut(pieces, limit, around=2)}'"


def html(text: str, *, limit: int | None = None) -> str:
    """The printable text as HTML, for an element or a quoted attribute."""
    return html_escape(printable(text, limit=limit), quote=True)


def markdown(text: str, *, limit: int | None = None) -> str:
    """The printable text as GitHub Markdown that shows exactly it, in a table cell or paragraph.

    No link, mention, reference, emoji, formula, image, entity or HTML tag of the text takes effect.
    """
    shown = printable(text, limit=limit)
    # Printable text has no NUL, so that NUL can stand for the break until the rest is escaped.
    shown = _GITHUB_REFERENCE.sub("\0", shown)
    shown = _MARKUP.sub(r"\\\g<0>", shown)
    shown = _BLOCK_START.sub(r"\g<1>\\", shown)
    shown = _OUTER_SPACE.sub(_as_entities, shown)
    return shown.replace("\0", _BREAK)


_MARKUP = re.compile(r"[\\`*_\[\]<>|~&$]")
# A list, a heading, an underline or a rule; only at the start of a paragraph.
_BLOCK_START = re.compile(r"^(\d{0,9})(?=[-+=#.)](?:[-=#\s]|$))")
# Cells are trimmed, and four spaces make code. The look-behind keeps a long inner run linear.
_OUTER_SPACE = re.compile(r"^\s+|(?<!\s)\s+$")
# GitHub looks for these after Markdown is rendered, where no backslash or entity is left
# (github/cmark-gfm#181). An empty comment shows nothing and keeps the two sides apart.
_BREAK = "<!-- -->"
_GITHUB_REFERENCE = re.compile(
    r"(?<=@)(?<![a-z0-9]@)(?=.)|(?<=@)(?=[\w.-]*\.\w)"  # mention; email address
    r"|(?<=\#)(?=\d)|(?<=gh)(?=-\d)"  # issue
    r"|(?<=:)(?=//|[\w+-]+:)|(?<=www)(?=\.)"  # URL; emoji; web address without a scheme
    r"|(?<=\$)(?=.)",  # formula
    re.IGNORECASE | re.ASCII,
)


def _as_entities(spaces: re.Match[str]) -> str:
    return "".join(f"&#{ord(space)};" for space in spaces[0])


def _pieces(text: str) -> Iterator[str]:
    """Each character as it is shown: itself or its escape."""
    marks = 0
    for character in text:
        kind = category(character)
        marks = marks + 1 if kind.startswith("M") else 0
        hidden = kind in _HIDDEN_CATEGORIES and character not in _VISIBLE_FORMAT
        if hidden or marks > _COMBINING_MARKS_IN_A_ROW or _HIDDEN_ELSEWHERE.match(character):
            yield character.encode("unicode_escape").decode("ascii")
        else:
            yield character


def _cut(pieces: Iterator[str], limit: int | None, *, around: int = 0) -> str:
    """The pieces, or as many whole ones as leave room for an ellipsis and what is put around."""
    if limit is None:
        return "".join(pieces)
    room = limit - around
    if room < 1:
        raise ValueError(f"limit must be None or at least {around + 1}, got {limit}")
    # A piece has at least one character, so that the rest of a long text need not be read.
    shown = list(islice(pieces, room + 1))
    length = sum(map(len, shown))
    if length <= room:
        return "".join(shown)
    while length > room - 1:
        length -= len(shown.pop())
    return "".join(shown) + "…"
