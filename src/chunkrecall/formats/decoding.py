"""Bytes to text and text to JSON values, strictly: nothing is skipped, replaced or guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records.rows import RowError

_BOM = b"\xef\xbb\xbf"
_TELLING = ("NaN", "Infinity", "\\u")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def lines_of(path: Path, problems: list[Problem], encoding: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1; bytes of another encoding are a problem."""
    if not _is_utf8(encoding):
        for number, line in enumerate(text_of(path, encoding).split("\n"), start=1):
            if line.strip():
                yield number, line.strip("\r\n\t ")
        return
    with path.open("rb") as file:
        offset = 0
        for number, raw in enumerate(file, start=1):
            content = raw.removeprefix(_BOM) if number == 1 else raw
            try:
                line = content.decode("utf-8").strip("\r\n\t ")
            except UnicodeDecodeError as error:
                at = offset + error.start + len(raw) - len(content)
                message = _not_decodable(content, error, at)
                place = f"{path} line {number}"
                problems.append(Problem(place, message, file=str(path), row=number))
                if number == 1 and raw.startswith(_UTF_16):
                    return  # no later line can be read either
                line = ""
            offset += len(raw)
            if line:
                yield number, line


def text_of(path: Path, encoding: str) -> str:
    """The text of a whole file, without its byte-order mark.

    Raises:
        DatasetError: It is not in this encoding; names the byte.
        ValueError: There is no such encoding.
    """
    content = path.read_bytes()
    try:
        if _is_utf8(encoding):
            return content.removeprefix(_BOM).decode("utf-8")
        return content.decode(encoding)
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        at = error.start + (len(_BOM) if content.startswith(_BOM) else 0)
        if not _is_utf8(encoding):
            message = f"byte {at} ({content[at]:#04x}) is no {encoding}"
        else:
            message = _not_decodable(content.removeprefix(_BOM), error, at)
        raise DatasetError([Problem(str(path), message, file=str(path))]) from None


def json_of(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        RowError: No JSON, a NaN or Infinity token, a repeated key, or nested too deeply.
    """
    if text.count("{") == 1 and not any(map(text.__contains__, _TELLING)):
        # One object, no constants, no escapes: a key stands twice only where its text does.
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if type(row) is dict and all(text.count(f'"{key}"') == 1 for key in row):
            return row
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise RowError("nested too deeply") from None
    except RowError:
        raise
    except ValueError as error:  # more digits than Python reads
        raise RowError(f"no JSON that Python reads: {error}") from None


def encoded(row: object, *, indent: int | None = None) -> bytes:
    """JSON as UTF-8 with readable characters; lone surrogates, which UTF-8 lacks, as escapes."""
    try:
        return json.dumps(row, allow_nan=False, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False, indent=indent).encode()


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")


def _not_decodable(content: bytes, error: UnicodeDecodeError, at: int) -> str:
    byte = content[error.start]
    if content.startswith(_UTF_16):
        return f'byte {at} ({byte:#04x}) is no UTF-8: the file is UTF-16 — pass encoding="utf-16"'
    return (
        f'byte {at} ({byte:#04x}) is no UTF-8 — save the file as UTF-8, or pass encoding="cp1252" '
        "if it comes from Windows, or whatever it was saved as"
    )


def _refuse_constant(name: str) -> None:
    raise RowError(f"{name} is no JSON value — write null")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        raise RowError(f"repeated keys {repeated} — keep one of each")
    return row
