"""One miss with all that is known about it, from which the causes are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chunkrecall.diagnosis.passages import Passages
from chunkrecall.metric import Cutoff, depth_of
from chunkrecall.records import Chunks, Label
from chunkrecall.render import quoted
from chunkrecall.text import NearMisses

if TYPE_CHECKING:
    from chunkrecall.diagnosis.corpus import Corpus
    from chunkrecall.diagnosis.probing import Probes
    from chunkrecall.diagnosis.terms import Terms
    from chunkrecall.report import QueryScore

SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Wanted:
    """What would satisfy one label of one query."""

    name: str
    """How the report calls the label."""
    texts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """Texts and ids of the alternatives; a label may have both."""
    members: tuple[Label, ...] = ()
    """The alternatives themselves, which may also say where they stand."""


@dataclass(frozen=True, slots=True)
class StageLoss:
    """The stage that lost a label."""

    stage: str
    before: str | None
    rank_before: int | None
    how: str | None


@dataclass(frozen=True)
class Lists:
    """The ranked list of one query, shared by its misses."""

    query: QueryScore
    chunks: Chunks
    k: Cutoff

    @cached_property
    def top(self) -> Sequence[str]:
        """The texts that were scored at the cutoff."""
        return self.chunks.texts if self.k is None else self.chunks.texts[: self.k]

    @cached_property
    def near(self) -> NearMisses:
        """The whole list, asked for near misses."""
        return NearMisses(self.chunks.texts)

    @cached_property
    def passages(self) -> Passages:
        """The first k texts, in which labels are looked for piece by piece."""
        return Passages(self.top)


@dataclass(frozen=True)
class Case:
    """One missed label, with the evidence that was passed."""

    lists: Lists
    wanted: Wanted
    rank: int | None
    """Its rank in the whole list, below the cutoff; None if it is not in it."""
    reads_ids: bool
    compared: str
    """How the label was looked up in the corpus, such as "exact lookup of the text"."""
    id_key: str | None
    """The metadata key that ids are matched by; None for the framework's id."""
    terms: Terms
    corpus: Corpus | None
    indexed: tuple[int, ...]
    """Where in the corpus the label stands, as it is matched."""
    probes: Probes
    loss: StageLoss | None
    has_stages: bool
    others: Mapping[str, int | None]
    """By retriever the rank it gave the label, None where it did not find it in its first k."""
    token_count: int | None
    """The tokens of the label's chunk, where they can be counted."""
    token_limit: int
    is_limit_assumed: bool

    @property
    def k(self) -> Cutoff:
        """The cutoff at which it is missing."""
        return self.lists.k

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The label's texts: its own, or those of the chunks with its id."""
        if self.wanted.texts or self.corpus is None:
            return self.wanted.texts
        found = [self.corpus.chunks.texts[index] for index in self.indexed]
        return tuple(dict.fromkeys(text for text in found if text.strip()))

    @property
    def is_comparable(self) -> bool:
        """Whether the corpus has what the label is known by.

        A label that is a place alone says nothing of chunks that do not say where they stand.
        """
        if self.wanted.texts or self.wanted.ids or self.corpus is None:
            return True
        return self.corpus.has_places

    @property
    def text(self) -> str | None:
        """The label's first text."""
        return self.texts[0] if self.texts else None

    @cached_property
    def documents(self) -> frozenset[str]:
        """The documents that the label's chunks come from, as far as the corpus says."""
        if self.corpus is None:
            return frozenset()
        chunks = self.corpus.chunks
        return frozenset(doc for i in self.indexed if (doc := chunks[i].doc_id) is not None)

    @property
    def deep_texts(self) -> Sequence[str]:
        """The texts that the deeper search gave; none where it was not made."""
        found = self.probes.chunks.get("deeper", {}).get(self.lists.query.query_id)
        return () if found is None else found.texts

    @cached_property
    def deep_near(self) -> NearMisses | None:
        """The deeper list, asked for near misses."""
        return NearMisses(self.deep_texts) if self.deep_texts else None

    @cached_property
    def form_rank(self) -> int | None:
        """The rank, in the list or the deeper one, of a chunk that is the label in another form."""
        for near in (self.lists.near, self.deep_near):
            if near is None or self.reads_ids:
                continue
            for text in self.wanted.texts:
                found = near.find(text)
                if found is not None:
                    return found[0]
        return None

    def may_be(self, text: str) -> bool:
        """Whether a text that resembles the label is not a chunk beside it, as the corpus says."""
        return self.corpus is None or not self.indexed or text not in self.corpus.by_text

    @property
    def best_rank(self) -> int | None:
        """Its rank in the list, else in the deeper probe."""
        return self.rank if self.rank is not None else self.probes.rank("deeper", self)

    @property
    def is_reachable(self) -> bool:
        """Whether some list has it."""
        return self.best_rank is not None

    @property
    def reach(self) -> float:
        """How many chunks were scored at most: the cutoff, or the list where it is shorter."""
        return min(depth_of(self.k), self.lists.query.retrieved_count)

    def is_within(self, rank: int | None) -> bool:
        """Whether a rank is among those that were scored."""
        return rank is not None and rank <= self.reach


def shown(text: str) -> str:
    """A text as evidence quotes it."""
    return quoted(text, limit=SHOWN_CHARACTERS)
