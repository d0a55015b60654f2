"""What each stage of one retrieval returned, and which stage lost a label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chunkrecall.render import quoted, share
from chunkrecall.text import collapse_whitespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chunkrecall.records import Ranking
    from chunkrecall.report import QueryScore

FINAL = "final"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class LostLabel:
    """A label that one stage had and the next did not."""

    query_id: str
    label: str
    stage: str
    """The stage that lost it."""
    how: str | None = None
    """What became of its chunk there, such as "merged into parent 'p'"; None if it is gone."""


@dataclass(slots=True)
class Stage:
    """One step of one retrieval with the steps that fed it."""

    name: str
    score: QueryScore
    sources: list[Stage] = field(default_factory=list)
    """What fed it: the retrievers inside it, or the step before it."""
    ranking: Ranking | None = None
    """Its list, until the recorder has put it away."""

    def has(self, label: str) -> bool:
        """Whether the label is anywhere in the stage's list."""
        return self.score.ranks.get(label) is not None

    def loser_of(self, label: str) -> tuple[Stage, Stage] | None:
        """The stage at or below this one that dropped the label, and the one that had it."""
        if self.has(label):
            return None
        holder = next((source for source in self.sources if source.has(label)), None)
        if holder is not None:
            return self, holder
        return next(filter(None, (source.loser_of(label) for source in self.sources)), None)

    def flat(self) -> list[Stage]:
        """The stages below, innermost first, and this one last."""
        return [*[stage for source in self.sources for stage in source.flat()], self]


def lost_labels(last: Stage) -> list[LostLabel]:
    """The labels that some stage had and the last one has not, each with the stage that lost it."""
    lost = []
    for label in last.score.labels:
        found = last.loser_of(label)
        if found is not None:
            stage, holder = found
            how = fate_of(label, holder.score, stage.score)
            lost.append(LostLabel(last.score.query_id, label, stage.name, how))
    return lost


def fate_of(label: str, before: QueryScore, after: QueryScore) -> str | None:
    """What became of the chunk that satisfied the label."""
    rank = before.ranks[label]
    if rank is None or rank > len(before.retrieved):
        return None
    text = collapse_whitespace(before.retrieved[rank - 1])
    chunk_id = before.retrieved_ids[rank - 1] if before.retrieved_ids else None
    if not text:
        return None
    ids = after.retrieved_ids or (None,) * len(after.retrieved)
    for other, other_id in zip(after.retrieved, ids, strict=True):
        kept = collapse_whitespace(other)
        named = "" if other_id is None else f" {other_id!r:.80}"
        if kept == text and other_id != chunk_id:
            return f"dropped as duplicate of{named}"
        if text in kept and other not in before.retrieved:
            if other_id is not None and other_id == chunk_id:
                return "its text was replaced by a longer one"
            return f"merged into parent{named}"
    return None


def story(last: Stage) -> str:
    """Like `retriever@10 1.000 → rerank@3 0.500: 'b' lost at rerank`.

    The number behind @ is the length of a stage's list, the share is that of the labels in it.
    """
    steps = []
    for stage in last.flat():
        size = len(stage.score.labels)
        found = sum(rank is not None for rank in stage.score.label_ranks)
        value = share(found / size) if size else "no labels"
        steps.append(f"{stage.name}@{stage.score.retrieved_count} {value}")
    losses = [
        f"{quoted(one.label, limit=_SHOWN_CHARACTERS)} lost at {one.stage}"
        + (f" ({one.how})" if one.how else "")
        for one in lost_labels(last)
    ]
    return " → ".join(steps) + (f": {', '.join(losses)}" if losses else "")


def numbered(names: Sequence[str]) -> list[str]:
    """The names, with `#2`, `#3` behind one that repeats."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return result
