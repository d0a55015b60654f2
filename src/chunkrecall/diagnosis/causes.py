"""The causes of a miss, in the one order in which they are considered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Certainty: TypeAlias = Literal["fact", "hypothesis"]

CAUSES: Mapping[str, str] = {
    # The label can never be matched as it stands, whatever the rank.
    "text_differs": "a chunk has the label's text in another form",
    "id_differs": "the label's id is an id of another kind, or written otherwise",
    # It was there, and the pipeline gave it up.
    "dropped_as_duplicate": "another chunk with the same text was kept instead",
    "lost_at_stage": "one stage of the pipeline had it and the next had not",
    # What the index holds is not what was labelled.
    "stale": "another version of the same passage is in the index",
    "merged": "the label stands inside one larger chunk",
    "neighbour_window": "overlapping chunks next to it were returned",
    "split": "the label is spread over several chunks",
    "not_indexed": "no chunk of the corpus is the label",
    # It is in the index, and the search does not let it through.
    "filtered": "a metadata filter excludes it",
    "below_threshold": "a score threshold excludes it",
    "approximate_search": "a deeper search ranks it where the first one should have",
    "model_mismatch": "not even its own text finds it",
    "nothing_returned": "the retriever returned an empty list",
    # It is found, too far down.
    "crowded_out": "repeats of other chunks took the places above it",
    "below_cutoff": "it stands below the cutoff",
    # What is left to say.
    "found_by_other": "another retriever found it",
    "wrong_chunk": "the right document was returned, and another chunk of it",
    "truncated": "it is longer than the embedding model reads",
    "label_doubtful": "a returned chunk says the same",
    "unknown": "nothing that was passed tells",
}
"""Every cause with its meaning. The first one that applies is a miss's cause, the rest secondary.
"""

RANK_CAUSES = frozenset({"crowded_out", "below_cutoff"})


@dataclass(frozen=True, slots=True)
class Finding:
    """That one cause applies to one miss, and how that is known."""

    cause: str
    certainty: Certainty
    evidence: str
    """One sentence; texts in it are quoted and cut."""
    remedy: str
    """What to do, in the terms of the framework in use."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The evidence as plain JSON values, such as {"rank": 12}."""


def in_order(findings: list[Finding]) -> list[Finding]:
    """The findings by the order of the causes; of each cause the first one alone."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.cause, finding)
    return [first[cause] for cause in CAUSES if cause in first]
