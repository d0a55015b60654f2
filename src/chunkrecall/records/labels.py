"""What must be found: labels and the queries that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records.spans import Span

LabelInput: TypeAlias = "str | Label | Sequence[str | Label]"

_Model = TypeVar("_Model", bound=BaseModel)
_set = object.__setattr__  # the models are frozen
_LABEL_SET = {"text"}
_NO_SPAN: dict[str, Any] = {"doc_id": None, "start": None, "end": None, "alternatives": ()}
_QUERY_SET = {"query_id", "text", "relevant", "tags", "metadata"}
_RECORD = ConfigDict(frozen=True, extra="forbid", strict=True)


class Label(BaseModel):
    """One thing that must be found: a chunk text, a chunk id, a source span, or a group.

    A label with both a text and an id is one label that either kind of matcher can read; so is one
    with a span (`Label.span`). A group (`alternatives`) is satisfied by any of its members and has
    nothing of its own.
    """

    model_config = _RECORD

    text: str | None = None
    """The chunk's own text, exactly as it is indexed. Never blank."""
    chunk_id: str | None = None
    """The chunk's id. Never blank."""
    grade: int = 1
    """Degree of relevance; the label counts when it reaches the relevance level of the scoring."""
    doc_id: str | None = None
    """The document of a source span, as the chunks' metadata name it."""
    start: int | None = None
    """The span's first character, counted from 0."""
    end: int | None = None
    """One past the span's last character."""
    alternatives: tuple[Label, ...] = Field(default=(), repr=False)
    """The members of a group, any one of which satisfies it."""

    @model_validator(mode="after")
    def _check(self) -> Label:
        if self.alternatives:
            own = (self.text, self.chunk_id, self.doc_id, self.start, self.end)
            if any(value is not None for value in own):
                raise ValueError("a group of alternatives has no text, chunk_id or span of its own")
            if self.grade != 1:
                raise ValueError(
                    "a group of alternatives has no grade of its own — give it to each member"
                )
            if any(member.alternatives for member in self.alternatives):
                raise ValueError("a group of alternatives cannot hold another group")
            return self
        if self.text is None and self.chunk_id is None and self.doc_id is None:
            raise ValueError("a label needs a text or a chunk_id, or a span")
        for field in ("text", "chunk_id", "doc_id"):
            value = getattr(self, field)
            if value is not None and (not value or value.isspace()):
                raise ValueError(f"a label's {field} must not be blank, got {value!r}")
        self._check_span()
        return self

    def _check_span(self) -> None:
        if self.doc_id is None and self.start is None and self.end is None:
            return
        if self.doc_id is None or self.start is None or self.end is None:
            raise ValueError("a span needs doc_id, start and end — write Label.span(…)")
        if not 0 <= self.start < self.end:
            raise ValueError(
                f"a span needs 0 <= start < end, got start={self.start} and end={self.end}"
            )
        if self.text is not None and len(self.text) != self.end - self.start:
            raise ValueError(
                f"the span has {self.end - self.start} characters and the text {len(self.text)}: "
                "offsets count characters, not bytes"
            )

    @classmethod
    def span(
        cls,
        doc_id: str,
        start: int,
        end: int,
        *,
        text: str | None = None,
        chunk_id: str | None = None,
        grade: int = 1,
    ) -> Label:
        """The label of characters `start` to `end` of a document, whatever chunks it is cut into.

        Args:
            doc_id: The document, as the chunks' metadata name it ("doc_id", else "ref_doc_id",
                else "source").
            start: The first character, counted from 0.
            end: One past the last character.
            text: The passage itself, if known: spaces in it then count for nothing.
            chunk_id: A chunk that is this label, for matching by id.
            grade: Degree of relevance.

        Raises:
            ValueError: An empty span, or a text of another length.
        """
        return cls(doc_id=doc_id, start=start, end=end, text=text, chunk_id=chunk_id, grade=grade)

    @property
    def source_span(self) -> Span | None:
        """The span as one value; None where the label has none."""
        if self.doc_id is None or self.start is None or self.end is None:
            return None
        return Span(self.doc_id, self.start, self.end)

    @property
    def members(self) -> tuple[Label, ...]:
        """The alternatives of a group, or the label itself."""
        return self.alternatives or (self,)

    @property
    def identity(self) -> tuple[str | None, str | None, Span | None]:
        """Text, id and span of a label that is no group."""
        return self.text, self.chunk_id, self.source_span

    def __str__(self) -> str:
        if self.alternatives:
            return " | ".join(str(member) for member in self.alternatives)
        if self.text is not None:
            return self.text
        return str(self.source_span if self.chunk_id is None else self.chunk_id)

    def __repr__(self) -> str:
        if self.alternatives:
            return f"Label(alternatives={self.alternatives!r})"
        parts = [
            f"{field}={value!r}"
            for field, value in self
            if value is not None and field not in ("grade", "alternatives")
        ]
        if self.grade != 1:
            parts.append(f"grade={self.grade}")
        return f"Label({', '.join(parts)})"


class Query(BaseModel):
    """A labelled question.

    Args:
        query_id: Unique within its dataset.
        text: The question as the retriever gets it.
        relevant: What must be found. Strings are chunk texts; a list inside the list is a group of
            alternatives. None means nobody judged this query; an empty list means somebody did and
            nothing is relevant.
        relevant_ids: Chunk ids that must be found, each a label of its own. For one label with a
            text and an id write `Label(text=…, chunk_id=…)` in `relevant`.
        tags: Names for slices of the dataset, such as "multi-hop".
        metadata: Anything else; carried along, never interpreted.

    Raises:
        TypeError: A value of the wrong type, such as a bare string where a list belongs.
        ValueError: A blank id or label.
        DatasetError: One label with two different grades.
    """

    model_config = _RECORD

    query_id: str
    text: str
    relevant: tuple[Label, ...] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = Field(default_factory=dict)

    def __init__(
        self,
        *,
        query_id: str,
        text: str,
        relevant: Iterable[LabelInput] | None = None,
        relevant_ids: Iterable[str] | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        for field, value in (("text", text), ("query_id", query_id)):
            if not isinstance(value, str):
                raise TypeError(f"Query: {field} must be a string, got {_what(value)}")
        if not query_id:
            raise ValueError("Query: query_id must not be empty")
        place = f"Query {query_id!r}"
        labels = _labels(relevant, relevant_ids, place)
        if labels:
            _refuse_conflicting_grades(labels, place)
        super().__init__(
            query_id=query_id,
            text=text,
            relevant=labels,
            tags=tuple(_strings(tags, f"{place}: tags")),
            metadata=_mapping({} if metadata is None else metadata, f"{place}: metadata"),
        )

    @property
    def judged(self) -> bool:
        """Whether somebody said what is relevant, even if it is nothing."""
        return self.relevant is not None


def plain_query(query_id: object, text: object, relevant: object) -> Query | None:
    """The query of an id, a text and a list of label texts; None where anything is not plain.

    What `Query(…)` gives, at a fifth of its cost: files have millions of such rows.
    """
    if not (type(query_id) is str and query_id and type(text) is str and type(relevant) is list):
        return None
    labels = []
    for one in relevant:
        if type(one) is not str or not one or one.isspace():
            return None
        label = {"text": one, "chunk_id": None, "grade": 1, **_NO_SPAN}
        labels.append(_filled(Label, label, _LABEL_SET))
    fields = {
        "query_id": query_id,
        "text": text,
        "relevant": tuple(labels),
        "tags": (),
        "metadata": {},
    }
    return _filled(Query, fields, _QUERY_SET)


def _filled(kind: type[_Model], fields: dict[str, Any], given: set[str]) -> _Model:
    """What `model_construct` does for a model without private or further fields."""
    made = kind.__new__(kind)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def _labels(
    relevant: Iterable[LabelInput] | None, relevant_ids: Iterable[str] | None, place: str
) -> tuple[Label, ...] | None:
    if relevant is None and relevant_ids is None:
        return None
    labels: list[Label] = []
    if relevant is not None:
        for index, item in enumerate(_listed(relevant, f"{place}: relevant")):
            labels.append(_label(item, f"{place}: relevant[{index}]"))
    if relevant_ids is not None:
        for index, chunk_id in enumerate(_strings(relevant_ids, f"{place}: relevant_ids")):
            if not chunk_id or chunk_id.isspace():
                raise ValueError(f"{place}: relevant_ids[{index}] must not be blank")
            labels.append(Label(chunk_id=chunk_id))
    return tuple(labels)


def _label(item: object, place: str) -> Label:
    if isinstance(item, Label):
        return item
    if isinstance(item, str):
        if not item or item.isspace():
            raise ValueError(f"{place}: a label must not be blank, got {item!r} — remove it")
        return Label(text=item)
    if isinstance(item, (list, tuple)):
        if any(isinstance(member, (list, tuple)) for member in item):
            raise ValueError(f"{place}: a group of alternatives cannot hold another group")
        members = [_label(member, f"{place}[{index}]") for index, member in enumerate(item)]
        if not members:
            raise ValueError(f"{place}: a group of alternatives must not be empty")
        if any(member.alternatives for member in members):
            raise ValueError(f"{place}: a group of alternatives cannot hold another group")
        return members[0] if len(members) == 1 else Label(alternatives=tuple(members))
    raise TypeError(
        f"{place}: a label is a chunk text, a Label, or a list of alternatives; got {_what(item)}"
    )


def _refuse_conflicting_grades(labels: Sequence[Label], place: str) -> None:
    grades: dict[tuple[str | None, str | None, Span | None], int] = {}
    problems = []
    for label in labels:
        for member in label.members:
            known = grades.setdefault(member.identity, member.grade)
            if known != member.grade:
                problems.append(
                    Problem(
                        place,
                        f"label {str(member)!r} has the grades {known} and {member.grade} — "
                        "keep one of them",
                    )
                )
    if problems:
        raise DatasetError(problems)


def _listed(values: Iterable[object], place: str) -> list[Any]:
    """A list of what was given in a list; a bare string, bytes or mapping is a TypeError."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{place} must be a list, got {_what(values)} — put it in a list")
    if hasattr(values, "columns"):  # going through a table gives the names of its columns
        raise TypeError(f"{place} must be a list, got a {type(values).__name__} — take one column")
    return list(values)


def _strings(values: Iterable[str], place: str) -> list[str]:
    items = _listed(values, place)
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(f"{place}[{index}] must be a string, got {_what(item)}")
    return items


def _mapping(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{place} must be a dict, got {_what(value)}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place}: keys must be strings, got {_what(key)}")
    return dict(value)


def _what(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"
