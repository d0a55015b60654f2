"""`recall_at_ks` against the set formula once per cutoff, and against pytrec_eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.lists import lists_of
from tests.benchmarks.measure import Candidate, Figure, Settings, faster_than, in_turns

from chunkrecall import recall_at_ks

if TYPE_CHECKING:
    from collections.abc import Iterator

KS = (1, 5, 10, 100)
FORMULA = "set formula"
PYTREC = "pytrec_eval"
Rows = tuple[list[list[str]], list[list[str]]]
Recalls = dict[int, list[float]]

_OF_FORMULA = {20: 1.35, 500: 1.05}
_OF_PYTREC = {20: 4.0, 500: None}


def figures(settings: Settings) -> Iterator[Figure]:
    """Short and long texts, against both peers."""
    for characters in (20, 500):
        lists = lists_of(settings.queries, characters)
        candidates = {
            "chunkrecall": Candidate(lists.fresh, by_chunkrecall, rounded),
            FORMULA: Candidate(lists.fresh, by_formula, rounded),
        }
        if _has_pytrec():
            candidates[PYTREC] = Candidate(lists.fresh, by_pytrec, rounded)
        timings = in_turns(candidates, rounds=settings.rounds)
        for peer in list(candidates)[1:]:
            yield faster_than(
                timings,
                f"recall_at_ks, {characters} characters",
                ours="chunkrecall",
                peer=peer,
                per=settings.queries,
                at_least=(_OF_FORMULA if peer == FORMULA else _OF_PYTREC)[characters],
            )


def by_chunkrecall(rows: Rows) -> Recalls:
    """One call for all queries and cutoffs."""
    return recall_at_ks(*rows, KS)  # type: ignore[return-value]


def by_formula(rows: Rows) -> Recalls:
    """What people write when they need no library."""
    pairs = list(zip(*rows, strict=True))
    return {k: [len(set(rel) & set(ret[:k])) / len(set(rel)) for ret, rel in pairs] for k in KS}


def by_pytrec(rows: Rows) -> Recalls:
    """pytrec_eval with its dicts made of the same lists, which is part of its price."""
    import pytrec_eval

    qrels, run = {}, {}
    for number, (retrieved, relevant) in enumerate(zip(*rows, strict=True)):
        qrels[str(number)] = dict.fromkeys(relevant, 1)
        run[str(number)] = {text: -float(rank) for rank, text in enumerate(retrieved)}
    measures = {"recall." + ",".join(map(str, KS))}
    scores = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    return {k: [scores[query][f"recall_{k}"] for query in qrels] for k in KS}


def rounded(recalls: Recalls) -> Recalls:
    """To the digits on which all must agree."""
    return {k: [round(value, 9) for value in values] for k, values in recalls.items()}


def _has_pytrec() -> bool:
    try:
        import pytrec_eval  # noqa: F401 - comes with ir_measures, a dev dependency
    except ImportError:
        return False
    return True
