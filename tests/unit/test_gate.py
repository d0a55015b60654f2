"""Thresholds that a report must reach, in the library and on the command line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from chunkrecall import (
    ChunkRecallError,
    Dataset,
    Query,
    Report,
    assert_recall,
    evaluate_retriever,
    save_dataset,
)
from chunkrecall.cli import main
from chunkrecall.errors import GateError
from chunkrecall.gate import check_gate, exact, threshold


def report_of(found: int, total: int = 10, *, failing: int = 0, k: int = 1) -> Report:
    """That many of so many queries with one label each are found; the last ones fail."""
    labels = Dataset(
        [
            Query(query_id=f"q{i}", text=f"q{i}", relevant=["right"], tags=["even"] * (i % 2 == 0))
            for i in range(total)
        ],
        name="set",
    )

    def search(text: str) -> list[str]:
        number = int(text[1:])
        if number >= total - failing:
            raise PermissionError("no key")
        return ["right" if number < found else "wrong"]

    return evaluate_retriever(search, labels, k=(k, 5), progress=False, name="r")


def test_a_mean_of_exactly_the_threshold_passes() -> None:
    for found, total in ((8, 10), (4, 5), (24, 30)):
        assert_recall(report_of(found, total), at=1, min=0.8)
    uneven = evaluate_retriever(
        lambda text: {"a": ["1", "2", "3"], "b": ["1"]}[text],
        {"a": ["1", "2", "3", "4", "5"], "b": ["1"]},
        k=5,
        progress=False,
    )
    assert_recall(uneven, at=5, min=0.8)  # (3/5 + 1) / 2
    with pytest.raises(GateError):
        assert_recall(report_of(7), at=1, min=0.8)


def test_the_failure_is_an_assertion_and_lists_what_was_missed() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_recall(report_of(3, 5), at=1, min="90%")
    assert isinstance(caught.value, ChunkRecallError)
    text = str(caught.value)
    assert "MISSED: recall@1 at least 0.9; it is 0.600 over 5 queries" in text
    assert "'q3' recall@1 0.000, missed: 'right'" in text
    assert "reachable values beside it are 0.800 and 1.000" in text


def test_the_failure_lists_what_was_missed_at_its_own_cutoff() -> None:
    labels = {"deep": ["a", "b"], "good": ["x"], "broken": ["a"], "none": ["y", "z", "z1", "z2"]}
    lists = {"deep": ["x", "b", "a"], "good": ["x"], "none": ["x"]}
    report = evaluate_retriever(lists.__getitem__, labels, k=(2, 5), progress=False)
    with pytest.raises(GateError) as caught:
        assert_recall(report, at=2, min=0.9, min_coverage=0)
    assert str(caught.value).splitlines()[1:] == [
        "  'broken' errored: 'KeyError: \\'broken\\''",
        "  'none' recall@2 0.000, missed: 'y', 'z', 'z1' and 1 more",
        "  'deep' recall@2 0.500, missed: 'a' (at rank 3)",
    ]


def test_the_failure_says_in_how_many_repeats_a_chunk_was_missed() -> None:
    turns = iter([["a"], ["b"], ["a"], ["b"]])
    report = evaluate_retriever(
        lambda text: next(turns), {"q": ["a"]}, k=1, repeats=4, progress=False
    )
    with pytest.raises(GateError, match=r"'q' recall@1 0\.500, missed: 'a' \(in 2 of 4 repeats\)"):
        assert_recall(report, at=1, min=0.6)


def test_F124_a_gate_is_not_green_for_want_of_measurements() -> None:
    nothing = report_of(0, failing=10)
    result = check_gate(nothing, [threshold("0@1")])
    assert (result.passed, result.is_measured) == (False, False)
    with pytest.raises(GateError, match="nothing was measured"):
        assert_recall(nothing, at=1, min=0)
    partly = report_of(10, failing=2)
    with pytest.raises(GateError, match="too little was measured: 8 of 10"):
        assert_recall(partly, at=1, min=0.5)
    assert_recall(partly, at=1, min=0.5, min_coverage=0.8)
    empty = evaluate_retriever(lambda text: [text], {}, k=1, progress=False)
    with pytest.raises(GateError, match="nothing was measured"):
        assert_recall(empty, at=1, min=0)


def test_F132_what_was_not_measured_is_neither_a_miss_nor_left_out_in_silence() -> None:
    report = report_of(90, 1_000, failing=900)
    assert report.mean(1) == 0.9
    result = check_gate(report, [threshold("0.5@1")])
    assert not result.is_measured
    assert (result.measured, result.expected) == (100, 1_000)


def test_tags_hits_baselines_and_exclusions() -> None:
    report = report_of(6)
    assert_recall(report, at=1, min=0.6, tag="even")
    wanted = [threshold("0.6@1:even"), threshold("0.6@5", "hit"), threshold("0.7@1")]
    result = check_gate(report, wanted)
    assert [check.passed for check in result.checks] == [True, True, False]
    better = check_gate(report, [threshold("0.7@1")], exclude_ids=["q8", "q9"])
    assert better.passed
    assert "'q8' recall@1 0.000, 'q9' recall@1 0.000" in better.lines()[-1]
    assert not check_gate(report, [], baseline=report_of(7)).passed
    assert check_gate(report, [], baseline=report_of(7), max_drop=0.1).passed
    assert check_gate(report, [], baseline=report_of(5)).passed
    with pytest.raises(ValueError, match="another dataset"):
        check_gate(report, [], baseline=report_of(5, total=9))
    with pytest.raises(ValueError, match="to exclude"):
        check_gate(report, [], exclude_ids=["nobody"])
    with pytest.raises(TypeError, match="a list of query ids, got 'q8'"):
        check_gate(report, [], exclude_ids="q8")
    with pytest.raises(ValueError, match="no query has the tag"):
        assert_recall(report, at=1, min=0, tag="odd")
    with pytest.raises(ValueError, match="no recall@3"):
        assert_recall(report, at=3, min=0)


def test_a_tag_of_which_too_little_was_measured_is_not_green() -> None:
    # Of 20 queries the last 2 fail: 18/20 = 0.9 of all, and 1/3 of the ones with the tag.
    labels = Dataset(
        [
            Query(query_id=f"q{i}", text=f"q{i}", relevant=["a"], tags=["late"] * (i >= 17))
            for i in range(20)
        ]
    )

    def search(text: str) -> list[str]:
        if text in ("q18", "q19"):
            raise PermissionError("no key")
        return ["a"]

    report = evaluate_retriever(search, labels, k=1, progress=False)
    assert_recall(report, at=1, min=1, min_coverage=0.9)
    with pytest.raises(GateError, match="1 of 3 queries with the tag 'late', and at least 0.9"):
        assert_recall(report, at=1, min=1, tag="late", min_coverage="90%")
    assert_recall(report, at=1, min=1, tag="late", min_coverage=0.3)
    result = check_gate(report, [threshold("1@1:late"), threshold("1@1")], min_coverage=0.9)
    assert (result.is_measured, result.passed) == (False, False)
    assert "queries with the tag" in result.to_markdown()
    with pytest.raises(ValueError, match="min_coverage must be within 0 and 1"):
        assert_recall(report, at=1, min=1, min_coverage=90)


@pytest.mark.parametrize(
    "text", ["", "0.8", "0.8@", "@5", "0.8@x", "0.8@0", "1.5@5", "-1@5", "nan@5"]
)
def test_what_is_no_threshold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"threshold|min|k must"):
        threshold(text)


def test_a_threshold_is_exactly_what_was_written() -> None:
    assert threshold("0.1@all").min == Fraction(1, 10)
    assert threshold("80%@5").min == Fraction(4, 5)
    assert threshold("0.5@5:a: b").tag == "a: b"
    assert exact(0.3, "x") == Fraction(3, 10)
    with pytest.raises(ValueError, match="x must be"):
        exact(True, "x")


def test_the_markdown_summary_escapes_tags() -> None:
    labels = Dataset([Query(query_id="q", text="q", relevant=["a"], tags=["<b>|x"])])
    report = evaluate_retriever(lambda text: ["a"], labels, k=1, progress=False)
    text = check_gate(report, [threshold("1@1:<b>|x")]).to_markdown()
    assert "<b>" not in text
    assert text.startswith("### Recall gate: met")


SEARCH = """
def search(text):
    number = int(text[1:])
    if number >= 8:
        raise PermissionError("no key")
    return ["right"] if number < 6 else ["wrong"]
def whole(text):
    return ["right"] if int(text[1:]) < 6 else ["wrong"]
def never(text):
    raise PermissionError("no key")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "gate_search.py").write_text(SEARCH)
    queries = [Query(query_id=f"q{i}", text=f"q{i}", relevant=["right"]) for i in range(10)]
    save_dataset(Dataset(queries), "labels.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    ("function", "options", "code"),
    [
        ("whole", ("--min-recall", "0.6@1"), 0),
        ("whole", ("--min-recall", "0.7@1"), 1),
        ("whole", ("--min-recall", "0.7@1", "--gate-exit-code", "42"), 42),
        ("whole", ("--min-recall", "0.6@1", "--min-hits", "0.7@1"), 1),
        ("whole", ("--min-recall", "0.75@1", "--exclude-ids", "q8,q9"), 0),
        ("search", ("--min-recall", "0.6@1"), 4),
        ("search", ("--min-recall", "0.6@1", "--min-coverage", "0.8"), 0),
        ("search", (), 0),
        ("search", ("--min-coverage", "1"), 4),
        ("never", ("--min-recall", "0@1"), 4),
        ("never", ("--min-recall", "0@1", "--gate-exit-code", "0"), 4),
        ("whole", ("--min-recall", "0.7@3"), 2),
        ("whole", ("--min-recall", "good"), 2),
        ("whole", ("--gate-exit-code", "256"), 2),
        ("whole", ("--baseline", "none.json"), 2),
        ("nothing", ("--min-recall", "0.6@1"), 3),
    ],
)
def test_F123_every_outcome_has_its_exit_code(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    function: str,
    options: tuple[str, ...],
    code: int,
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", f"gate_search:{function}", "--dataset", "labels.jsonl", "--k", "1", *options])
    assert caught.value.code == code
    assert "gate" not in capsys.readouterr().out.replace("gate_search", "")


def test_a_baseline_and_a_summary_from_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "gate_search:whole", "--dataset", "labels.jsonl", "--k", "1"]
    for options, code in (
        (["--report", "base.json"], 0),
        (["--baseline", "base.json", "--gate-summary", "summary.md"], 0),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*command, *options])
        assert caught.value.code == code
    assert "### Recall gate: met" in (folder / "summary.md").read_text()
    assert "gate met: recall@1 at least 0.6" in capsys.readouterr().err
