"""What the reader of a recorder's report should know."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from chunkrecall.retrieval import describe_error

_MOST_NAMED = 5


@dataclass(slots=True)
class Seen:
    """What a recorder counts besides the scores."""

    queries: int
    """How many labelled queries there are."""
    retrievals: int = 0
    """Outermost ones."""
    unlabelled: int = 0
    never_ended: int = 0
    elsewhere: int = 0
    """Retrievals outside the recorder's context, in a bare thread most likely."""
    generated: int = 0
    """Chunks that a query engine inside a retriever wrote."""
    faults: int = 0
    ambiguous: set[str] = field(default_factory=set)
    unknown: dict[str, None] = field(default_factory=dict)

    def name_unknown(self, query_id: object) -> None:
        """A handler was told an id that no labelled query has."""
        if len(self.unknown) < _MOST_NAMED:
            self.unknown[f"{query_id!r:.80}"] = None


def notes_on(
    seen: Seen, retrieved: Collection[str], faults: Sequence[Exception]
) -> tuple[str, ...]:
    """The notes, the most important first.

    Args:
        seen: What was counted.
        retrieved: The ids of the labelled queries that were retrieved.
        faults: The first exceptions of the recorder itself.
    """
    notes = []
    if not seen.retrievals and seen.queries:
        notes.append(
            f"no retriever events were seen for any of {seen.queries} labelled queries. Usual "
            "causes: the retriever is a plain function; a call inside a node or function did not "
            "pass its config on (Python before 3.11); the work ran in a thread pool that copies no "
            "context; the handler was attached after the retriever was built"
        )
    elif len(retrieved) < seen.queries:
        notes.append(
            f"no retriever events were seen for {seen.queries - len(retrieved)} of {seen.queries} "
            "labelled queries"
        )
    if seen.elsewhere:
        notes.append(
            f"{seen.elsewhere} retrievals ran outside the block or in threads that copy no context "
            "and are left out; unless they belong to others, start them with "
            'contextvars.copy_context().run or inside `with recorder.query("…"):`'
        )
    if seen.ambiguous:
        named = ", ".join(map(repr, sorted(seen.ambiguous)[:_MOST_NAMED]))
        notes.append(
            f"ambiguous: several queries have the text that was retrieved for ({named}); say "
            'which one with `with recorder.query("…"):`'
        )
    if seen.unknown:
        notes.append(
            f"no labelled query has the id that was named ({', '.join(seen.unknown)}): give "
            "chunkrecall_query_id a query_id of the dataset, a string"
        )
    if seen.generated:
        notes.append(
            f"{seen.generated} retrieved chunks are generated text, not chunks: a query engine "
            "inside the retriever wrote them; each holds its rank"
        )
    if seen.never_ended:
        notes.append(f"{seen.never_ended} retrievals started and never ended (cancelled)")
    if seen.faults:
        notes.append(
            f"the recorder itself or its on_score failed {seen.faults} times; the first "
            f"time: {describe_error(faults[0])}"
        )
    return tuple(notes)
