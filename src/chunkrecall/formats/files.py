"""Reading and writing labelled sets and runs by path."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from chunkrecall.formats import jsonl
from chunkrecall.records import Dataset, DatasetInput, Run, as_dataset

Format = Literal["auto", "jsonl"]
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl"}


def load_dataset(path: str | Path, format: Format = "auto") -> Dataset:  # noqa: A002 - the public name
    """The labelled set in a file.

    Args:
        path: A JSON Lines file. Each line is a query: `query_id` (or `id`; the text where there is
            none), `text` (or `query`), `relevant`, `relevant_ids`, `tags`, `metadata`.
        format: "auto" goes by the file name's ending.

    Raises:
        DatasetError: Every bad line, with what was found and what to write instead.
        FileNotFoundError: There is no such file.
    """
    source = Path(path)
    _check_format(source, format)
    return jsonl.read_dataset(source)


def save_dataset(dataset: DatasetInput, path: str | Path) -> None:
    """Write a labelled set as JSON Lines; `load_dataset` gives one with the same fingerprint."""
    target = check_target(path)
    jsonl.write_dataset(as_dataset(dataset), target)


def load_run(path: str | Path, format: Format = "auto") -> Run:  # noqa: A002 - the public name
    """The ranked lists in a file.

    A query that the file lacks retrieved nothing, unless the file's header says that the run is
    partial.

    Args:
        path: A JSON Lines file, `{"query_id", "chunks": [{"text", "chunk_id", "score",
            "metadata"}]}` a line.
        format: "auto" goes by the file name's ending.

    Raises:
        DatasetError: Every bad line, with what was found and what to write instead.
        FileNotFoundError: There is no such file.
    """
    source = Path(path)
    _check_format(source, format)
    return jsonl.read_run(source)


def save_run(run: Run, path: str | Path) -> None:
    """Write ranked lists as JSON Lines; `load_run` gives equal ones.

    Metadata values that JSON cannot hold are written as text.
    """
    jsonl.write_run(run, check_target(path))


def check_target(path: str | Path) -> Path:
    """The path, if a file can be written there in a known format.

    Raises:
        ValueError: The ending is none that we write.
        FileNotFoundError: There is no such folder.
    """
    target = Path(path)
    if target.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"{target}: cannot tell the format by the ending {target.suffix!r}; known endings: "
            f"{', '.join(_SUFFIXES)}"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {str(target.parent)!r}")
    return target


def _check_format(path: Path, name: str) -> None:
    if name not in ("auto", "jsonl"):
        raise ValueError(f"unknown format {name!r}; known: 'auto', 'jsonl'")
    if name == "auto" and path.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"{path}: cannot tell the format by the ending {path.suffix!r}; known endings: "
            f"{', '.join(_SUFFIXES)} — or pass format='jsonl'"
        )
