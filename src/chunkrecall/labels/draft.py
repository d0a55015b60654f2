"""Labels from what a retriever found: a draft to tick, left and resumed as one likes.

Labels that are pooled from one retriever favour it: what it never returned cannot be ticked. They
are marked, and a dataset made of them says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.formats import json_rows
from chunkrecall.records import Dataset, Label, Query, Run, as_dataset
from chunkrecall.records.rows import RowError, json_value, label_from_row, label_to_row, problem
from chunkrecall.report import Report

if TYPE_CHECKING:
    from chunkrecall.records import DatasetInput

DRAFT_HEADER = "chunkrecall_draft"
POOLED = "pooled_from"
"""The metadata key that names the retrievers whose lists the labels were ticked in."""


@dataclass(slots=True)
class DraftChunk:
    """One retrieved chunk, and what a person said of it."""

    text: str
    chunk_id: str | None = None
    relevant: bool | None = None
    """None until somebody has decided."""
    label: Label | None = None
    """The label that the query had already and that this chunk satisfies."""

    @property
    def is_news(self) -> bool:
        """Whether a person has said what the labels did not say already."""
        known = None if self.label is None else self.label.grade >= 1
        return self.relevant is not None and self.relevant != known


@dataclass(slots=True)
class DraftQuery:
    """One query with the chunks to tick."""

    query_id: str
    text: str
    chunks: list[DraftChunk]
    other: list[Label] = field(default_factory=list)
    """Labels that the query had already and that are none of the chunks."""
    tags: tuple[str, ...] = ()
    was_judged: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def undecided(self) -> list[DraftChunk]:
        """The chunks that nobody has decided on, in rank order."""
        return [chunk for chunk in self.chunks if chunk.relevant is None]

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has decided on anything."""
        return all(chunk.relevant is None for chunk in self.chunks) and not self.was_judged


@dataclass(slots=True)
class Draft:
    """Queries with retrieved chunks to tick."""

    queries: list[DraftQuery]
    pooled_from: tuple[str, ...] = ()
    """The retrievers whose lists these are."""

    def to_dataset(self, name: str | None = None) -> Dataset:
        """The ticked chunks as labels.

        A query is judged once any of its chunks is decided on; of one whose chunks were all
        rejected, nothing is relevant.
        """
        return Dataset([_query(one, self.pooled_from) for one in self.queries], name=name)

    def save(self, path: str | Path) -> None:
        """Write the draft as JSON Lines; an interrupted write leaves the old file as it was."""
        target = Path(path)
        rows = [{DRAFT_HEADER: 1, POOLED: list(self.pooled_from)}, *map(_row, self.queries)]
        beside = target.with_name(f".{target.name}.part")
        beside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
        beside.replace(target)


def draft_from(
    source: Run | Report, dataset: DatasetInput | None = None, *, depth: int = 10
) -> Draft:
    """The first chunks of each query's list, to be ticked.

    Args:
        source: What a retriever returned: a run, or a report that keeps its texts.
        dataset: The queries' texts, which a run file may lack, and the labels there are already:
            chunks among them are ticked, or unticked where they were judged irrelevant (grade 0).
            Its queries that the source lacks come along without chunks, so that none is lost.
        depth: How many chunks a query.

    Raises:
        ValueError: The report keeps no texts, a query's text is not known, or depth is below 1.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth!r}")
    known = None if dataset is None else as_dataset(dataset)
    queries = [
        _drafted(query_id, text, chunks[:depth], known)
        for query_id, text, chunks in _lists(source, known)
    ]
    if known is not None:
        found = {one.query_id: one for one in queries}
        ours = [
            found.get(query.query_id) or _drafted(query.query_id, query.text, [], known)
            for query in known
        ]
        queries = [*ours, *[one for one in queries if one.query_id not in known]]
    return Draft(queries, pooled_from=(source.name,))


def write_draft(
    source: Run | Report,
    path: str | Path,
    dataset: DatasetInput | None = None,
    *,
    depth: int = 10,
) -> Draft:
    """`draft_from`, written to a file: set each chunk's `relevant` to true or false in it."""
    draft = draft_from(source, dataset, depth=depth)
    draft.save(path)
    return draft


def read_draft(path: str | Path) -> Draft:
    """The draft in a file.

    Raises:
        DatasetError: Every bad line.
    """
    source = Path(path)
    problems: list[Problem] = []
    queries: list[DraftQuery] = []
    pooled_from: tuple[str, ...] = ()
    for number, row in json_rows(source, problems):
        try:
            if isinstance(row, Mapping) and DRAFT_HEADER in row:
                pooled_from = _pooled(row.get(POOLED))
            else:
                queries.append(_draft_query(row))
        except RowError as error:
            place = f"{source} line {number}"
            problems.append(problem(place, error, file=str(source), row=number))
    if problems:
        raise DatasetError(problems)
    return Draft(queries, pooled_from)


def _lists(
    source: Run | Report, dataset: Dataset | None
) -> Iterator[tuple[str, str, list[DraftChunk]]]:
    if isinstance(source, Report):
        for row in source.queries:
            if row.retrieved_count and not row.retrieved:
                raise ValueError("the report keeps no texts: make it with keep_texts=True")
            ids = row.retrieved_ids or (None,) * len(row.retrieved)
            pairs = zip(row.retrieved, ids, strict=True)
            yield row.query_id, row.text, [DraftChunk(text, one) for text, one in pairs]
        return
    for ranking in source.rankings:
        text = ranking.query_text
        if dataset is not None and ranking.query_id in dataset:
            text = dataset[ranking.query_id].text
        if text is None:
            raise ValueError(
                f"the run has no text for query {ranking.query_id!r}: give the dataset"
            )
        chunks = [DraftChunk(chunk.text, chunk.chunk_id) for chunk in ranking.chunks]
        yield ranking.query_id, text, chunks


def _drafted(
    query_id: str, text: str, chunks: list[DraftChunk], dataset: Dataset | None
) -> DraftQuery:
    chunks = [chunk for chunk in chunks if chunk.text.strip() or chunk.chunk_id]
    if dataset is None or query_id not in dataset:
        return DraftQuery(query_id, text, chunks)
    query = dataset[query_id]
    labels = list(query.relevant or ())
    other = [label for label in labels if not any(_is_of(label, chunk) for chunk in chunks)]
    for chunk in chunks:
        satisfied = [label for label in labels if _is_of(label, chunk)]
        if satisfied:
            chunk.label = max(satisfied, key=lambda label: label.grade)
            chunk.relevant = chunk.label.grade >= 1
    return DraftQuery(
        query_id, text, chunks, other, query.tags, was_judged=query.judged, metadata=query.metadata
    )


def _is_of(label: Label, chunk: DraftChunk) -> bool:
    if label.alternatives:
        return any(_is_of(one, chunk) for one in label.alternatives)
    if label.text is not None:
        return label.text == chunk.text
    return label.chunk_id is not None and label.chunk_id == chunk.chunk_id


def _query(draft: DraftQuery, pooled_from: tuple[str, ...]) -> Query:
    relevant: list[Any] | None = None
    if not draft.is_untouched:
        relevant = []
        for label in [*map(_label, draft.chunks), *draft.other]:
            if label is not None and label not in relevant:
                relevant.append(label)
    metadata = dict(draft.metadata)
    if relevant is not None and pooled_from and any(chunk.is_news for chunk in draft.chunks):
        metadata[POOLED] = list(dict.fromkeys([*_pooled(metadata.get(POOLED)), *pooled_from]))
    return Query(
        query_id=draft.query_id,
        text=draft.text,
        relevant=relevant,
        tags=draft.tags,
        metadata=metadata,
    )


def _label(chunk: DraftChunk) -> Label | None:
    """The label that a chunk stands for; what was known of it stays as it was, grade and all."""
    if chunk.label is not None and not chunk.is_news:
        return chunk.label
    if not chunk.relevant:
        return None
    return Label(text=chunk.text if chunk.text.strip() else None, chunk_id=chunk.chunk_id or None)


def _pooled(value: object) -> tuple[str, ...]:
    """The retrievers that a `pooled_from` names.

    Raises:
        RowError: It is no list of names.
    """
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise RowError(f'"{POOLED}" must be a list of names, got {value!r:.80}')
    return tuple(value)


def _row(query: DraftQuery) -> dict[str, Any]:
    known: list[Label] = []
    chunks: list[dict[str, Any]] = []
    for one in query.chunks:
        chunks.append({"text": one.text, "chunk_id": one.chunk_id, "relevant": one.relevant})
        if one.label is not None:
            if one.label not in known:
                known.append(one.label)
            chunks[-1]["label"] = known.index(one.label)
    row: dict[str, Any] = {"query_id": query.query_id, "text": query.text, "chunks": chunks}
    if known:
        row["labels"] = [label_to_row(label) for label in known]
    if query.other:
        row["other_labels"] = [label_to_row(label) for label in query.other]
    if query.tags:
        row["tags"] = list(query.tags)
    if query.metadata:
        row["metadata"] = json_value(query.metadata)
    if query.was_judged:
        row["was_judged"] = True
    return row


def _draft_query(row: object) -> DraftQuery:
    if not isinstance(row, Mapping) or not isinstance(row.get("chunks"), list):
        raise RowError(f'a draft row is an object with "chunks", got {row!r:.80}')
    for name in ("query_id", "text"):
        if not isinstance(row.get(name), str):
            raise RowError(f'"{name}" must be a string, got {row.get(name)!r:.80}')
    known = _labels(row, "labels")
    chunks = []
    for index, chunk in enumerate(row["chunks"]):
        place = f'"chunks"[{index}]'
        if not isinstance(chunk, Mapping) or not isinstance(chunk.get("text"), str):
            raise RowError(f'{place} is an object with a "text", got {chunk!r:.80}')
        ticked = chunk.get("relevant")
        if ticked is not None and not isinstance(ticked, bool):
            raise RowError(f'{place}: "relevant" must be true, false or null, got {ticked!r:.80}')
        chunk_id = chunk.get("chunk_id")
        if chunk_id is not None and not isinstance(chunk_id, str):
            raise RowError(f'{place}: "chunk_id" must be a string, got {chunk_id!r:.80}')
        at = chunk.get("label")
        if at is not None and not (type(at) is int and 0 <= at < len(known)):
            raise RowError(f'{place}: "label" must count into "labels", got {at!r:.80}')
        label = None if at is None else known[at]
        chunks.append(DraftChunk(chunk["text"], chunk_id, ticked, label))
    other = _labels(row, "other_labels")
    metadata = row.get("metadata") or {}
    tags = row.get("tags") or []
    if not isinstance(metadata, Mapping):
        raise RowError(f'"metadata" must be an object, got {metadata!r:.80}')
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RowError(f'"tags" must be a list of strings, got {tags!r:.80}')
    return DraftQuery(
        row["query_id"],
        row["text"],
        chunks,
        other,
        tuple(tags),
        was_judged=row.get("was_judged") is True,
        metadata=metadata,
    )


def _labels(row: Mapping[str, Any], column: str) -> list[Label]:
    """The labels in a column of a draft row."""
    given = row.get(column) or []
    if not isinstance(given, list):
        raise RowError(f'"{column}" must be a list of labels, got {given!r:.80}')
    try:
        # What a group is, and what is wrong with a label, is Query's to say.
        query = Query(
            query_id=row["query_id"],
            text=row["text"],
            relevant=[
                label_from_row(item, f'"{column}"[{index}]') for index, item in enumerate(given)
            ],
        )
    except (TypeError, ValueError, DatasetError) as error:
        raise RowError(str(error)) from None
    return list(query.relevant or ())
