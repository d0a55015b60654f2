"""Writing JSON Lines and JSON: one row a query, or a ranked list, after a header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chunkrecall.formats.decoding import encoded
from chunkrecall.records import Dataset, Run
from chunkrecall.records.rows import (
    dataset_header,
    query_to_row,
    ranking_to_row,
    run_header,
)


def write_dataset(dataset: Dataset, path: Path, container: str) -> None:
    """One row a query after a header row; in a JSON file, one object with the rows inside."""
    _write(path, container, dataset_header(dataset), "queries", map(query_to_row, dataset.queries))


def write_run(run: Run, path: Path, container: str) -> None:
    """One row a ranked list after a header, which tells a partial run from a complete one."""
    _write(path, container, run_header(run), "rankings", map(ranking_to_row, run.rankings))


def _write(path: Path, container: str, header: dict[str, Any], key: str, rows: Any) -> None:
    # All of it is made before the file is opened and what it held is lost.
    if container == "json":
        path.write_bytes(encoded({**header, key: list(rows)}, indent=1) + b"\n")
    else:
        path.write_bytes(b"".join([encoded(row) + b"\n" for row in (header, *rows)]))
