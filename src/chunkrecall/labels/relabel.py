"""Labels that survive another chunking: resolved against whatever chunks the index holds now."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from chunkrecall.adapters import to_chunks
from chunkrecall.labels.overlap import longest_overlap
from chunkrecall.matching import Coverage, check_threshold, shortest_run
from chunkrecall.records import RELABELLED_BY, UNRESOLVED, Dataset, Label, Query, Span, as_dataset
from chunkrecall.render import (
    Column,
    Document,
    Paragraph,
    Table,
    count,
    quoted,
    share,
    to_html,
    to_markdown,
    to_terminal,
)
from chunkrecall.text import NearMisses

if TYPE_CHECKING:
    from chunkrecall.records import Chunks, DatasetInput

Rule: TypeAlias = "Overlap | Literal['any'] | float"
_SHOWN = 100
_LISTED = 20
_NUL = "\0"


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much a chunk must share with a label to be needed for it.

    A chunk that holds the whole label is enough alone: it is the label, and several such chunks are
    alternatives. Else every chunk that shares enough is a label of its own.

    Raises:
        ValueError: `min_share` is not within 0 and 1, or `of` is neither "label" nor "chunk".
    """

    min_share: float = 0
    """Of the label's characters, or the chunk's; 0 is any overlap at all."""
    of: Literal["label", "chunk"] = "label"
    _exact: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.of not in ("label", "chunk"):
            raise ValueError(f"of must be 'label' or 'chunk', got {self.of!r:.100}")
        is_zero = self.min_share == 0 and not isinstance(self.min_share, bool)
        exact = Fraction(0) if is_zero else check_threshold(self.min_share, "min_share")
        object.__setattr__(self, "_exact", exact)

    def describe(self) -> str:
        """The rule in words, for the report."""
        if self.min_share == 0:
            return "chunks that overlap the label"
        whose = "the label" if self.of == "label" else "themselves"
        return f"chunks that share at least {self.min_share:g} of {whose} with the label"

    def is_enough(self, shared: int, label: int, chunk: int) -> bool:
        """Whether that many characters in common are, given the sizes of both."""
        whole = label if self.of == "label" else chunk
        return shared > 0 and Fraction(shared, whole) >= self._exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """A label that the chunks do not hold, or not all of it."""

    query_id: str
    label: Label
    covered: float
    """The share of it that the chosen chunks hold together, below 1; 0 where there is none."""
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "query_id": self.query_id,
            "label": str(self.label),
            "covered": self.covered,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Relabelling:
    """A labelled set in terms of the chunks at hand. `print(relabelling)` is a table."""

    dataset: Dataset
    """The resolved set. A query keeps the labels that were resolved; one that has none left is not
    judged, and so left out of every mean."""
    rule: str
    labels: int
    """How many labels there were to resolve, a group counting as one."""
    unresolved: tuple[Unresolved, ...]
    """Labels that no chunk holds: they are in the resolved set no more."""
    partial: tuple[Unresolved, ...]
    """Labels of which the chosen chunks hold a part only."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the set itself."""
        return {
            "rule": self.rule,
            "labels": self.labels,
            "unresolved": [one.to_dict() for one in self.unresolved],
            "partial": [one.to_dict() for one in self.partial],
            "fingerprint": self.dataset.fingerprint,
        }

    def document(self) -> Document:
        """Counts, and the labels that were not resolved, or in part."""
        resolved = self.labels - len(self.unresolved)
        found = f"{resolved} of {count(self.labels, 'label', 'labels')} resolved to {self.rule}"
        blocks: list[Table | Paragraph] = [Paragraph(found)]
        if self.labels and not resolved:
            blocks.append(Paragraph(_all_unknown(self.unresolved)))
        for title, listed in (
            ("not resolved, and left out", self.unresolved),
            ("resolved in part", self.partial),
        ):
            if listed:
                rows = tuple(
                    (one.query_id, quoted(str(one.label), limit=_SHOWN), one.reason)
                    for one in listed[:_LISTED]
                )
                columns = (Column("query"), Column("label", wrap=True), Column("why", wrap=True))
                heading = f"{count(len(listed), 'label', 'labels')} {title}"
                if len(listed) > _LISTED:
                    heading += f"; the first {_LISTED}"
                blocks.append(Table(heading, columns, rows))
        return Document(tuple(blocks))

    def __str__(self) -> str:
        return to_terminal(self.document())

    def _repr_html_(self) -> str:
        return to_html(self.document())

    def to_markdown(self) -> str:
        """The tables as GitHub Markdown, every text escaped."""
        return to_markdown(self.document())


def relabel(dataset: DatasetInput, corpus: object, *, rule: Rule = "any") -> Relabelling:
    """Resolve labels against the chunks that the index holds now, so that chunkers can be compared.

    A label with a span is placed by it, among the chunks of its document that carry offsets
    (LangChain's `add_start_index=True`, LlamaIndex's node parsers). Any other label with a text is
    looked for, whitespace apart: the whole of it in a chunk, the whole of a chunk in it, or its
    beginning or end at a chunk's end or beginning, each at least as long as the shortest run of
    `Coverage`. An id alone stays what it is, if a chunk has it.

    Args:
        dataset: The labelled queries. They stay as they are: resolve them anew for every chunking.
        corpus: All chunks: Chunks, texts, Documents, nodes or dicts.
        rule: Which chunks a label needs where none holds it whole: "any" that overlap it, those
            with at least this share of it (a number within 0 and 1), or an `Overlap`. The rule is
            part of the resolved set's fingerprint.

    Raises:
        ValueError: A rule that is none.
        TypeError: The corpus holds something that is no chunk.
    """
    labelled = as_dataset(dataset)
    overlap = _rule(rule)
    found = _Corpus(to_chunks(corpus), overlap)
    unresolved: list[Unresolved] = []
    partial: list[Unresolved] = []
    queries = [
        query if query.relevant is None else _resolved(query, found, unresolved, partial)
        for query in labelled
    ]
    return Relabelling(
        dataset=Dataset(queries, name=labelled.name),
        rule=overlap.describe(),
        labels=sum(len(query.relevant or ()) for query in labelled),
        unresolved=tuple(unresolved),
        partial=tuple(partial),
    )


def _rule(rule: object) -> Overlap:
    if isinstance(rule, Overlap):
        return rule
    if rule == "any":
        return Overlap()
    if isinstance(rule, (int, float)):
        return Overlap(rule)
    raise ValueError(
        f"rule must be 'any', a share within 0 and 1, or an Overlap, got {rule!r:.100}"
    )


def _all_unknown(unresolved: Sequence[Unresolved]) -> str:
    text = "all labels are unknown to this index: a recall of 0 would say nothing of the retriever"
    if all(one.label.text is None and one.label.chunk_id is not None for one in unresolved):
        text += (
            " — ids that are made at random change whenever the index is built: derive them from "
            "the content, or label with texts or spans"
        )
    return text


def _resolved(
    query: Query, corpus: _Corpus, unresolved: list[Unresolved], partial: list[Unresolved]
) -> Query:
    labels: dict[object, Label] = {}
    lost = 0
    for label in query.relevant or ():
        chosen, covered, reason = corpus.resolve(label)
        problem = Unresolved(query_id=query.query_id, label=label, covered=covered, reason=reason)
        if not chosen:
            lost += 1
            unresolved.append(problem)
        elif covered < 1:
            partial.append(problem)
        for one in chosen:
            key = frozenset(member.identity for member in one.members)
            known = labels.get(key)
            if known is None or known.grade < one.grade:
                labels[key] = one
    is_lost = lost > 0 and not labels
    metadata = {**query.metadata, RELABELLED_BY: corpus.overlap.describe()}
    if lost:
        metadata[UNRESOLVED] = lost
    return Query(
        query_id=query.query_id,
        text=query.text,
        relevant=None if is_lost else _one_grade_each(list(labels.values())),
        tags=query.tags,
        metadata=metadata,
    )


def _one_grade_each(labels: Sequence[Label]) -> list[Label]:
    """The labels with the highest grade that any of them gives a chunk."""
    grades: dict[object, int] = {}
    for label in labels:
        for member in label.members:
            grades[member.identity] = max(member.grade, grades.get(member.identity, member.grade))

    def regraded(label: Label) -> Label:
        return label.model_copy(update={"grade": grades[label.identity]})

    return [
        Label(alternatives=tuple(map(regraded, label.alternatives)))
        if label.alternatives
        else regraded(label)
        for label in labels
    ]


@dataclass(frozen=True, slots=True)
class _Held:
    """One chunk's part of a label."""

    index: int
    shared: int
    """Characters in common."""
    label: int
    chunk: int
    """The characters of each, counted like `shared`."""

    @property
    def is_whole(self) -> bool:
        return self.shared >= self.label


class _Corpus:
    """All chunks, arranged to be looked up by id, by place and by text."""

    def __init__(self, chunks: Chunks, overlap: Overlap) -> None:
        self.overlap = overlap
        self._chunks = chunks
        self._by_id = {
            chunk_id: index
            for index, chunk_id in enumerate(chunks.chunk_ids or ())
            if chunk_id is not None
        }
        self._by_text: dict[str, list[int]] = {}
        for index, text in enumerate(chunks.texts):
            self._by_text.setdefault(text, []).append(index)
        self._places: dict[str, list[tuple[int, Span]]] = {}
        for index in range(len(chunks)):
            span = chunks.span_at(index)
            if span is not None:
                self._places.setdefault(span.doc_id, []).append((index, span))
        self._bare = ["".join(text.split()) for text in chunks.texts]
        self._joined = _NUL.join(self._bare)
        self._starts = [0, *accumulate(len(text) + 1 for text in self._bare)]
        self._near = NearMisses(chunks.texts)

    def resolve(self, label: Label) -> tuple[list[Label], float, str]:
        """The labels that stand for this one, the share they hold of it, and why it is not all."""
        whole: list[Label] = []
        best: tuple[float, list[Label]] = (0.0, [])
        reasons = []
        for member in label.members:
            held, reason = self._held(member)
            reasons.append(reason)
            enough = [one for one in held if one.is_whole] or [
                one for one in held if self.overlap.is_enough(one.shared, one.label, one.chunk)
            ]
            made = [self._label(one.index, member.grade) for one in enough]
            if enough and enough[0].is_whole:
                whole += made
            elif made:
                best = max(best, (self._covered(member, enough), made), key=lambda one: one[0])
            elif held:
                reasons[-1] = "the chunks that overlap it share too little of it"
        distinct = list({one.identity: one for one in whole}.values())
        if distinct:
            group = distinct[0] if len(distinct) == 1 else Label(alternatives=tuple(distinct))
            return [group], 1.0, ""
        covered, parts = best
        if parts:
            return parts, covered, f"the chosen chunks hold {share(covered)} of it"
        return [], 0.0, "; ".join(dict.fromkeys(reasons))

    def _held(self, label: Label) -> tuple[list[_Held], str]:
        span, text = label.source_span, label.text
        if span is not None and (span.doc_id in self._places or text is None):
            if span.doc_id in self._places:
                return self._at(span, text), f"no chunk of {span.doc_id!r:.80} overlaps it"
            whose = f"of the document {span.doc_id!r:.80}" if self._places else "of the corpus"
            return [], f"no chunk {whose} carries offsets"
        if text is None:
            index = self._by_id.get(label.chunk_id)
            held = [] if index is None else [_Held(index, 1, 1, 1)]
            return held, f"no chunk has the id {label.chunk_id!r:.80}"
        equal = self._by_text.get(text)
        if equal is not None:
            return [_Held(index, 1, 1, 1) for index in equal], ""
        return self._containing(text), self._why_absent(text)

    def _why_absent(self, text: str) -> str:
        near = self._near.find(text)
        if near is None:
            return "no chunk holds it, or a piece of it"
        return f"chunk {near[0]} is {near[1]}"

    def _at(self, span: Span, text: str | None) -> list[_Held]:
        held = []
        solid = None if text is None else [not character.isspace() for character in text]
        for index, place in self._places[span.doc_id]:
            start, end = max(span.start, place.start), min(span.end, place.end)
            if start >= end:
                continue
            own = self._chunks.texts[index]
            shown = own[start - place.start : end - place.start]
            if len(own) == place.end - place.start and shown.isspace():
                continue
            if solid is None:
                sizes = end - start, span.end - span.start
            else:
                sizes = sum(solid[start - span.start : end - span.start]), sum(solid)
            if sizes[0]:
                held.append(_Held(index, *sizes, place.end - place.start))
        return held

    def _containing(self, text: str) -> list[_Held]:
        """The chunks that stand where the text does, all compared without whitespace."""
        bare = "".join(text.split())
        run = shortest_run(len(bare))
        candidates = {*self._with(bare[:run]), *self._with(bare[-run:])}
        inner = {
            index
            for index, chunk in enumerate(self._bare)
            if run <= len(chunk) < len(bare) and chunk in bare
        }
        held = []
        for index in sorted(candidates | inner):
            chunk = self._bare[index]
            if bare in chunk:
                shared = len(bare)
            elif index in inner:
                shared = len(chunk)
            else:
                shared = max(longest_overlap(chunk, bare), longest_overlap(bare, chunk))
            if shared >= run:
                held.append(_Held(index, shared, len(bare), len(chunk)))
        return held

    def _with(self, piece: str) -> Iterator[int]:
        """The indexes of the chunks that have the piece somewhere, whitespace apart."""
        at = self._joined.find(piece)
        while at >= 0:
            index = bisect_right(self._starts, at) - 1
            yield index
            at = self._joined.find(piece, self._starts[index + 1])

    def _covered(self, label: Label, held: Sequence[_Held]) -> float:
        chunks = self._chunks.take([one.index for one in held])
        ((_, shares),) = Coverage().measure([label], chunks, [None])
        return shares[0]

    def _label(self, index: int, grade: int) -> Label:
        text = self._chunks.texts[index]
        chunk_ids = self._chunks.chunk_ids
        return Label(
            text=text if text.strip() else None,
            chunk_id=None if chunk_ids is None else chunk_ids[index],
            grade=grade,
        )
