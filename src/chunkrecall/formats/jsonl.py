"""JSON Lines: one query, or one ranked list, a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records import Dataset, Query, Ranking, Run
from chunkrecall.records.rows import (
    DATASET_HEADER,
    RUN_HEADER,
    RowError,
    check_header,
    dataset_header,
    problem,
    query_from_row,
    query_to_row,
    ranking_from_row,
    ranking_to_row,
    run_header,
)

_Record = TypeVar("_Record", Query, Ranking)


def read_dataset(path: Path) -> Dataset:
    """The dataset of a JSON Lines file.

    Raises:
        DatasetError: Every bad line.
    """
    header, queries = _read(path, DATASET_HEADER, query_from_row)
    return Dataset(queries, name=_name(header, path))


def write_dataset(dataset: Dataset, path: Path) -> None:
    """One line a query after a header line."""
    _write(path, [dataset_header(dataset), *map(query_to_row, dataset.queries)])


def read_run(path: Path) -> Run:
    """The run of a JSON Lines file.

    Raises:
        DatasetError: Every bad line.
    """
    header, rankings = _read(path, RUN_HEADER, ranking_from_row)
    return Run(
        name=_name(header, path),
        rankings=rankings,
        complete=header.get("complete", True),
        settings=header.get("settings") or {},
        notes=tuple(header.get("notes", ())),
    )


def write_run(run: Run, path: Path) -> None:
    """One line a ranked list after a header line, which tells a partial run from a complete one."""
    _write(path, [run_header(run), *map(ranking_to_row, run.rankings)])


def _name(header: dict[str, Any], path: Path) -> str:
    name = header.get("name")
    return path.stem if name is None else str(name)


def _read(
    path: Path, header_key: str, from_row: Callable[[object], _Record]
) -> tuple[dict[str, Any], list[_Record]]:
    header: dict[str, Any] = {}
    records: list[_Record] = []
    problems: list[Problem] = []
    first: dict[str, int] = {}
    for number, line in _lines(path, problems):
        place = f"{path} line {number}"
        try:
            row = _decoded(line)
            if isinstance(row, dict) and header_key in row:
                check_header(row, header_key, is_first=not (header or records))
                header = row
                continue
            record = from_row(row)
        except RowError as error:
            problems.append(problem(place, error))
            continue
        earlier = first.setdefault(record.query_id, number)
        if earlier != number:
            message = (
                f"query_id {record.query_id!r} is taken by line {earlier} — ids must be unique"
            )
            problems.append(Problem(place, message))
            continue
        records.append(record)
    if problems:
        raise DatasetError(problems)
    return header, records


def _lines(path: Path, problems: list[Problem]) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1; bytes that are no UTF-8 are a problem."""
    with path.open("rb") as file:
        offset = 0
        for number, raw in enumerate(file, start=1):
            content = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            try:
                line = content.decode("utf-8").strip("\r\n\t ")
            except UnicodeDecodeError as error:
                at = offset + error.start + len(raw) - len(content)
                problems.append(
                    Problem(
                        f"{path} line {number}",
                        f"byte {at} is no UTF-8 ({content[error.start]:#04x}) — save the file as "
                        "UTF-8",
                    )
                )
                line = ""
            offset += len(raw)
            if line:
                yield number, line


def _decoded(line: str) -> object:
    try:
        return json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise RowError("nested too deeply") from None
    except RowError:
        raise
    except ValueError as error:  # more digits than Python reads
        raise RowError(f"no JSON that Python reads: {error}") from None


def _refuse_constant(name: str) -> None:
    raise RowError(f"{name} is no JSON value — write null")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        raise RowError(f"repeated keys {repeated} — keep one of each")
    return row


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    # ASCII, so surrogates survive; all of it before the file is opened, and what it held is lost.
    lines = [json.dumps(row, allow_nan=False) + "\n" for row in rows]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
