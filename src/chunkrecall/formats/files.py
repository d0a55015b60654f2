"""Reading and writing labelled sets and runs by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from chunkrecall.adapters import to_chunk
from chunkrecall.errors import DatasetError, Problem
from chunkrecall.formats import jsonl, table_files, trec
from chunkrecall.formats.layouts import (
    LAYOUTS,
    QUERY_COLUMNS,
    Layout,
    layout_of,
    query_from_foreign,
    ranking_from_foreign,
)
from chunkrecall.formats.llama_index import dataset_from_llama_index
from chunkrecall.formats.tables import DELIMITERS, Row, json_file, place_of, rows_of
from chunkrecall.formats.trec import ORDERS, Order
from chunkrecall.records import (
    Chunk,
    Chunks,
    Dataset,
    DatasetInput,
    Query,
    Ranking,
    Run,
    as_dataset,
)
from chunkrecall.records.rows import (
    DATASET_HEADER,
    RUN_HEADER,
    RowError,
    check_header,
    problem,
    query_from_row,
    ranking_from_row,
)

Format = Literal[
    "auto",
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "trec",
    "beir",
    "llama-index",
    "langsmith",
    "ragas",
    "deepeval",
    "mlflow",
    "huggingface",
]
FORMATS: tuple[str, ...] = Format.__args__  # type: ignore[attr-defined]
_CONTAINERS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_LOSSLESS = ("jsonl", "json", "csv", "tsv", "parquet")
_LARGE_BYTES = 256 * 1024 * 1024
_PICKLED = (".pkl", ".pickle", ".joblib", ".dill", ".npy", ".npz", ".pt", ".pth")
_Record = TypeVar("_Record", Query, Ranking)


def load_dataset(
    path: str | Path,
    format: Format = "auto",  # noqa: A002 - the public name
    *,
    query: str | None = None,
    relevant: str | None = None,
    relevant_ids: str | None = None,
    query_id: str | None = None,
    tags: str | None = None,
    topics: str | Path | None = None,
    split: str = "test",
    encoding: str = "utf-8",
) -> Dataset:
    """The labelled set in a file.

    A row is a query: `query_id` (or `id`; the text where there is none), `text` (or `query`),
    `relevant`, `relevant_ids`, `tags`, `metadata`. In tables, lists are JSON, or Python literals of
    lists; no separator is guessed. What a file calls an answer, or what was retrieved, is never a
    label.

    Args:
        path: The file; a folder for "beir".
        format: "auto" goes by the name's ending: .jsonl, .json, .csv, .tsv, .parquet; in a .json
            file the shapes of LlamaIndex's former dataset classes are known too. "ragas",
            "deepeval", "mlflow", "langsmith" and "huggingface" are those tools' column names in any
            of these. "trec" is a qrels file.
        query: The column of the query text, where it is another one. Dots lead into objects:
            "inputs.question".
        relevant: The column of the relevant chunk texts.
        relevant_ids: The column of the relevant chunk ids.
        query_id: The column of the query's id.
        tags: The column of the tags.
        topics: For "trec": a file of lines `id<TAB>query text`.
        split: For "beir": which file of the folder `qrels`.
        encoding: The file's encoding; a byte-order mark is removed.

    Raises:
        DatasetError: Every bad row, with what was found and what to write instead.
        ValueError: The format is unknown or cannot be told, or pickled data is named.
        FileNotFoundError: There is no such file.
        MissingExtraError: Parquet without polars.
    """
    source = Path(path)
    kind = _format_of(source, format)
    columns = {
        "query": query,
        "relevant": relevant,
        "relevant_ids": relevant_ids,
        "query_id": query_id,
        "tags": tags,
    }
    if kind == "trec":
        return trec.read_qrels(source, None if topics is None else Path(topics), encoding)
    if topics is not None:
        raise ValueError(f"topics= goes with format='trec', not with {kind!r}")
    if kind == "beir":
        return trec.read_beir(source, split, encoding)
    layout = layout_of(kind if kind in LAYOUTS else None, **columns)
    if layout is None and kind in ("json", "llama-index"):
        return _json_dataset(source, kind, encoding)
    container = _container_of(source, kind)
    notes = (layout.note,) if layout is not None and layout.note else ()
    header, queries = _read(source, container, encoding, DATASET_HEADER, layout)
    return Dataset(queries, name=_name(header, source), notes=notes)


def save_dataset(
    dataset: DatasetInput,
    path: str | Path,
    format: Format = "auto",  # noqa: A002 - the public name
) -> None:
    """Write a labelled set; `load_dataset` gives one with the same fingerprint.

    "auto" goes by the name's ending: .jsonl, .json, .csv, .tsv or .parquet, all without loss.
    "trec" writes qrels, which hold ids and grades alone. Metadata values that JSON cannot hold are
    written as text.

    Raises:
        DatasetError: Labels or texts that the format cannot hold.
        ValueError: The format is unknown, or one that is only read.
        FileNotFoundError: There is no such folder.
    """
    target = check_target(path, format)
    labelled = as_dataset(dataset)
    kind = _written_format(target, format)
    if kind == "trec":
        trec.write_qrels(labelled, target)
    elif kind in ("jsonl", "json"):
        jsonl.write_dataset(labelled, target, kind)
    else:
        table_files.write_dataset_table(labelled, target, kind)


def load_run(
    path: str | Path,
    format: Format = "auto",  # noqa: A002 - the public name
    *,
    order: Order = "rank",
    query: str | None = None,
    retrieved: str | None = None,
    retrieved_ids: str | None = None,
    query_id: str | None = None,
    encoding: str = "utf-8",
) -> Run:
    """The ranked lists in a file.

    A query that the file lacks retrieved nothing, unless the file's header says that the run is
    partial. A row is `{"query_id", "chunks": [{"text", "chunk_id", "score", "metadata"}]}`.

    Args:
        path: The file.
        format: As in `load_dataset`.
        order: For "trec": "rank", "score" (equal scores by rank) or "trec_eval" (equal scores by
            descending document id).
        query: The column of the query text, where it is another one.
        retrieved: The column of the retrieved chunk texts.
        retrieved_ids: The column of the retrieved chunk ids.
        query_id: The column of the query's id; the text where there is none.
        encoding: The file's encoding.

    Raises:
        DatasetError: Every bad row, with what was found and what to write instead.
        ValueError: The format or order is unknown or cannot be told, or pickled data is named.
        FileNotFoundError: There is no such file.
        MissingExtraError: Parquet without polars.
    """
    source = Path(path)
    kind = _format_of(source, format)
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
    if kind == "trec":
        return trec.read_run(source, order, encoding)
    if kind in ("beir", "llama-index"):
        raise ValueError(f"format {kind!r} holds labels, no ranked lists")
    layout = layout_of(
        kind if kind in LAYOUTS else None,
        query=query,
        retrieved=retrieved,
        retrieved_ids=retrieved_ids,
        query_id=query_id,
    )
    container = _container_of(source, kind)
    header, rankings = _read(source, container, encoding, RUN_HEADER, layout)
    notes = (layout.note,) if layout is not None and layout.note else ()
    return Run(
        name=_name(header, source),
        rankings=rankings,
        complete=header.get("complete", True),
        settings=header.get("settings") or {},
        notes=(*header.get("notes", ()), *notes),
    )


def save_run(
    run: Run,
    path: str | Path,
    format: Format = "auto",  # noqa: A002 - the public name
) -> None:
    """Write ranked lists; `load_run` gives equal ones.

    Formats are those of `save_dataset`; "trec" holds ids and ranks alone. Metadata values that JSON
    cannot hold are written as text.

    Raises:
        DatasetError: Chunks or texts that the format cannot hold.
        ValueError: The format is unknown, or one that is only read.
        FileNotFoundError: There is no such folder.
    """
    target = check_target(path, format)
    kind = _written_format(target, format)
    if kind == "trec":
        trec.write_run(run, target)
    elif kind in ("jsonl", "json"):
        jsonl.write_run(run, target, kind)
    else:
        table_files.write_run_table(run, target, kind)


def load_corpus(path: str | Path, *, encoding: str = "utf-8") -> Chunks:
    """All chunks that are indexed, from a file of rows with an id and a text.

    Rows are as those of a run's `chunks`: `text` (or `page_content`), `id` or `chunk_id` (BEIR's
    `_id`), `metadata`.

    Raises:
        DatasetError: Every bad row.
        ValueError: The format cannot be told.
    """
    source = Path(path)
    container = _container_of(source, _format_of(source, "auto"))
    problems: list[Problem] = []
    chunks: list[Chunk] = []
    for number, row in rows_of(source, container, encoding, problems):
        try:
            chunks.append(_corpus_chunk(row, number))
        except TypeError as error:
            place = place_of(source, container, number)
            problems.append(Problem(place, str(error), file=str(source), row=number))
    if problems:
        raise DatasetError(problems)
    return Chunks.of(chunks)


def _corpus_chunk(row: object, number: int) -> Chunk:
    if not isinstance(row, (str, dict)):
        raise TypeError(f"expected an object with a text, got {row!r:.80}")
    if isinstance(row, dict):
        row = {"id": row.get("_id"), **row}
        if not isinstance(row.get("metadata"), dict):  # a table's cell
            row["metadata"] = None
    return to_chunk(row, number)


def check_target(path: str | Path, format: Format = "auto") -> Path:  # noqa: A002 - as above
    """The path, if a file can be written there in a known format.

    Raises:
        ValueError: The format, or the ending, is none that we write.
        FileNotFoundError: There is no such folder.
        IsADirectoryError: The path itself is a folder.
    """
    target = Path(path)
    _written_format(target, format)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {str(target.parent)!r}")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file in it")
    return target


def _written_format(path: Path, name: str) -> str:
    kind = _format_of(path, name, is_read=False)
    if kind not in (*_LOSSLESS, "trec"):
        known = ", ".join(map(repr, (*_LOSSLESS, "trec")))
        raise ValueError(f"format {kind!r} is only read; {known} are written")
    return kind


def _format_of(path: Path, name: str, *, is_read: bool = True) -> str:
    """The format; "auto" by the ending of the name."""
    suffix = path.suffix.lower()
    if suffix in _PICKLED:
        raise ValueError(
            f"{path}: {suffix} files are refused, since a pickle can run any code when it is read "
            "— export it as JSON Lines, JSON, CSV or Parquet"
        )
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}; known: {', '.join(map(repr, FORMATS))}")
    if name != "auto":
        return name
    if suffix in _CONTAINERS:
        return _CONTAINERS[suffix]
    if is_read and path.is_dir() and (path / "qrels").is_dir():
        return "beir"
    raise ValueError(
        f"{path}: cannot tell the format by the ending {path.suffix!r}; known endings: "
        f"{', '.join(_CONTAINERS)} — or name it: format='trec', …"
    )


def _container_of(path: Path, kind: str) -> str:
    if kind in _LOSSLESS:
        return kind
    container = _CONTAINERS.get(path.suffix.lower())
    if container is None:
        raise ValueError(
            f"{path}: format {kind!r} is a set of columns; the file's ending must be one of "
            f"{', '.join(_CONTAINERS)}"
        )
    return container


def _json_dataset(path: Path, kind: str, encoding: str) -> Dataset:
    """The dataset of a JSON file: our own, a list of rows, LlamaIndex's shapes, or a mapping."""
    value = json_file(path, encoding)
    is_ours = isinstance(value, Mapping) and DATASET_HEADER in value
    found = None if is_ours else dataset_from_llama_index(value, name=path.stem)
    if found is not None:
        return found
    if kind == "llama-index":
        keys = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        expected = "an object with queries and relevant_docs, or with examples"
        message = f"expected {expected}; got {keys!r:.200}"
        raise DatasetError([Problem(str(path), message, file=str(path))])
    is_table = isinstance(value, Mapping) and isinstance(value.get("columns"), list)
    if isinstance(value, Mapping) and not is_ours and not is_table:
        _refuse_columns(value, path)
        rows: list[Row] = [
            (index, {"text": text, "relevant": labels})
            for index, (text, labels) in enumerate(value.items())
        ]
        queries = _records(path, "json", rows, [], query_from_row)
        return Dataset(queries, name=path.stem)
    header, read = _read(path, "json", encoding, DATASET_HEADER, None)
    return Dataset(read, name=_name(header, path))


def _refuse_columns(value: Mapping[str, Any], path: Path) -> None:
    """A table by columns, or one row, must not be read as a mapping of query texts.

    Raises:
        DatasetError: The keys name a column of queries and one beside it.
    """
    queries = [key for key in value if key in QUERY_COLUMNS]
    if not queries or len(value) < 2:
        return
    message = (
        f"the keys {sorted(value)!r:.200} are column names, and a mapping has query texts — write "
        'a list of rows, [{"query": "…", "relevant": ["…"]}] (pandas: orient="records"), or name '
        "the columns with query=… and relevant=…"
    )
    raise DatasetError([Problem(str(path), message, file=str(path))])


def _read(
    path: Path, container: str, encoding: str, header_key: str, layout: Layout | None
) -> tuple[dict[str, Any], list[Any]]:
    """The header, if the file is ours and has one, and the records."""
    problems: list[Problem] = []
    header: dict[str, Any] = {}
    is_dataset = header_key == DATASET_HEADER
    is_table = container in (*DELIMITERS, "parquet")

    def native(rows: Iterable[Row]) -> Iterable[Row]:
        """The rows as they stand in JSON Lines, without the header."""
        is_first = True
        for number, value in rows:
            if not is_table and not (isinstance(value, dict) and header_key in value):
                is_first = False
                yield number, value
                continue
            try:
                found = table_files.header_in(value, header_key) if is_table else value
                if found is not None:
                    check_header(found, header_key, is_first=is_first)
                    header.update(found)
                    is_first = False
                    continue
                is_first = False
                is_ours = header_key in value
                is_text = container in DELIMITERS
                yield number, table_files.native_row(value, is_ours=is_ours, is_text=is_text)
            except RowError as error:
                place = place_of(path, container, number)
                problems.append(problem(place, error, file=str(path), row=number))

    rows: Iterable[Row] = rows_of(path, container, encoding, problems)
    if container == "jsonl" and path.stat().st_size > _LARGE_BYTES:
        _refuse_bad_rows(path, encoding, header_key, layout)
    if container == "json" and layout is None:
        header.update(_json_header(path, encoding, header_key))
    if layout is not None:
        from_row = _foreign_reader(layout, is_dataset=is_dataset)
        return header, _records(path, container, rows, problems, from_row)
    read: Any = query_from_row if is_dataset else ranking_from_row
    return header, _records(path, container, native(rows), problems, read)


def _foreign_reader(layout: Layout, *, is_dataset: bool) -> Any:
    """What makes a record of a row in that layout."""
    read: Any = query_from_foreign if is_dataset else ranking_from_foreign
    return lambda row: read(row, layout)


def _refuse_bad_rows(path: Path, encoding: str, header_key: str, layout: Layout | None) -> None:
    """Look through a large file before any of it is kept: a bad line may be its last.

    Raises:
        DatasetError: Every bad row.
    """
    is_dataset = header_key == DATASET_HEADER
    problems: list[Problem] = []
    for number, row in rows_of(path, "jsonl", encoding, problems):
        if isinstance(row, dict) and header_key in row:
            continue  # checked where it is read
        try:
            if layout is None:
                (query_from_row if is_dataset else ranking_from_row)(row)
            else:
                (query_from_foreign if is_dataset else ranking_from_foreign)(row, layout)
        except RowError as error:
            place = place_of(path, "jsonl", number)
            problems.append(problem(place, error, file=str(path), row=number))
    if problems:
        raise DatasetError(problems)


def _json_header(path: Path, encoding: str, header_key: str) -> dict[str, Any]:
    value = json_file(path, encoding)
    if not isinstance(value, Mapping) or header_key not in value:
        return {}
    header = {key: one for key, one in value.items() if key not in ("queries", "rankings")}
    try:
        check_header(header, header_key, is_first=True)
    except RowError as error:
        raise DatasetError([problem(str(path), error, file=str(path))]) from None
    return header


def _records(
    path: Path,
    container: str,
    rows: Iterable[Row],
    problems: list[Problem],
    from_row: Callable[[object], _Record],
) -> list[_Record]:
    """The records of the rows.

    Raises:
        DatasetError: Every bad row.
    """
    records: list[_Record] = []
    first: dict[str, int] = {}
    for number, row in rows:
        try:
            record = from_row(row)
        except RowError as error:
            place = place_of(path, container, number)
            problems.append(problem(place, error, file=str(path), row=number))
            continue
        earlier = first.setdefault(record.query_id, number)
        if earlier != number:
            where = place_of(path, container, earlier).removeprefix(f"{path} ")
            message = f"query_id {record.query_id!r} is taken by {where} — ids must be unique"
            place = place_of(path, container, number)
            problems.append(Problem(place, message, file=str(path), row=number, column="query_id"))
            continue
        records.append(record)
    if problems:
        raise DatasetError(sorted(problems, key=lambda one: one.row or 0))
    return records


def _name(header: Mapping[str, Any], path: Path) -> str:
    name = header.get("name")
    return path.stem if name is None else str(name)
