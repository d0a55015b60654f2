"""`evaluate("recall_at_k", …)` with every reason read, against json.loads and the set formula."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.benchmarks.lists import Lists, lists_of
from tests.benchmarks.measure import Candidate, Figure, Settings, faster_than, in_turns

from chunkrecall import EvalResult, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

PEER = "json + set formula"
_TARGETS = {20: 0.8, 500: 1.0}


def figures(settings: Settings) -> Iterator[Figure]:
    """Short and long texts at two cutoffs."""
    for characters in (20, 500):
        lists = lists_of(settings.queries, characters)
        for k in (10, 100):
            candidates = {
                "chunkrecall": Candidate(
                    lambda lists=lists, k=k: (lists, k), by_chunkrecall, scores
                ),
                PEER: Candidate(lambda lists=lists, k=k: (lists, k), by_formula),
            }
            yield faster_than(
                in_turns(candidates, rounds=settings.rounds),
                f"evaluate() with reasons, k={k}, {characters} characters",
                ours="chunkrecall",
                peer=PEER,
                per=settings.queries,
                at_least=_TARGETS[characters],
            )


def by_chunkrecall(inputs: tuple[Lists, int]) -> tuple[list[EvalResult], list[str]]:
    """The batch and the sentence of each row."""
    lists, k = inputs
    rows = evaluate(
        "recall_at_k",
        hypothesis=lists.retrieved,
        reference=lists.relevant,
        eval_config={"k": k},
    )
    return rows, [row.reason for row in rows]


def by_formula(inputs: tuple[Lists, int]) -> list[float]:
    """What people write when they need no library."""
    lists, k = inputs
    values = []
    for retrieved, relevant in zip(lists.retrieved, lists.relevant, strict=True):
        wanted = set(json.loads(relevant))
        values.append(len(wanted & set(json.loads(retrieved)[:k])) / len(wanted))
    return values


def scores(outcome: tuple[list[EvalResult], list[str]]) -> list[float | None]:
    """The numbers alone."""
    return [row.score for row in outcome[0]]
