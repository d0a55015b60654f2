"""Which columns of other tools' files hold what: one table, and how a row is read by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chunkrecall.adapters import to_chunk
from chunkrecall.errors import DatasetError
from chunkrecall.formats.cells import list_cell
from chunkrecall.records import Chunk, Label, Query, Ranking
from chunkrecall.records.rows import LABEL_KEYS, RowError, json_value

_Paths = tuple[str, ...]
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Column names, or dotted paths, in order of preference."""

    name: str
    query: _Paths
    relevant: _Paths = ()
    relevant_ids: _Paths = ()
    retrieved: _Paths = ()
    retrieved_ids: _Paths = ()
    query_id: _Paths = ()
    tags: _Paths = ()
    no_labels: _Paths = ()
    """Columns that look like labels and hold answers, or what was retrieved."""
    note: str | None = None
    """What the reader of a file should know."""


_QUESTIONS = ("question", "query", "input", "text")
LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            name="ragas",
            query=("user_input",),
            relevant=("reference_contexts",),
            relevant_ids=("reference_context_ids",),
            retrieved=("retrieved_contexts",),
            retrieved_ids=("retrieved_context_ids",),
            no_labels=(
                "reference",
                "response",
                "retrieved_contexts",
                "contexts",
                "ground_truth",
                "ground_truths",
                "answer",
            ),
        ),
        Layout(
            name="deepeval",
            query=("input",),
            relevant=("context",),
            retrieved=("retrieval_context", "retrievalContext"),
            query_id=("name",),
            no_labels=(
                "expected_output",
                "expectedOutput",
                "actual_output",
                "actualOutput",
                "retrieval_context",
                "retrievalContext",
            ),
        ),
        Layout(
            name="mlflow",
            query=(*_QUESTIONS, *[f"inputs.{key}" for key in _QUESTIONS]),
            relevant_ids=("source", "expectations.source", "expected_doc_ids"),
            retrieved_ids=("retrieved_context", "outputs.retrieved_context"),
            no_labels=("ground_truth", "retrieved_context", "outputs", "answer"),
            note="MLflow's own recall_at_k is at k=3 unless told otherwise: compare it with k=3, "
            "not with the whole list",
        ),
        Layout(
            name="langsmith",
            query=tuple(f"inputs.{key}" for key in _QUESTIONS),
            relevant=("outputs.relevant", "reference_outputs.relevant"),
            relevant_ids=("outputs.relevant_ids", "reference_outputs.relevant_ids"),
            retrieved=("outputs.documents", "outputs.context", "outputs.source_documents"),
            query_id=("id",),
            tags=("split",),
            no_labels=("outputs.answer", "outputs.output", "outputs.documents", "outputs.context"),
        ),
        Layout(
            name="huggingface",
            query=("query", "question", "anchor", "user_input"),
            relevant=("pos", "positive", "positives", "positive_passages", "reference_contexts"),
            query_id=("query_id", "_id", "id"),
            no_labels=("answer", "answers", "response", "neg", "negative", "negative_passages"),
        ),
    )
}
NATIVE = Layout(
    name="columns",
    query=("text", "query"),
    relevant=("relevant",),
    relevant_ids=("relevant_ids",),
    query_id=("query_id", "id"),
    tags=("tags",),
)


QUERY_COLUMNS = frozenset(
    path for layout in (NATIVE, *LAYOUTS.values()) for path in layout.query if "." not in path
)
"""Column names that hold a query's text in some file."""


def layout_of(name: str | None, **columns: str | None) -> Layout | None:
    """The layout of that name with the caller's columns in it; None where neither is given.

    Raises:
        ValueError: A column that is no name.
    """
    base = LAYOUTS.get(name or "")
    given = {field: column for field, column in columns.items() if column is not None}
    for field, column in given.items():
        if not isinstance(column, str) or not column:
            raise ValueError(f"{field} must name a column, got {column!r}")
    if base is None and not given:
        return None
    base = NATIVE if base is None else base
    paths: dict[str, Any] = {field: (column,) for field, column in given.items()}
    return replace(base, **paths)


def query_from_foreign(row: object, layout: Layout) -> Query:
    """The labelled query of a row; what is no label stays in its metadata.

    Raises:
        RowError: With what was found and what is expected.
    """
    fields = _mapping(row)
    text = _text(fields, layout)
    relevant = _found(fields, layout.relevant)
    relevant_ids = _found(fields, layout.relevant_ids)
    if relevant is _ABSENT and relevant_ids is _ABSENT:
        raise RowError(_no_labels(fields, layout))
    labels: list[Any] = []
    for value, path, read in (
        (relevant, layout.relevant, _text_label),
        (relevant_ids, layout.relevant_ids, _id_label),
    ):
        column = _named(fields, path)
        items = _items(value, column, one_word=read is _id_label)
        for index, item in enumerate(items or ()):
            label = read(item, f'"{column}"[{index}]')
            if label != []:  # an empty group says that nothing is relevant
                labels.append(label)
    judged = not all(value is _ABSENT or _is_blank(value) for value in (relevant, relevant_ids))
    query_id = _found(fields, layout.query_id)
    tags = _found(fields, layout.tags)
    tag_column = _named(fields, layout.tags)
    try:
        return Query(
            query_id=text if query_id is _ABSENT or _is_blank(query_id) else query_id,  # type: ignore[arg-type]
            text=text,
            relevant=labels if judged else None,
            tags=[str(tags)] if _is_word(tags) else _items(tags, tag_column) or (),
            metadata=_rest(fields, layout),
        )
    except DatasetError as error:
        raise RowError("; ".join(problem.message for problem in error.problems)) from None
    except (TypeError, ValueError) as error:
        raise RowError(str(error)) from None


def ranking_from_foreign(row: object, layout: Layout) -> Ranking:
    """The ranked list of a row.

    Raises:
        RowError: With what was found and what is expected.
    """
    fields = _mapping(row)
    text = _text(fields, layout)
    retrieved = _found(fields, layout.retrieved)
    ids = _found(fields, layout.retrieved_ids)
    if retrieved is _ABSENT and ids is _ABSENT:
        wanted = " or ".join(map(repr, (*layout.retrieved, *layout.retrieved_ids))) or "none known"
        raise RowError(
            f"no column with what was retrieved ({wanted}); the row has {sorted(fields)!r:.200} — "
            "name it with retrieved=…"
        )
    chunks: list[Chunk] = []
    if retrieved is not _ABSENT:
        column = _named(fields, layout.retrieved)
        for index, item in enumerate(_items(retrieved, column) or ()):
            chunks.append(_chunk(item, f'"{column}"[{index}]'))
    else:
        column = _named(fields, layout.retrieved_ids)
        for index, item in enumerate(_items(ids, column, one_word=True) or ()):
            if not isinstance(item, str):
                raise RowError(f'"{column}"[{index}] must be a text, got {item!r:.80}', column)
            chunks.append(Chunk(text="", chunk_id=item))
    query_id = _found(fields, layout.query_id)
    key = text if query_id is _ABSENT or _is_blank(query_id) else query_id
    if not isinstance(key, str):
        raise RowError(f'"{_named(fields, layout.query_id)}" must be a text, got {key!r:.80}')
    return Ranking(query_id=key, chunks=chunks, query_text=text)


def _text(fields: Mapping[str, Any], layout: Layout) -> str:
    text = _found(fields, layout.query)
    if text is _ABSENT:
        wanted = " or ".join(map(repr, layout.query))
        raise RowError(
            f"no column with the query ({wanted}); the row has {sorted(fields)!r:.200} — name it "
            "with query=…"
        )
    if not isinstance(text, str):
        column = _named(fields, layout.query)
        raise RowError(f'"{column}" (the query) must be a text, got {text!r:.80}', column)
    return text


def _text_label(item: object, place: str) -> Any:
    if isinstance(item, list):
        return [_text_label(member, f"{place}[{index}]") for index, member in enumerate(item)]
    if isinstance(item, str):
        return item
    if isinstance(item, Mapping):
        if set(item) <= LABEL_KEYS:
            try:
                return Label(**item)
            except ValueError as error:
                raise RowError(f"{place}: {str(error).splitlines()[0]}") from None
        return _chunk(item, place).text
    raise RowError(f"{place} must be a chunk text, got {item!r:.80}", _column(place))


def _id_label(item: object, place: str) -> Any:
    if isinstance(item, list):
        members = [_id_label(member, f"{place}[{index}]") for index, member in enumerate(item)]
        return [member for member in members if member != []]
    if isinstance(item, str):
        try:
            return Label(chunk_id=item)
        except ValueError:
            raise RowError(f"{place} must not be blank", _column(place)) from None
    raise RowError(f'{place} must be a text, got {item!r:.80} — write "{item}"', _column(place))


def _chunk(item: object, place: str) -> Chunk:
    if not isinstance(item, (str, Mapping)):
        raise RowError(f"{place} must be a chunk text, got {item!r:.80}", _column(place))
    try:
        return to_chunk(item, 0)
    except TypeError:
        keys = sorted(map(str, item)) if isinstance(item, Mapping) else item
        raise RowError(f"{place} holds no text: it has {keys!r:.200}", _column(place)) from None


def _items(value: object, column: str, *, one_word: bool = False) -> list[Any] | None:
    if value is _ABSENT or _is_blank(value):
        return None
    if isinstance(value, str):
        return list_cell(value, column, one_word=one_word)
    if not isinstance(value, list):
        raise RowError(f'"{column}" must be a list, got {value!r:.80}', column)
    return value


def _no_labels(fields: Mapping[str, Any], layout: Layout) -> str:
    wanted = " or ".join(map(repr, (*layout.relevant, *layout.relevant_ids)))
    tempting = [path for path in layout.no_labels if _found(fields, (path,)) is not _ABSENT]
    said = (
        f" ({', '.join(map(repr, tempting))} hold answers or what was retrieved, not what should "
        "have been)"
        if tempting
        else ""
    )
    return (
        f"no column with labels ({wanted}){said}; the row has {sorted(fields)!r:.200} — name it "
        "with relevant=… or relevant_ids=…"
    )


def _rest(fields: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    used = {
        path.partition(".")[0] if path not in fields else path
        for paths in (
            layout.query,
            layout.relevant,
            layout.relevant_ids,
            layout.query_id,
            layout.tags,
            layout.retrieved,
            layout.retrieved_ids,
        )
        for path in paths
    }
    return {key: json_value(value) for key, value in fields.items() if key not in used}


def _mapping(row: object) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise RowError(f"a row must be an object with columns, got {row!r:.80}")
    return row


def _found(fields: Mapping[str, Any], paths: _Paths) -> object:
    for path in paths:
        if path in fields:
            return fields[path]
        value: object = fields
        for part in path.split("."):
            value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is not _ABSENT:
            return value
    return _ABSENT


def _named(fields: Mapping[str, Any], paths: _Paths) -> str:
    found = (path for path in paths if _found(fields, (path,)) is not _ABSENT)
    return next(found, paths[0] if paths else "")


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not value.lstrip().startswith("[")


def _column(place: str) -> str:
    return place.split('"')[1] if '"' in place else place
