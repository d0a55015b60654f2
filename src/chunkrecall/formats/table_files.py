"""Labelled sets and runs as CSV, TSV and Parquet tables: our own columns, without loss.

A first row holds nothing but the file's header, as JSON in a column of its own. Its presence says
that the table is ours, and so that cells which a spreadsheet would take for a formula have an
apostrophe in front.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.formats.cells import list_cell, object_cell
from chunkrecall.formats.decoding import json_of
from chunkrecall.formats.tables import DELIMITERS, polars_module
from chunkrecall.records import Dataset, Run
from chunkrecall.records.rows import (
    DATASET_HEADER,
    RUN_HEADER,
    dataset_header,
    query_to_row,
    ranking_to_row,
    run_header,
)

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_TEXTS = ("query_id", "text", "id")
_WORDS = ("relevant_ids", "tags")
_LISTS = ("relevant", "chunks", *_WORDS)


def native_row(cells: Mapping[str, Any], *, is_ours: bool, is_text: bool) -> dict[str, Any]:
    """The JSON row that a table's row stands for; an empty cell is an absent value.

    Args:
        cells: By column.
        is_ours: Whether we wrote the table.
        is_text: Whether its cells are all text, as in CSV.

    Raises:
        RowError: A cell that cannot be read.
    """
    row: dict[str, Any] = {}
    for column, cell in cells.items():
        if column in (DATASET_HEADER, RUN_HEADER):
            continue
        value = cell
        if isinstance(cell, str):
            if column in _LISTS:
                value = list_cell(cell, column, one_word=column in _WORDS)
            elif column == "metadata":
                value = object_cell(cell, column)
            elif column in ("query", "error", "latency_s") and is_ours:
                value = json_of(cell) if cell else None
            elif column == "latency_s" and is_text:
                value = json_of(cell) if cell.strip() else None
            elif is_ours and is_text and cell.startswith("'") and cell[1:].startswith(_FORMULA):
                value = cell[1:]
            elif is_text and not cell and column not in ("text", "query"):
                value = None
        if value is not None:
            row[column] = value
    return row


def header_in(cells: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """The header that a row of one of our tables holds.

    Raises:
        RowError: It is no JSON object.
    """
    cell = cells.get(key)
    return object_cell(cell, key) if isinstance(cell, str) and cell else None


def write_dataset_table(dataset: Dataset, path: Path, container: str) -> None:
    """One row a query.

    Raises:
        DatasetError: Texts that the format cannot hold: lone surrogates.
    """
    columns = ("query_id", "text", "relevant", "tags", "metadata", DATASET_HEADER)
    rows = [dict(row) for row in map(query_to_row, dataset.queries)]
    _write(path, container, columns, dataset_header(dataset), rows)


def write_run_table(run: Run, path: Path, container: str) -> None:
    """One row a ranked list.

    Raises:
        DatasetError: Texts that the format cannot hold: lone surrogates.
    """
    columns = ("query_id", "query", "chunks", "error", "latency_s", RUN_HEADER)
    rows = [dict(row) for row in map(ranking_to_row, run.rankings)]
    _write(path, container, columns, run_header(run), rows)


def _write(
    path: Path,
    container: str,
    columns: tuple[str, ...],
    header: dict[str, Any],
    rows: Iterable[dict[str, Any]],
) -> None:
    is_text = container in DELIMITERS
    table: list[list[str | None]] = [[None] * (len(columns) - 1) + [_json(header)]]
    problems = []
    for index, row in enumerate(rows):
        cells = [_cell(row.get(column), column, is_text=is_text) for column in columns[:-1]]
        for column, cell in zip(columns, cells, strict=False):
            try:
                (cell or "").encode()
            except UnicodeEncodeError as error:
                found = f"a lone surrogate {(cell or '')[error.start]!r}"
                place = f"query {row['query_id']!r:.80}, column {column!r}"
                problems.append(
                    Problem(
                        place,
                        f"{found}, which {container} cannot hold — write JSON Lines instead",
                        file=str(path),
                        row=index,
                        column=column,
                    )
                )
        table.append([*cells, None])
    if problems:
        raise DatasetError(problems)
    if is_text:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=DELIMITERS[container], lineterminator="\r\n")
        writer.writerows([columns, *table])
        path.write_bytes(text.getvalue().encode())
    else:
        polars = polars_module()
        frame = polars.DataFrame(
            {name: [row[index] for row in table] for index, name in enumerate(columns)},
            schema=dict.fromkeys(columns, polars.String),
        )
        frame.write_parquet(path)


def _cell(value: Any, column: str, *, is_text: bool) -> str | None:
    if value is None:
        return None
    if column in _TEXTS:
        text: str = value
        return f"'{text}" if is_text and text.startswith(_FORMULA) else text
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
