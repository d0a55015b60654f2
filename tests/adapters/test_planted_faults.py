"""Faults planted in real indexes of both frameworks: what is said of them, and how surely."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted import FAULTS, FRAMEWORKS, PLANTED, Fault, measured, told

from chunkrecall import Diagnosis, Report, diagnose
from chunkrecall.diagnosis import CAUSES

README = Path(__file__).parents[2] / "README.md"
ALL = [(fault, framework) for fault in FAULTS for framework in FRAMEWORKS]
pytestmark = pytest.mark.slow
every_fault = pytest.mark.parametrize(("name", "framework"), ALL)
PLANTED_IDS = {f"q{number}" for number in PLANTED}


@cache
def planted(name: str, framework: str) -> tuple[Fault, Report, dict[str, Any]]:
    fault = FAULTS[name]()
    return (fault, *measured(fault, framework))


@cache
def diagnosed(name: str, framework: str) -> tuple[Diagnosis, Diagnosis]:
    """With the evidence that the cause needs, and with the report alone."""
    fault, report, evidence = planted(name, framework)
    return diagnose(report, **told(fault, evidence)), diagnose(report)


def test_every_cause_is_planted_or_is_the_lack_of_one() -> None:
    assert set(FAULTS) == set(CAUSES) - {"unknown"}


@every_fault
def test_exactly_the_planted_queries_are_missed(name: str, framework: str) -> None:
    _, report, _ = planted(name, framework)
    assert {row.query_id for row in report.queries if row.missing} == PLANTED_IDS


@every_fault
def test_with_its_evidence_each_fault_is_named(name: str, framework: str) -> None:
    fault, _, _ = planted(name, framework)
    found, _ = diagnosed(name, framework)
    assert found.counts == {name: len(PLANTED)}
    certainty = "fact" if fault.is_fact else "hypothesis"
    assert {miss.certainty for miss in found.misses} == {certainty}
    assert all(miss.evidence and miss.remedy for miss in found.misses)


@every_fault
def test_without_it_nothing_false_is_called_a_fact_and_unknown_says_what_to_pass(
    name: str, framework: str
) -> None:
    fault, _, _ = planted(name, framework)
    _, found = diagnosed(name, framework)
    for miss in found.misses:
        if miss.certainty == "fact":
            assert (miss.cause, fault.tells) == (name, ())
        if miss.cause == "unknown":
            words = {"tokens": "token_counter"}
            assert all(f"{words.get(one, one)}=" in miss.remedy for one in fault.tells)
    if fault.tells:
        assert set(found.counts) == {fault.without}


@every_fault
def test_with_all_evidence_at_once_every_fact_is_true(name: str, framework: str) -> None:
    """Where several causes hold, as where a miss is both too far down and found by another."""
    _, report, evidence = planted(name, framework)
    found = diagnose(report, **evidence)
    also_true = {
        "dropped_as_duplicate": {"dropped_as_duplicate"},
        "nothing_returned": {"below_threshold", "nothing_returned"},
        "found_by_other": {"below_cutoff"},
        "wrong_chunk": {"below_cutoff"},
        "truncated": {"below_cutoff", "found_by_other"},
        "label_doubtful": {"below_cutoff"},
        "model_mismatch": {"model_mismatch"},
    }
    for miss in found.misses:
        if miss.certainty == "fact":
            assert miss.cause in {name, *also_true.get(name, ())}, miss
        named = {miss.cause, *miss.secondary}
        assert named & {name, *also_true.get(name, ())}, miss


@pytest.mark.parametrize("name", FAULTS)
def test_a_diagnosis_changes_no_score_and_comes_out_the_same_again(name: str) -> None:
    framework = "LangChain"
    fault, report, evidence = planted(name, framework)
    before = report.to_json()
    again = diagnose(report, **told(fault, evidence))
    assert report.to_json() == before
    assert again.to_json() == diagnosed(name, framework)[0].to_json()


def matrix() -> list[str]:
    """What is said of each planted cause, hypotheses with a question mark."""
    rows = ["| planted | with its evidence | with the report alone |", "|---|---|---|"]
    for name in CAUSES:
        if name not in FAULTS:
            continue
        cells = []
        for which in (0, 1):
            said: Counter[str] = Counter()
            for framework in FRAMEWORKS:
                for miss in diagnosed(name, framework)[which].misses:
                    sure = miss.certainty == "fact" or miss.cause == "unknown"
                    said[f"`{miss.cause}`" + ("" if sure else "?")] += 1
            cells.append(", ".join(f"{cause} {times}" for cause, times in said.most_common()))
        rows.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    return rows


def test_the_confusion_matrix_is_the_one_in_the_readme() -> None:
    shown = "\n".join(matrix())
    print(shown)
    assert shown in README.read_text(encoding="utf-8")
