"""Further questions to the retriever about the queries that missed something.

They are calls of their own on copies of the retriever; the report that is diagnosed is never
changed, and neither is the retriever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chunkrecall.adapters import adapt
from chunkrecall.metric import depth_of
from chunkrecall.records import Chunks, Dataset, Query
from chunkrecall.report import QueryScore
from chunkrecall.retrieval import retrieve
from chunkrecall.scoring import score

if TYPE_CHECKING:
    from collections.abc import Callable

    from chunkrecall.diagnosis.case import Case, Wanted
    from chunkrecall.diagnosis.rules import Rules

_TIMES_DEEPER = 5
_SHALLOWEST_PROBE = 100
_SELF = "self"
_CONTROL = "control"
_CONTROL_QUESTION = "What is the colour of the third bus?"


@dataclass(frozen=True)
class Probes:
    """What the further questions gave; empty where none could be asked."""

    rows: Mapping[str, Mapping[str, QueryScore]] = field(default_factory=dict)
    """By probe ("deeper", "repeat", "filter", "threshold") the scores by query."""
    chunks: Mapping[str, Mapping[str, Chunks]] = field(default_factory=dict)
    own_ranks: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    """The rank of a label's chunk when its own text is the question, by query and label."""
    limits: Mapping[str, str] = field(default_factory=dict)
    depth: int | None = None
    refusal: str | None = None
    """Why nothing deeper could be asked."""

    def rank(self, probe: str, case: Case) -> int | None:
        """The rank that a probe gave the label; None if it did not find it or was not made."""
        row = self.rows.get(probe, {}).get(case.lists.query.query_id)
        return None if row is None else row.ranks.get(case.wanted.name)

    def has(self, probe: str, case: Case) -> bool:
        """Whether the probe was made and answered for the label's query."""
        row = self.rows.get(probe, {}).get(case.lists.query.query_id)
        return row is not None and row.status == "scored"


def probe(
    retriever: object,
    missed: Mapping[str, Sequence[Wanted]],
    rules: Rules,
    *,
    depth: int | None,
    texts_of: Callable[[Wanted], Sequence[str]],
) -> Probes:
    """Ask deeper, again, without filter and threshold, and with the labels' own texts.

    Args:
        retriever: Whatever `evaluate_retriever` takes; None asks nothing.
        missed: The labels that each query missed.
        rules: How the report was scored.
        depth: How deep to search; None for five times the cutoff, and 100 at least.
        texts_of: A label's texts.
    """
    if retriever is None or not missed:
        return Probes()
    adapter: Any = adapt(retriever)
    if depth is None:
        k = depth_of(rules.k)
        depth = max(_SHALLOWEST_PROBE, _TIMES_DEEPER * (0 if k == float("inf") else int(k)))
    prober = getattr(adapter, "probe", None)
    made = None if prober is None else prober(depth)
    if prober is None or made is None:
        refusal = f"{adapter.name} has no depth that could be set from outside"
        return Probes(refusal=refusal)
    dataset = rules.dataset.__class__([rules.dataset[query_id] for query_id in missed])
    limits = dict(adapter.limits)
    asked = {"deeper": made}
    for limit in limits:
        lifted = prober(depth, without=(limit,))
        if lifted is not None:
            asked[limit] = lifted
    rows: dict[str, dict[str, QueryScore]] = {}
    chunks: dict[str, dict[str, Chunks]] = {}
    for name, one in asked.items():
        rows[name], chunks[name] = _asked(one, dataset, rules, depth)
    # Asked again as it is, so that a change with the depth can be told from mere chance.
    shallow = adapter.at_depth(rules.depth)
    rows["repeat"], chunks["repeat"] = _asked(shallow, dataset, rules, None)
    own = _own_ranks(made, missed, rules, depth, texts_of)
    return Probes(rows, chunks, own, limits, depth)


def _asked(
    adapter: object, dataset: Dataset, rules: Rules, depth: int | None
) -> tuple[dict[str, QueryScore], dict[str, Chunks]]:
    run = retrieve(adapter, dataset, depth=depth or rules.depth, progress=False, retries=0)
    report = score(run, dataset, k=None, **rules.scoring)
    lists = {one.query_id: one.chunks for one in run.rankings if one.error is None}
    return {row.query_id: row for row in report.queries}, lists


def _own_ranks(
    adapter: object,
    missed: Mapping[str, Sequence[Wanted]],
    rules: Rules,
    depth: int,
    texts_of: Callable[[Wanted], Sequence[str]],
) -> dict[tuple[str, str], int | None]:
    """The rank of each missed label's chunk when the question is the label's own text."""
    wanted: dict[str, tuple[str, Wanted, str]] = {}
    control = Query(query_id=_CONTROL, text=_CONTROL_QUESTION)
    for query_id, labels in missed.items():
        for label in labels:
            for text in texts_of(label)[:1]:
                wanted[f"{_SELF}{len(wanted)}"] = (query_id, label, text)
    if not wanted:
        return {}
    queries = [
        Query(query_id=key, text=text, relevant=rules.labels_of(query_id, label.name))
        for key, (query_id, label, text) in wanted.items()
    ]
    asked = Dataset([*queries, control])
    run = retrieve(adapter, asked, depth=depth, progress=False, retries=0)
    lists = {one.query_id: one.texts for one in run.rankings if one.error is None}
    report = score(run, asked, k=None, **rules.scoring)
    return {
        (wanted[row.query_id][0], wanted[row.query_id][1].name): row.label_ranks[0]
        for row in report.queries
        # A list that comes whatever is asked says nothing.
        if row.status == "scored" and lists[row.query_id] not in ((), lists.get(_CONTROL))
    }
