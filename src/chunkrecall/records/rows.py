"""Records as JSON rows: what a file of labels or of ranked lists holds, one line each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from pydantic import ValidationError

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records.chunks import Chunk, Ranking, Run
from chunkrecall.records.dataset import Dataset
from chunkrecall.records.labels import Label, Query, plain_query

RUN_HEADER = "chunkrecall_run"
DATASET_HEADER = "chunkrecall_dataset"
_QUERY_KEYS = frozenset(
    {"query_id", "id", "text", "query", "relevant", "relevant_ids", "tags", "metadata"}
)
_PLAIN_KEYS = frozenset({"query_id", "text", "relevant"})
LABEL_KEYS = frozenset({"text", "chunk_id", "grade", "doc_id", "start", "end"})
_RANKING_KEYS = frozenset({"query_id", "id", "query", "chunks", "error", "latency_s"})
_CHUNK_KEYS = frozenset({"text", "chunk_id", "id", "score", "metadata"})
_HEADER_KEYS = {
    RUN_HEADER: frozenset({RUN_HEADER, "name", "complete", "settings", "notes"}),
    DATASET_HEADER: frozenset({DATASET_HEADER, "name"}),
}
# What only a row of the other kind of file has.
_ELSEWHERE = {
    "query": (frozenset({RUN_HEADER, "chunks"}), "a run file", "load_run"),
    "run": (
        frozenset({DATASET_HEADER, "relevant", "relevant_ids"}),
        "a dataset file",
        "load_dataset",
    ),
}
_DEEPEST = 100
_QUOTED = re.compile(r'"([\w.]+)"')


class RowError(ValueError):
    """What is wrong with one row, and in which column where that is known."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


def query_from_row(row: object) -> Query:
    """The query that a dataset row describes.

    Raises:
        RowError: With what was found and what is expected.
    """
    if type(row) is dict and row.keys() <= _PLAIN_KEYS:
        plain = plain_query(row.get("query_id"), row.get("text"), row.get("relevant"))
        if plain is not None:
            return plain
    fields = _fields(row, _QUERY_KEYS, "query")
    text = _one_of(fields, "text", "query")
    if text is None:
        raise RowError('"text" (the query) is missing')
    if not isinstance(text, str):
        raise RowError(f'"text" must be a string, got {_json(text)}')
    query_id = _one_of(fields, "query_id", "id")
    query_id = text if query_id is None else query_id
    if not isinstance(query_id, str):
        raise RowError(f'"query_id" must be a string, got {_json(query_id)} — write "{query_id}"')
    if not query_id:
        raise RowError('"query_id" must not be empty')
    relevant = fields.get("relevant")
    if relevant is not None:
        relevant = [
            label_from_row(item, f'"relevant"[{index}]')
            for index, item in enumerate(_list(relevant, "relevant"))
        ]
    relevant_ids = fields.get("relevant_ids")
    try:
        return Query(
            query_id=query_id,
            text=text,
            relevant=relevant,
            relevant_ids=None if relevant_ids is None else _list(relevant_ids, "relevant_ids"),
            tags=[] if fields.get("tags") is None else _list(fields["tags"], "tags"),
            metadata=_mapping(fields.get("metadata"), "metadata"),
        )
    except DatasetError as error:
        raise RowError("; ".join(problem.message for problem in error.problems)) from None
    except (TypeError, ValueError) as error:
        raise RowError(str(error).removeprefix(f"Query {query_id!r}: ")) from None


def query_to_row(query: Query) -> dict[str, Any]:
    """The dataset row of a query; `query_from_row` gives an equal one."""
    row: dict[str, Any] = {"query_id": query.query_id, "text": query.text}
    if query.relevant is not None:
        row["relevant"] = [label_to_row(label) for label in query.relevant]
    if query.tags:
        row["tags"] = list(query.tags)
    if query.metadata:
        row["metadata"] = json_value(query.metadata)
    return row


def ranking_from_row(row: object) -> Ranking:
    """The ranked list that a run row describes.

    Raises:
        RowError: With what was found and what is expected.
    """
    fields = _fields(row, _RANKING_KEYS, "run")
    query_id = _one_of(fields, "query_id", "id")
    if not isinstance(query_id, str) or not query_id:
        raise RowError(f'"query_id" must be a non-empty string, got {_json(query_id)}')
    error = fields.get("error")
    if error is not None and not isinstance(error, str):
        raise RowError(f'"error" must be a string, got {_json(error)}')
    chunks = fields.get("chunks")
    if chunks is None and error is None:
        raise RowError('"chunks" is missing — write [] where nothing was retrieved')
    latency_s = fields.get("latency_s")
    if latency_s is not None and not _is_number(latency_s):
        raise RowError(f'"latency_s" must be a number, got {_json(latency_s)}')
    query_text = fields.get("query")
    if query_text is not None and not isinstance(query_text, str):
        raise RowError(f'"query" must be a string, got {_json(query_text)}')
    return Ranking(
        query_id=query_id,
        chunks=[
            _chunk_from_row(item, f'"chunks"[{index}]')
            for index, item in enumerate(_list([] if chunks is None else chunks, "chunks"))
        ],
        error=error,
        latency_s=latency_s,
        query_text=query_text,
    )


def ranking_to_row(ranking: Ranking) -> dict[str, Any]:
    """The run row of a ranked list; `ranking_from_row` gives an equal one."""
    row: dict[str, Any] = {
        "query_id": ranking.query_id,
        "chunks": [_chunk_to_row(chunk) for chunk in ranking.chunks],
    }
    if ranking.query_text is not None:
        row["query"] = ranking.query_text
    if ranking.error is not None:
        row["error"] = ranking.error
    if ranking.latency_s is not None:
        row["latency_s"] = json_value(ranking.latency_s)
    return row


def run_header(run: Run) -> dict[str, Any]:
    """The first row of a run file."""
    return {
        RUN_HEADER: 1,
        "name": run.name,
        "complete": run.complete,
        "settings": json_value(run.settings),
        "notes": list(run.notes),
    }


def dataset_header(dataset: Dataset) -> dict[str, Any]:
    """The first row of a dataset file."""
    return {DATASET_HEADER: 1, "name": dataset.name}


def check_header(row: Mapping[str, Any], key: str, *, is_first: bool) -> None:
    """Refuse a header that would be misread: what it says decides what a missing query means.

    Raises:
        RowError: It is not the first row, or has another version, an unknown key or a value of the
            wrong type.
    """
    if not is_first:
        raise RowError("a header must be the first row")
    if row[key] != 1:
        raise RowError(f"this version of chunkrecall reads {key} 1, got {row[key]!r}")
    unknown = sorted(set(row) - _HEADER_KEYS[key])
    if unknown:
        raise RowError(f"unknown keys {unknown}; a header has {sorted(_HEADER_KEYS[key])}")
    if not isinstance(row.get("name"), (str, type(None))):
        raise RowError(f'"name" must be a string, got {_json(row["name"])}')
    if not isinstance(row.get("complete", True), bool):
        raise RowError(f'"complete" must be true or false, got {_json(row["complete"])}')
    _mapping(row.get("settings"), "settings")
    for index, note in enumerate(_list(row.get("notes", []), "notes")):
        if not isinstance(note, str):
            raise RowError(f'"notes"[{index}] must be a string, got {_json(note)}')


def json_value(value: object, *, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON value
    """The value as JSON can hold it: no NaN, text keys, dates as ISO text, the rest as text."""
    if depth > _DEEPEST:  # it may hold itself
        return str(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_value(item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(item, depth=depth + 1) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    item = getattr(value, "item", None)  # a numpy scalar
    if callable(item) and getattr(value, "ndim", None) == 0:
        return json_value(item())
    return str(value)


def label_from_row(item: object, place: str) -> Any:  # noqa: ANN401 - a label, or a group of them
    """What `Query` takes as a label, from a text, a label object or a list of alternatives.

    Raises:
        RowError: It is none of these.
    """
    if isinstance(item, list):
        return [label_from_row(member, f"{place}[{index}]") for index, member in enumerate(item)]
    if isinstance(item, str):
        return item
    if isinstance(item, Mapping):
        unknown = sorted(set(item) - LABEL_KEYS)
        if unknown:
            raise RowError(
                f"{place} has unknown keys {unknown}; a label has text, chunk_id, grade, "
                "or doc_id, start and end"
            )
        try:
            return Label(**item)
        except ValueError as error:
            raise RowError(f"{place}: {_first_line(error)}") from None
    raise RowError(
        f"{place} must be a text, a list of alternatives or a label object, got {_json(item)}"
    )


def label_to_row(label: Label) -> Any:  # noqa: ANN401 - text, object or list
    """The label as JSON; `label_from_row` gives it back."""
    if label.alternatives:
        return [label_to_row(member) for member in label.alternatives]
    span = label.source_span
    if label.chunk_id is None and label.grade == 1 and span is None:
        return label.text
    row: dict[str, Any] = {}
    if label.text is not None:
        row["text"] = label.text
    if label.chunk_id is not None:
        row["chunk_id"] = label.chunk_id
    if label.grade != 1:
        row["grade"] = label.grade
    if span is not None:
        row |= span._asdict()
    return row


def _chunk_from_row(item: object, place: str) -> Chunk:
    if isinstance(item, str):
        return Chunk(text=item)
    if not isinstance(item, Mapping):
        raise RowError(f"{place} must be an object with a text, or a text, got {_json(item)}")
    unknown = sorted(set(item) - _CHUNK_KEYS)
    if unknown:
        raise RowError(f"{place} has unknown keys {unknown}; it has {sorted(_CHUNK_KEYS)}")
    text = item.get("text", "" if _one_of(item, "chunk_id", "id") is not None else None)
    if not isinstance(text, str):
        raise RowError(f'{place}: "text" must be a string, got {_json(text)}')
    chunk_id = _one_of(item, "chunk_id", "id")
    if chunk_id is not None and not isinstance(chunk_id, str):
        raise RowError(
            f'{place}: "chunk_id" must be a string, got {_json(chunk_id)} — write "{chunk_id}"'
        )
    score = item.get("score")
    if score is not None and not _is_number(score):
        raise RowError(f'{place}: "score" must be a number or null, got {_json(score)}')
    return Chunk(
        text=text,
        chunk_id=chunk_id,
        score=score,
        metadata=_mapping(item.get("metadata"), f"{place}: metadata"),
    )


def _chunk_to_row(chunk: Chunk) -> dict[str, Any]:
    row: dict[str, Any] = {"text": chunk.text}
    if chunk.chunk_id is not None:
        row["chunk_id"] = chunk.chunk_id
    if chunk.score is not None:
        row["score"] = _score_value(chunk.score)
    if chunk.metadata:
        row["metadata"] = json_value(chunk.metadata)
    return row


def _score_value(score: object) -> float | None:
    """The score as a JSON number; None where it is none, not even a Decimal."""
    value = json_value(score)
    if not _is_number(value):
        try:
            value = json_value(float(value))
        except (TypeError, ValueError):
            return None
    number: float | None = value
    return number


def _fields(row: object, known: frozenset[str], kind: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise RowError(f"a {kind} row must be a JSON object, got {_json(row)}")
    unknown = sorted(set(row) - known)
    if unknown:
        telling, other, reader = _ELSEWHERE[kind]
        hint = f" — this is {other}: read it with {reader}(path)" if telling & set(row) else ""
        raise RowError(f"unknown keys {unknown}; a {kind} row has {sorted(known)}{hint}")
    return row


def _one_of(fields: Mapping[str, Any], name: str, other: str) -> Any:  # noqa: ANN401 - any JSON value
    if fields.get(name) is not None and fields.get(other) is not None:
        raise RowError(f'"{name}" and "{other}" mean the same — keep one')
    value = fields.get(name)
    return fields.get(other) if value is None else value


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise RowError(
            f'"{name}" must be a list, got {_json(value)}'
            + (f" — write it as a list: [{_json(value)}]" if isinstance(value, (str, int)) else "")
        )
    return value


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RowError(f'"{name}" must be an object, got {_json(value)}')
    return value


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)  # 1e999 is a JSON number, and infinity in Python
    return isinstance(value, int) and not isinstance(value, bool)


def _json(value: object) -> str:
    return f"{value!r:.80}" if value is not None else "null"


def _first_line(error: ValueError) -> str:
    """Pydantic's words for one label, without its report layout."""
    if isinstance(error, ValidationError):
        return "; ".join(
            ".".join(map(str, one["loc"])) + (": " if one["loc"] else "") + str(one["msg"])
            for one in error.errors(include_url=False)
        ).removeprefix("Value error, ")
    return str(error)


def problem(
    place: str, error: RowError, *, file: str | None = None, row: int | None = None
) -> Problem:
    """A row's error with its place."""
    message = str(error)
    named = _QUOTED.match(message)  # most messages begin with the column
    column = error.column or (named.group(1) if named else None)
    return Problem(place, message, file=file, row=row, column=column)
