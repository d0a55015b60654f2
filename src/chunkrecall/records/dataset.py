"""A labelled set of queries."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records.labels import Label, Query

_NAMED = 5
RELABELLED_BY = "relabelled_by"
UNRESOLVED = "unresolved_labels"
"""What a query's metadata say of how its labels were resolved against a corpus."""

DatasetInput: TypeAlias = "Dataset | Mapping[str, Iterable[Any] | None] | Sequence[Query]"


class Dataset(BaseModel):
    """Labelled queries in order, found by id.

    Raises:
        DatasetError: Two queries have one id.
        TypeError: An element is no `Query`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    queries: tuple[Query, ...]
    name: str | None = None
    _loaded: tuple[str, ...] = PrivateAttr(default=())

    def __init__(
        self, queries: Iterable[Query], *, name: str | None = None, notes: Iterable[str] = ()
    ) -> None:
        listed = _queries(queries)
        super().__init__(queries=listed, name=name)
        self._loaded = tuple(notes)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Mapping[str, Any]],
        *,
        query: str = "text",
        relevant: str | None = "relevant",
        relevant_ids: str | None = "relevant_ids",
        query_id: str | None = "query_id",
        tags: str | None = "tags",
        metadata: str | None = "metadata",
        name: str | None = None,
    ) -> Dataset:
        """The dataset that dicts describe, one query each.

        Each argument names the key that holds it; None, or a key that a record lacks, leaves the
        field out. A key that differs from the default must be in some record. A record without an
        id gets its text as id. A record that has neither `relevant` nor `relevant_ids` is not
        judged.

        Raises:
            DatasetError: Every record that cannot be read, numbered from 0, and every key named
                that is in none of them.
        """
        keys = {
            "text": query,
            "query_id": query_id,
            "relevant": relevant,
            "relevant_ids": relevant_ids,
            "tags": tags,
            "metadata": metadata,
        }
        if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
            raise TypeError(f"records must be a list of dicts, got {type(records).__name__}")
        queries: list[Query] = []
        problems: list[Problem] = []
        first: dict[str, int] = {}
        present: dict[Any, None] = {}
        for index, record in enumerate(records):
            place = f"record {index}"
            if not isinstance(record, Mapping):
                problems.append(Problem(place, f"expected a dict, got {type(record).__name__}"))
                continue
            present.update(dict.fromkeys(record))
            fields = {
                field: record[key]
                for field, key in keys.items()
                if key is not None and record.get(key) is not None
            }
            if "text" not in fields:
                message = f"the key {query!r} is missing; there are {sorted(map(str, record))}"
                problems.append(Problem(place, message))
                continue
            fields.setdefault("query_id", fields["text"])
            try:
                made = Query(**fields)
            except DatasetError as error:
                problems.extend(Problem(place, str(one)) for one in error.problems)
                continue
            except (TypeError, ValueError) as error:
                problems.append(Problem(place, str(error)))
                continue
            queries.append(made)
            earlier = first.setdefault(made.query_id, index)
            if earlier != index:
                problems.append(Problem(place, _taken(made.query_id, f"record {earlier}")))
        problems.extend(_absent_keys(keys, present))
        if problems:
            raise DatasetError(problems)
        return cls(queries, name=name)

    @cached_property
    def _by_id(self) -> dict[str, Query]:
        return {query.query_id: query for query in self.queries}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of ids, query texts, labels and tags; ignores order, name, file and metadata.

        Only the rule by which labels were resolved against a corpus counts of the metadata.
        """
        digest = hashlib.sha256()
        for row in sorted(map(_canonical_query, self.queries)):
            digest.update(row.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: how it was read, what is unlabelled or stands there twice."""
        notes = list(self._loaded)
        unjudged = [query.query_id for query in self.queries if query.relevant is None]
        if unjudged:
            named = ", ".join(f"{one!r:.80}" for one in unjudged[:_NAMED])
            more = f" and {len(unjudged) - _NAMED} more" if len(unjudged) > _NAMED else ""
            notes.append(
                f"{len(unjudged)} queries have no labels and are not judged: {named}{more}"
            )
        pools = {tuple(query.metadata.get("pooled_from", ())) for query in self.queries} - {()}
        alone = sorted(pool[0] for pool in pools if len(pool) == 1)
        if alone:
            named = ", ".join(map(repr, alone[:_NAMED]))
            notes.append(
                f"labels were pooled from one retriever ({named}): what it never returned has no "
                "label, so its recall is too high and that of others too low"
            )
        notes += _notes_of_relabelling(self.queries)
        for query in self.queries:
            seen: set[str] = set()
            for label in query.relevant or ():
                text = _canonical(label)
                if text in seen:
                    notes.append(
                        f"query {query.query_id!r}: the label {str(label)!r:.120} is repeated and "
                        "counts once"
                    )
                seen.add(text)
        return tuple(notes)

    def __iter__(self) -> Iterator[Query]:  # type: ignore[override]  # pydantic iterates over fields
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, query_id: str) -> Query:
        try:
            return self._by_id[query_id]
        except KeyError:
            raise KeyError(f"no query has the id {query_id!r}") from None

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._by_id

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"Dataset({len(self)} queries, name={self.name!r})"


def as_dataset(dataset: DatasetInput) -> Dataset:
    """The dataset itself, or the one that a mapping `{"query text": ["relevant chunk", …]}` means.

    A mapping's query ids are its texts; a value of None means not judged.

    Raises:
        TypeError: Neither a Dataset, a mapping nor a list of queries.
    """
    if isinstance(dataset, Dataset):
        return dataset
    if isinstance(dataset, Mapping):
        labelled = cast("Mapping[str, Any]", dataset)  # an iterable of queries may be a mapping too
        return Dataset(
            [
                Query(query_id=text, text=text, relevant=relevant)
                for text, relevant in labelled.items()
            ]
        )
    if isinstance(dataset, Sequence) and not isinstance(dataset, (str, bytes)):
        return Dataset(dataset)
    raise TypeError(
        'a dataset is a Dataset or a mapping {"query text": ["relevant chunk", …]}; got '
        f"{type(dataset).__name__} — read a file with load_dataset(path)"
    )


def _notes_of_relabelling(queries: Iterable[Query]) -> list[str]:
    counts = [query.metadata.get(UNRESOLVED, 0) for query in queries]
    lost = [one for one in counts if isinstance(one, int) and one > 0]
    if not lost:
        return []
    note = (
        f"{sum(lost)} labels of {len(lost)} queries are in no chunk of the corpus that the labels "
        "were resolved against; they are left out, so recall is over the others"
    )
    return [note]


def _absent_keys(keys: Mapping[str, str | None], present: Collection[Any]) -> list[Problem]:
    """The keys of the caller's own naming that no record has: a slip would leave all unlabelled."""
    return [
        Problem(
            "records",
            f"no record has the key {key!r} (for {field}); there are {sorted(map(str, present))}",
        )
        for field, key in keys.items()
        if present and field != "text" and key not in (None, field, *present)
    ]


def _queries(queries: Iterable[Query]) -> tuple[Query, ...]:
    if isinstance(queries, (str, bytes, Mapping)) or not isinstance(queries, Iterable):
        raise TypeError(f"Dataset takes a list of Query, got {type(queries).__name__}")
    listed = tuple(queries)
    for index, query in enumerate(listed):
        if type(query) is not Query and not isinstance(query, Query):
            raise TypeError(
                f"Dataset: element {index} must be a Query, got {type(query).__name__} — for dicts "
                "use Dataset.from_records(…)"
            )
    problems = _repeated_ids(listed)
    if problems:
        raise DatasetError(problems)
    return listed


def _repeated_ids(queries: Sequence[Query]) -> list[Problem]:
    if len({query.query_id for query in queries}) == len(queries):
        return []
    first: dict[str, int] = {}
    problems = []
    for index, query in enumerate(queries):
        earlier = first.setdefault(query.query_id, index)
        if earlier != index:
            problems.append(Problem(f"query {index}", _taken(query.query_id, f"query {earlier}")))
    return problems


def _taken(query_id: str, by: str) -> str:
    return f"query_id {query_id!r} is taken by {by} — ids must be unique"


def _canonical_query(query: Query) -> str:
    """One text for queries with equal id, text, labels and tags."""
    labels = (
        "?" if query.relevant is None else "".join(sorted(set(map(_canonical, query.relevant))))
    )
    tags = "".join(map(_counted, sorted(set(query.tags))))
    rule = query.metadata.get(RELABELLED_BY)
    row = _counted(query.query_id) + _counted(query.text) + _counted(labels) + _counted(tags)
    return f"{row}{_counted(rule)}" if isinstance(rule, str) else row


def _canonical(label: Label) -> str:
    """One text for equal labels; a group is the set of its members."""
    if not label.alternatives:
        span = label.source_span
        place = "" if span is None else f"{_counted(span.doc_id)}{span.start}-{span.end}"
        return (
            f"{_counted(label.text)}{_counted(label.chunk_id)}{label.grade}{place and '@'}{place};"
        )
    members = sorted(set(map(_canonical, label.alternatives)))
    return members[0] if len(members) == 1 else f"({''.join(members)})"


def _counted(text: str | None) -> str:
    """A text with its length, so that texts joined differently stay different."""
    return "-" if text is None else f"{len(text)}:{text}"
