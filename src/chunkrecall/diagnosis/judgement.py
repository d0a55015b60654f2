"""Whether the labels themselves can be trusted: unjudged chunks, other wordings, pooled labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chunkrecall.diagnosis.case import Case, shown
from chunkrecall.diagnosis.causes import Finding
from chunkrecall.diagnosis.similarity import shared_sentence, similarity
from chunkrecall.matching import ChunkId
from chunkrecall.metric import Cutoff, depth_of
from chunkrecall.records import Chunks
from chunkrecall.render import percent

if TYPE_CHECKING:
    from chunkrecall.diagnosis.rules import Rules
    from chunkrecall.report import Report

_ALIKE_SHORT, _ALIKE_LONG, _LONG = 0.3, 0.5, 300
"""From here on a returned chunk is shown as a possible alternate label; any two long texts of one
language are alike by a third."""
_SAYS_THE_SAME = 0.6
_LOOKED_AT = 5
_POOLED = 1.0
_FEWEST_POOLED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A returned chunk without a label that reads like one that was missed."""

    query_id: str
    label: str
    text: str
    chunk_id: str | None
    rank: int
    similarity: float
    shared: str | None
    """A sentence of the label that it has word for word."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "query_id": self.query_id,
            "label": self.label,
            "text": self.text,
            "chunk_id": self.chunk_id,
            "rank": self.rank,
            "similarity": self.similarity,
            "shared": self.shared,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How much of what was returned in the first k somebody has judged relevant or not."""

    name: str
    k: Cutoff
    chunks: int
    unjudged: int

    @property
    def unjudged_share(self) -> float | None:
        """The share without a label; None where nothing was returned."""
        return self.unjudged / self.chunks if self.chunks else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "k": self.k,
            "chunks": self.chunks,
            "unjudged": self.unjudged,
            "unjudged_share": self.unjudged_share,
        }


def best_candidate(case: Case) -> Candidate | None:
    """The returned chunk that reads most like the label; None if none does."""
    if case.text is None:
        return None
    best: tuple[bool, float, int, str | None] | None = None
    for rank, text in enumerate(case.lists.top[:_LOOKED_AT], start=1):
        if text in case.texts or not text.strip():
            continue
        if rank == case.form_rank and case.may_be(text):
            continue  # the label itself, in another form
        shared = shared_sentence(case.text, text)
        alike = similarity(case.text, text)
        if (shared is not None or alike >= _least_alike(case.text)) and (
            best is None or (shared is not None, alike) > best[:2]
        ):
            best = (shared is not None, alike, rank, shared)
    if best is None:
        return None
    _, alike, rank, shared = best
    chunk = case.lists.chunks[rank - 1]
    return Candidate(
        query_id=case.lists.query.query_id,
        label=case.wanted.name,
        text=chunk.text,
        chunk_id=chunk.chunk_id,
        rank=rank,
        similarity=round(alike, 3),
        shared=shared,
    )


def _least_alike(text: str) -> float:
    return _ALIKE_SHORT + (_ALIKE_LONG - _ALIKE_SHORT) * min(1.0, len(text) / _LONG)


def label_doubtful(case: Case) -> Finding | None:
    """A returned chunk has a sentence of the label, or reads much like it."""
    found = best_candidate(case)
    if found is None or (found.shared is None and found.similarity < _SAYS_THE_SAME):
        return None
    why = (
        f"has its sentence {shown(found.shared)}"
        if found.shared is not None
        else f"reads much like it (similarity {found.similarity:.2f})"
    )
    return Finding(
        "label_doubtful",
        "hypothesis",
        f"check the label: the chunk at rank {found.rank} {why}",
        "look at both, and accept the chunk as an alternative label if it answers the question",
        {"rank": found.rank, "similarity": found.similarity, "shared": found.shared},
    )


def judged(report: Report, rules: Rules, k: Cutoff, lists: Mapping[str, Chunks]) -> Judged:
    """How many of the chunks in the first k have a label, relevant or not."""
    total = unjudged = 0
    for query_id, chunks in lists.items():
        if query_id not in rules.dataset:
            continue
        known = _known(rules, query_id)
        top = int(min(depth_of(k), len(chunks)))
        total += top
        unjudged += sum(not _is_known(chunks, index, known) for index in range(top))
    return Judged(name=report.name, k=k, chunks=total, unjudged=unjudged)


def _known(rules: Rules, query_id: str) -> tuple[frozenset[str], frozenset[str]]:
    members = [one for label in rules.dataset[query_id].relevant or () for one in label.members]
    texts = frozenset(one.text for one in members if one.text is not None)
    return texts, frozenset(one.chunk_id for one in members if one.chunk_id is not None)


def _is_known(chunks: Chunks, index: int, known: tuple[frozenset[str], frozenset[str]]) -> bool:
    texts, ids = known
    chunk_id = None if chunks.chunk_ids is None else chunks.chunk_ids[index]
    return chunks.texts[index] in texts or (chunk_id is not None and chunk_id in ids)


def pooled_share(report: Report, k: Cutoff) -> float | None:
    """The share of all labels that the report has in its first k; None without labels."""
    ranks = [rank for row in report.queries if row.status == "scored" for rank in row.label_ranks]
    if not ranks:
        return None
    return sum(1 for rank in ranks if rank is not None and rank <= depth_of(k)) / len(ranks)


def notes_on_labels(
    report: Report, rules: Rules, shares: Sequence[Judged], others: Sequence[Report]
) -> Iterator[str]:
    """What a reader of the score should know of its labels."""
    mine = shares[0]
    if any(one.unjudged_share for one in shares):
        said = ", ".join(f"{one.name} {percent(one.unjudged_share)}" for one in shares)
        yield (
            f"unjudged chunks in the first {mine.k or 'of all'}: {said}; a chunk without a label "
            "counts as irrelevant, so recall is a lower bound where relevant chunks are unlabelled"
        )
        for other in shares[1:]:
            if (other.unjudged_share or 0) > 2 * (mine.unjudged_share or 0):
                yield (
                    f"{other.name} returns more unjudged chunks than {mine.name}: its score is "
                    "more of a lower bound"
                )
    everyone = (report, *others)
    for source in everyone:
        pooled = pooled_share(source, mine.k)
        rest = [(x.name, pooled_share(x, mine.k)) for x in everyone if x is not source]
        labels = sum(len(row.labels) for row in source.queries if row.status == "scored")
        # One that others equal says nothing of where the labels came from.
        is_alone = all(value is not None and value < _POOLED for _, value in rest)
        if pooled == _POOLED and rest and is_alone and labels >= _FEWEST_POOLED:
            against = ", ".join(f"{percent(value)} inside {name}'s" for name, value in rest)
            yield (
                f"labels look pooled from {source.name}: 100 % are inside its top {mine.k}, "
                f"against {against}; what it never returned has no label"
            )
    if rules.has_dataset:
        flags = [query.metadata.get("verified") for query in rules.dataset]
        if any(isinstance(flag, bool) for flag in flags):
            verified = sum(flag is True for flag in flags)
            yield f"labels verified by a person: {verified} of {len(flags)} queries"
    if isinstance(rules.matcher, ChunkId) and not rules.has_dataset:
        yield "labels are ids alone: pass dataset= or corpus= to compare their texts"
