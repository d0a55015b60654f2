"""Which runs after a retrieval are steps of it, told by the Documents they take and give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from langchain_core.documents import Document

from chunkrecall.adapters import CONTAINER_KEYS

_MOST_LISTS = 16

Listed: TypeAlias = "list[Any] | tuple[Any, ...]"


class Held(NamedTuple):
    """A list of Documents that a run takes or gives."""

    key: str | None
    """The key of the dict or state that holds the list; None for the list itself."""
    given: Listed
    documents: list[Document]
    """Its Documents at the time, should it be changed in place."""


class _Kept(NamedTuple):
    given: Listed
    documents: list[Document]
    made_in: tuple[UUID, ...]
    """The step that made it and the runs around that; none for what was retrieved."""

    def is_still(self, held: Held) -> bool:
        """Whether this is the same list, unchanged."""
        return (
            self.given is held.given
            and len(self.documents) == len(held.documents)
            and all(map(is_, self.documents, held.documents))
        )


class Retrieved:
    """What a retrieval of a labelled query returned, and what later steps have made of it."""

    __slots__ = ("_identities", "lists", "query_id")

    def __init__(self, query_id: str, documents: Listed) -> None:
        self.query_id = query_id
        self.lists = [_Kept(documents, documents_in(documents) or [], ())]
        """The retrieved list, and each later one."""
        self._identities: set[int] | None = None

    def add(self, held: Held, made_in: tuple[UUID, ...]) -> None:
        """A step made this list."""
        self.lists.append(_Kept(held.given, held.documents, made_in))
        if len(self.lists) > _MOST_LISTS:
            del self.lists[1]
        self._identities = None

    def gave(self, given: object) -> bool:
        """Whether it is one of the lists itself."""
        return any(one.given is given for one in self.lists)

    def same(self, documents: Iterable[Document]) -> int:
        """How many of the Documents are the very ones of a list."""
        if self._identities is None:
            self._identities = {id(one) for kept in self.lists for one in kept.documents}
        identities = self._identities
        return sum(id(one) in identities for one in documents)

    def equal(self, documents: Iterable[Document]) -> int:
        """How many of the Documents have id and text of one in a list; a copy may lack the id."""
        own = [one for kept in self.lists for one in kept.documents]
        texts = {(one_id, one.page_content) for one in own for one_id in (one.id, None)}
        return sum((one.id, one.page_content) in texts for one in documents)

    def has_part(self, documents: Iterable[Document]) -> bool:
        """Whether a Document is one of a list, a copy of one, or a passage from one."""
        listed = list(documents)
        return bool(self.same(listed) or self.equal(listed)) or any(
            one.page_content and one.page_content in other.page_content
            for one in listed
            for kept in self.lists
            for other in kept.documents
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What a run takes that was given Documents of a retrieval."""

    retrieved: Retrieved
    keys: frozenset[str | None]
    """Where they were in its inputs; None stands for the inputs themselves."""

    def made(self, outputs: object, run_id: UUID, branch: str | None) -> Held | None:
        """The list that the run made of them.

        None when it made no list of Documents, made one of other things (a chat history beside
        the context), or handed on a list that it was given or that a step inside it made.

        Args:
            outputs: What the run returned.
            run_id: The run.
            branch: The key of the dict into which a RunnableParallel puts the outputs.
        """
        lists = self.retrieved.lists
        before: list[tuple[Held, _Kept]] = []
        for held in _lists_in(outputs):
            if self._is_answer(branch if held.key is None else held.key, held.documents):
                known = next((one for one in lists if one.is_still(held)), None)
                if known is None:
                    return held
                before.append((held, known))
        # An earlier list in place of the last one is a step too; a branch keeps it beside that.
        is_step = branch is None and not any(
            known is lists[-1] or run_id in known.made_in for _, known in before
        )
        return before[0][0] if before and is_step else None

    def _is_answer(self, key: str | None, documents: list[Document]) -> bool:
        """Whether a list that the run puts under a key stands for what it was given."""
        if key is None or key in self.keys:
            return True
        if None in self.keys and (documents or key in CONTAINER_KEYS):
            return True
        return self.retrieved.has_part(documents)


def find_step(
    inputs: object, before: Iterable[Mapping[str, Retrieved]], bound: str | None
) -> Step | None:
    """The step that a run with these inputs is, if they hold Documents of a retrieval.

    Args:
        inputs: A list of Documents, or of lists of them, or a dict or state that holds some.
        before: What was retrieved in each run around, by query, the nearest run first.
        bound: The query that goes before others that match.
    """
    held = [one for one in _lists_in(inputs, nested=True) if one.documents]
    if not held:
        return None
    for of_query in before:
        retrieved = _source(held, of_query, bound)
        if retrieved is not None:
            keys = [one.key for one in held if _overlaps(retrieved, one.documents)]
            return Step(retrieved, frozenset(keys))
    return None


def _source(
    held: list[Held], of_query: Mapping[str, Retrieved], bound: str | None
) -> Retrieved | None:
    """The retrieval from which most of the Documents come, the latest of several."""
    documents = [document for one in held for document in one.documents]
    named = of_query.get(bound) if bound is not None else None
    if named is not None and _overlaps(named, documents):
        return named
    known = list(of_query.values())[::-1]

    def identities(retrieved: Retrieved) -> tuple[bool, int]:
        return any(retrieved.gave(one.given) for one in held), retrieved.same(documents)

    best = max(known, key=identities)
    if best.same(documents):
        return best
    best = max(known, key=lambda retrieved: retrieved.equal(documents))
    return best if best.equal(documents) else None


def _overlaps(retrieved: Retrieved, documents: list[Document]) -> bool:
    return bool(retrieved.same(documents) or retrieved.equal(documents))


def documents_in(items: Listed) -> list[Document] | None:
    """The Documents of a list of them or of (Document, score) pairs; None for any other list."""
    if set(map(type, items)) == {Document}:  # nearly always; isinstance is slow on pydantic classes
        return list(items)
    documents: list[Any] = [
        item[0] if isinstance(item, tuple) and len(item) == 2 else item for item in items
    ]
    return documents if all(isinstance(one, Document) for one in documents) else None


def _lists_in(value: object, *, nested: bool = False) -> Iterator[Held]:
    """The lists of Documents, and the empty lists, that a value is or holds.

    Of a dict, state or graph Command, those under the usual keys go first.

    Args:
        value: What a run takes or gives.
        nested: Whether a list of lists counts as one, as `retriever.map()` returns them.
    """
    if isinstance(value, (list, tuple)):
        documents = _flat(value) if nested else documents_in(value)
        if documents is not None:
            yield Held(None, value, documents)
        return
    fields = _fields(value)
    for key in dict.fromkeys((*[key for key in CONTAINER_KEYS if key in fields], *fields)):
        held = fields[key]
        if isinstance(held, (list, tuple)):
            documents = _flat(held) if nested else documents_in(held)
            if documents is not None:
                yield Held(key, held, documents)


def _flat(items: Listed) -> list[Document] | None:
    if not (items and isinstance(items[0], list)):
        return documents_in(items)
    inside = [documents_in(one) for one in items if isinstance(one, (list, tuple))]
    return [document for one in inside if one is not None for document in one]


def _fields(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    update = getattr(value, "update", None)  # of a LangGraph Command
    if isinstance(update, Mapping):
        return update
    return getattr(value, "__dict__", {})
