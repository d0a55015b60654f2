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
from chunkrecall.records.rows import RowError, label_from_row, label_to_row, problem
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
            chunks among them are ticked.
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
                pooled_from = tuple(map(str, row.get(POOLED, ())))
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
        if any(_is_of(label, chunk) for label in labels):
            chunk.relevant = True
    return DraftQuery(query_id, text, chunks, other, query.tags, was_judged=query.judged)


def _is_of(label: Label, chunk: DraftChunk) -> bool:
    if label.alternatives:
        return False
    if label.text is not None:
        return label.text == chunk.text
    return label.chunk_id == chunk.chunk_id


def _query(draft: DraftQuery, pooled_from: tuple[str, ...]) -> Query:
    relevant: list[Any] | None = None
    if not draft.is_untouched:
        ticked = [chunk for chunk in draft.chunks if chunk.relevant]
        relevant = [*map(_label, ticked), *draft.other]
    return Query(
        query_id=draft.query_id,
        text=draft.text,
        relevant=relevant,
        tags=draft.tags,
        metadata={POOLED: list(pooled_from)} if relevant is not None and pooled_from else {},
    )


def _label(chunk: DraftChunk) -> Label:
    return Label(text=chunk.text if chunk.text.strip() else None, chunk_id=chunk.chunk_id or None)


def _row(query: DraftQuery) -> dict[str, Any]:
    row: dict[str, Any] = {
        "query_id": query.query_id,
        "text": query.text,
        "chunks": [
            {"text": one.text, "chunk_id": one.chunk_id, "relevant": one.relevant}
            for one in query.chunks
        ],
    }
    if query.other:
        row["other_labels"] = [label_to_row(label) for label in query.other]
    if query.tags:
        row["tags"] = list(query.tags)
    if query.was_judged:
        row["was_judged"] = True
    return row


def _draft_query(row: object) -> DraftQuery:
    if not isinstance(row, Mapping) or not isinstance(row.get("chunks"), list):
        raise RowError(f'a draft row is an object with "chunks", got {row!r:.80}')
    for name in ("query_id", "text"):
        if not isinstance(row.get(name), str):
            raise RowError(f'"{name}" must be a string, got {row.get(name)!r:.80}')
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
        chunks.append(DraftChunk(chunk["text"], chunk_id, ticked))
    try:
        # What a group is, and what is wrong with a label, is Query's to say.
        other = Query(
            query_id=row["query_id"],
            text=row["text"],
            relevant=[
                label_from_row(item, f'"other_labels"[{index}]')
                for index, item in enumerate(row.get("other_labels", ()))
            ],
            tags=row.get("tags", ()),
        )
    except (TypeError, ValueError, DatasetError) as error:
        raise RowError(str(error)) from None
    return DraftQuery(
        row["query_id"],
        row["text"],
        chunks,
        list(other.relevant or ()),
        other.tags,
        was_judged=row.get("was_judged") is True,
    )
