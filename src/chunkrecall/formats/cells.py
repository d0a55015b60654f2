"""Lists and objects that stand as text in a cell of a table."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from typing import Any

from chunkrecall.formats.decoding import json_of
from chunkrecall.records.rows import RowError

_LONGEST_LITERAL = 1_000_000
_DEEPEST = 20
_ONE_WORD = re.compile(r"[^\s\[\](){}\"',;|]+")
_SHOWN = 80


def list_cell(text: str, column: str, *, one_word: bool = False) -> list[Any] | None:
    """The list in a cell; None for an empty cell.

    JSON first, then a Python literal of lists, texts and numbers. Nothing is evaluated, and no
    separator is guessed.

    Args:
        text: The cell.
        column: Its column, for the error.
        one_word: Whether a cell of one word without brackets is a list of that word, as ids are.

    Raises:
        RowError: It holds anything else.
    """
    content = text.strip()
    if not content:
        return None
    if one_word and _ONE_WORD.fullmatch(content):
        return [content]
    value = _value(content, column)
    if not isinstance(value, list):
        raise RowError(
            f'"{column}" must be a list, got {text!r:.{_SHOWN}} — write it as JSON, e.g. ["…"]',
            column,
        )
    return value


def object_cell(text: str, column: str) -> dict[str, Any] | None:
    """The JSON object, or Python dict literal, in a cell; None for an empty cell.

    Raises:
        RowError: It holds anything else.
    """
    content = text.strip()
    if not content:
        return None
    value = _value(content, column)
    if not isinstance(value, dict):
        message = f'"{column}" must be a JSON object, got {text!r:.{_SHOWN}}'
        raise RowError(message, column)
    return value


def _value(content: str, column: str) -> Any:
    try:
        return json_of(content)
    except RowError as error:
        if not content.startswith(("[", "(", "{")) or "no JSON:" not in str(error):
            raise _malformed(content, column, str(error)) from None
    return _literal(content, column)


def _literal(content: str, column: str) -> Any:
    if len(content) > _LONGEST_LITERAL:
        raise _malformed(content, column, "too long for a Python literal")
    if _depth(content) > _DEEPEST:
        raise _malformed(content, column, "nested too deeply")
    _refuse_glue(content, column)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a text
            value = ast.literal_eval(content)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise _malformed(content, column, "neither JSON nor a plain Python list") from None
    return _plain(value, content, column)


def _refuse_glue(content: str, column: str) -> None:
    """Two texts without a comma, which Python joins into one; and three dots for what is left out.

    That is how numpy prints an array.
    """
    before = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT):
                continue
            if token.type == tokenize.STRING and before == tokenize.STRING:
                raise _malformed(content, column, "two texts without a comma between them")
            if token.string == "...":
                raise _malformed(content, column, "cells abbreviated with dots")
            before = token.type
    except (tokenize.TokenError, SyntaxError):
        raise _malformed(content, column, "neither JSON nor a plain Python list") from None


def _plain(value: Any, content: str, column: str) -> Any:
    """The literal as JSON values: tuples as lists, and no bytes, sets or complex numbers."""
    if isinstance(value, (list, tuple)):
        return [_plain(item, content, column) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, content, column) for key, item in value.items()}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise _malformed(content, column, f"it holds a {type(value).__name__}")


def _depth(content: str) -> int:
    deepest = depth = 0
    for character in content:
        if character in "[({":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "])}":
            depth -= 1
    return deepest


def _malformed(content: str, column: str, why: str) -> RowError:
    return RowError(
        f'"{column}" cannot be read ({why}): {content!r:.{_SHOWN}} — write it as JSON, e.g. ["…"]',
        column,
    )
