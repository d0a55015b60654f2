"""The rows of a file of any container, each with its place."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from chunkrecall.errors import DatasetError, MissingExtraError, Problem
from chunkrecall.formats.decoding import json_of, lines_of, text_of
from chunkrecall.records.rows import RowError, problem

DELIMITERS = {"csv": ",", "tsv": "\t"}
_CSV_LIMIT = Lock()


Row = tuple[int, Any]
"""A row's number and what it holds."""


def place_of(path: Path, container: str, number: int) -> str:
    """Where a row is, for a reader."""
    return f"{path} {'line' if container == 'jsonl' else 'row'} {number}"


def rows_of(path: Path, container: str, encoding: str, problems: list[Problem]) -> Iterator[Row]:
    """The rows of a jsonl, json, csv, tsv or parquet file, in order.

    Lines and rows are numbered from 1; a table's header is row 1. What cannot be read is a problem.

    Raises:
        MissingExtraError: Parquet without polars.
    """
    if container == "jsonl":
        yield from _of_lines(path, encoding, problems)
    elif container == "json":
        yield from _of_json(path, encoding)
    elif container == "parquet":
        yield from _of_parquet(path)
    else:
        yield from _of_csv(path, DELIMITERS[container], encoding, problems)


def json_rows(path: Path, problems: list[Problem]) -> Iterator[Row]:
    """The rows of a JSON Lines file; what cannot be read is a problem."""
    return _of_lines(path, "utf-8", problems)


def _of_lines(path: Path, encoding: str, problems: list[Problem]) -> Iterator[Row]:
    for number, line in lines_of(path, problems, encoding):
        try:
            value = json_of(line)
        except RowError as error:
            place = place_of(path, "jsonl", number)
            problems.append(problem(place, error, file=str(path), row=number))
            continue
        yield number, value


def json_file(path: Path, encoding: str) -> Any:
    """The value of a JSON file.

    Raises:
        DatasetError: It holds none.
    """
    try:
        return json_of(text_of(path, encoding))
    except RowError as error:
        raise DatasetError([problem(str(path), error, file=str(path))]) from None


def _of_json(path: Path, encoding: str) -> Iterator[Row]:
    value = json_file(path, encoding)
    yield from enumerate(_listed(value, path))


def _listed(value: Any, path: Path) -> Sequence[Any]:
    """The rows in a JSON value: a list; or one of columns, split into names and data."""
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        columns, cells = value.get("columns"), value.get("data")
        if isinstance(columns, list) and isinstance(cells, list):
            _check_columns(columns, path)
            return [
                dict(zip(columns, row, strict=True))
                if isinstance(row, list) and len(row) == len(columns)
                else row
                for row in cells
            ]
        for key in ("queries", "rankings", "examples", "data"):
            if isinstance(value.get(key), list):
                return value[key]  # type: ignore[no-any-return]
        if value and all(isinstance(column, list) for column in value.values()):
            lengths = {len(column) for column in value.values()}
            if len(lengths) == 1:
                names = list(value)
                return [
                    dict(zip(names, cells, strict=True))
                    for cells in zip(*value.values(), strict=True)
                ]
    kind = f"an object with {sorted(value)!r:.200}" if isinstance(value, Mapping) else repr(value)
    raise DatasetError(
        [Problem(str(path), f"expected a list of rows, got {kind:.200}", file=str(path))]
    )


def _check_columns(columns: list[Any], path: Path) -> None:
    """Names of columns are texts, each there once.

    Raises:
        DatasetError: One that is not.
    """
    for index, name in enumerate(columns):
        if not isinstance(name, str):
            message = f'"columns"[{index}] must be a text, got {name!r:.80}'
        elif name in columns[:index]:
            message = f"two columns have the name {name!r:.80} — keep one of each"
        else:
            continue
        raise DatasetError([Problem(str(path), message, file=str(path), column="columns")])


def _of_csv(path: Path, delimiter: str, encoding: str, problems: list[Problem]) -> Iterator[Row]:
    with _long_cells():
        # io keeps \r and \n inside cells as they are.
        reader = csv.reader(
            io.StringIO(text_of(path, encoding), newline=""), delimiter=delimiter, strict=True
        )
        header: list[str] | None = None
        number = 0
        try:
            for cells in reader:
                number += 1
                if not cells:
                    continue
                if header is None:
                    header = _header(cells, path)
                    continue
                if len(cells) != len(header):
                    place = place_of(path, "csv", number)
                    message = f"{len(cells)} cells under {len(header)} columns {header!r:.200}"
                    problems.append(Problem(place, message, file=str(path), row=number))
                    continue
                yield number, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            place = f"{path} row {number + 1}"
            problems.append(Problem(place, f"no CSV: {error}", file=str(path), row=number + 1))


def _header(cells: list[str], path: Path) -> list[str]:
    names = [cell.strip() for cell in cells]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        message = f"two columns have the name {repeated[0]!r}"
        raise DatasetError([Problem(f"{path} row 1", message, file=str(path), row=1)])
    return names


@contextmanager
def _long_cells() -> Iterator[None]:
    """The csv module refuses cells above 128 kB; its limit is one for the process."""
    with _CSV_LIMIT:
        before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _of_parquet(path: Path) -> Iterator[Row]:
    polars = polars_module()
    try:
        frame = polars.read_parquet(path)
    except (OSError, ValueError, polars.exceptions.PolarsError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        message = f"no Parquet: {str(error).splitlines()[0]:.200}"
        raise DatasetError([Problem(str(path), message, file=str(path))]) from None
    yield from enumerate(frame.iter_rows(named=True))


def polars_module() -> Any:
    """Polars, which reads and writes Parquet.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise MissingExtraError("scale", needed_for="reading and writing Parquet") from error
    return pl
