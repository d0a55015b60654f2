"""What a diagnosis gives: misses with causes, a headline, and what each remedy would bring."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chunkrecall.diagnosis.causes import CAUSES, Certainty, Finding
from chunkrecall.diagnosis.judgement import Candidate, Judged
from chunkrecall.diagnosis.view import diagnosis_document
from chunkrecall.metric import Cutoff
from chunkrecall.render import to_html, to_markdown, to_terminal

_FORMAT = "chunkrecall-diagnosis"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One label that was not within the cutoff, and why."""

    query_id: str
    label: str
    cause: str
    """The first of `CAUSES` that applies."""
    secondary: tuple[str, ...]
    """The other causes that apply, in their order."""
    evidence: str
    """How the cause is known, or what to pass where it is not."""
    remedy: str
    certainty: Certainty
    """"fact": it was seen in what was passed; "hypothesis": it would explain the miss."""
    findings: tuple[Finding, ...] = ()
    """The cause and the secondary ones, each with its own evidence, remedy and details."""
    query_text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "query_id": self.query_id,
            "query_text": self.query_text,
            "label": self.label,
            "cause": self.cause,
            "certainty": self.certainty,
            "secondary": list(self.secondary),
            "evidence": self.evidence,
            "remedy": self.remedy,
            "findings": [
                {
                    "cause": one.cause,
                    "certainty": one.certainty,
                    "evidence": one.evidence,
                    "remedy": one.remedy,
                    "details": _plain(one.details),
                }
                for one in self.findings
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What one change would bring on these very queries."""

    action: str
    """In the terms of the framework, such as `search_kwargs={"k": 20}`."""
    k: Cutoff
    """The cutoff at which `recall` is measured: larger than before where more is asked for."""
    recall: float
    before: float
    """The recall of the report at its own cutoff."""
    recovers: int
    """How many of the misses it makes hits."""
    kind: str
    """"matching", "depth", "repeats", "limits" or "hybrid"."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "action": self.action,
            "kind": self.kind,
            "k": self.k,
            "recall": self.recall,
            "before": self.before,
            "recovers": self.recovers,
        }


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why labels were missed. `print(diagnosis)` is a table; a notebook shows it formatted."""

    name: str
    k: Cutoff
    """The cutoff at which the misses are misses."""
    recall: float | None
    """The report's recall there, which nothing in a diagnosis changes."""
    headline: str
    """The systematic cause, if there is one, else the most frequent."""
    misses: tuple[Miss, ...]
    """In dataset order."""
    remedies: tuple[Remedy, ...] = ()
    """What each change would bring, where it can be computed: matching first, hybrids last."""
    candidates: tuple[Candidate, ...] = ()
    """Returned chunks that may be labels that nobody has given yet."""
    judged: tuple[Judged, ...] = ()
    """The unjudged share of the report and of each of the others."""
    notes: tuple[str, ...] = ()
    queries: int = 0
    labels: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of misses by cause, in the order of the causes."""
        found = Counter(miss.cause for miss in self.misses)
        return {cause: found[cause] for cause in CAUSES if found[cause]}

    @property
    def unwinnable(self) -> tuple[str, ...]:
        """The queries that no retriever over this corpus can answer in full."""
        ids = [miss.query_id for miss in self.misses if miss.cause == "not_indexed"]
        return tuple(dict.fromkeys(ids))

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The queries with a label that somebody should look at."""
        ids = [
            miss.query_id
            for miss in self.misses
            if "label_doubtful" in (miss.cause, *miss.secondary)
        ]
        return tuple(dict.fromkeys(ids))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "k": self.k,
            "recall": self.recall,
            "headline": self.headline,
            "queries": self.queries,
            "labels": self.labels,
            "counts": self.counts,
            "unwinnable": list(self.unwinnable),
            "doubtful": list(self.doubtful),
            "remedies": [one.to_dict() for one in self.remedies],
            "misses": [one.to_dict() for one in self.misses],
            "candidates": [one.to_dict() for one in self.candidates],
            "judged": [one.to_dict() for one in self.judged],
            "notes": list(self.notes),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON: null where there is no value, never NaN."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_markdown(self) -> str:
        """The tables as GitHub Markdown, every text escaped."""
        return to_markdown(diagnosis_document(self))

    def to_terminal(self, *, width: int | None = None, color: bool = False) -> str:
        """The tables for a terminal of this width (its own, or 100, by default)."""
        return to_terminal(diagnosis_document(self), width=width, color=color)

    def __str__(self) -> str:
        return self.to_terminal()

    def __repr__(self) -> str:
        return f"Diagnosis({self.name!r}, {len(self.misses)} misses, {self.headline!r})"

    def _repr_html_(self) -> str:
        return to_html(diagnosis_document(self))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value != value:
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
