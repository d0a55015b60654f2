"""JSON Lines datasets, runs and reports: nothing is lost, and every bad line is named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkrecall import (
    Chunk,
    Dataset,
    DatasetError,
    Label,
    Query,
    Ranking,
    Report,
    Run,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
    score,
)

texts = st.text(st.characters(codec=None), min_size=1).filter(lambda t: bool(t.strip()))
labels = st.builds(Label, text=texts, chunk_id=st.none() | texts, grade=st.integers(-1, 3))
queries = st.lists(
    st.tuples(texts, st.none() | st.lists(labels, max_size=3, unique_by=lambda x: x.identity)),
    max_size=4,
    unique_by=lambda row: row[0],
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(queries)
def test_a_dataset_survives_its_file(tmp_path: Path, rows: Any) -> None:
    dataset = Dataset([Query(query_id=t, text=t, relevant=r, tags=[t]) for t, r in rows], name="n")
    save_dataset(dataset, tmp_path / "d.jsonl")
    again = load_dataset(tmp_path / "d.jsonl")
    assert again.fingerprint == dataset.fingerprint
    assert list(again) == list(dataset)
    assert again.name == "n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(codec=None)), max_size=5))
def test_a_run_survives_its_file(tmp_path: Path, chunk_texts: list[str]) -> None:
    chunks = [
        Chunk(text=text, chunk_id=text or None, score=0.5, metadata={"t": text, "n": [1, None]})
        for text in chunk_texts
    ]
    run = Run(
        name="r",
        rankings=[
            Ranking(query_id="q", chunks=chunks, latency_s=0.25),
            Ranking(query_id="e", error="ValueError: x", query_text="e?"),
        ],
        settings={"depth": 3},
        notes=("note",),
    )
    save_run(run, tmp_path / "r.jsonl")
    again = load_run(tmp_path / "r.jsonl")
    assert again == run


def test_a_partial_run_is_not_taken_for_a_complete_one(tmp_path: Path) -> None:
    dataset = Dataset([Query(query_id=q, text=q, relevant=["a"]) for q in ("one", "two")])
    for complete, status in ((True, "scored"), (False, "not_run")):
        run = Run(rankings=[Ranking(query_id="one", chunks=[Chunk(text="a")])], complete=complete)
        save_run(run, tmp_path / "run.jsonl")
        report = score(load_run(tmp_path / "run.jsonl"), dataset, k=1)
        assert [query.status for query in report.queries] == ["scored", status]
        assert report.absent == (1 if complete else 0)
        assert report.mean(1) == (0.5 if complete else 1.0)


def test_metadata_that_json_cannot_hold_is_written_as_text(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    metadata = {"when": moment, "nan": float("nan"), 3: {1}, "path": Path("x")}
    run = Run(rankings=[Ranking(query_id="q", chunks=[Chunk(text="a", metadata=metadata)])])
    save_run(run, tmp_path / "run.jsonl")
    (chunk,) = load_run(tmp_path / "run.jsonl").rankings[0].chunks
    assert chunk.metadata == {"when": moment.isoformat(), "nan": None, "3": [1], "path": "x"}
    assert "NaN" not in (tmp_path / "run.jsonl").read_text()


BAD_LINES = [
    ("{", "no JSON"),
    ("[]", "must be a JSON object"),
    ('{"text": 1}', '"text" must be a string'),
    ("{}", '"text" (the query) is missing'),
    ('{"text": "t", "query": "u"}', "mean the same"),
    ('{"text": "t", "query_id": 7}', 'write "7"'),
    ('{"text": "t", "relevant": "a"}', '"relevant" must be a list'),
    ('{"text": "t", "relevant": [1]}', '"relevant"[0]'),
    ('{"text": "t", "relevant": [" "]}', "blank"),
    ('{"text": "t", "relevant": [{"txt": "a"}]}', "unknown keys ['txt']"),
    ('{"text": "t", "relevant": [{"text": "a", "grade": "1"}]}', "grade"),
    ('{"text": "t", "relevant": [{"text": "a"}, {"text": "a", "grade": 2}]}', "grades 1 and 2"),
    ('{"text": "t", "relevant_ids": "a"}', '"relevant_ids" must be a list'),
    ('{"text": "t", "tags": "a"}', '"tags" must be a list'),
    ('{"text": "t", "metadata": []}', '"metadata" must be an object'),
    ('{"text": "t", "answer": "a"}', "unknown keys ['answer']"),
    ('{"text": "t", "text": "u"}', "repeated keys ['text']"),
    ('{"text": "t", "metadata": {"x": NaN}}', "NaN is no JSON value"),
    ("[" * 100_000, "nested too deeply"),
    ('{"query_id": "fine", "text": "again"}', "taken by line 1"),
]


def test_every_bad_line_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = ['{"query_id": "fine", "text": "t"}', "", *[line for line, _ in BAD_LINES]]
    path.write_text("\n".join(lines))
    with pytest.raises(DatasetError) as caught:
        load_dataset(path)
    problems = caught.value.problems
    assert [problem.place for problem in problems] == [
        f"{path} line {number}" for number in range(3, 3 + len(BAD_LINES))
    ]
    for problem, (_, phrase) in zip(problems, BAD_LINES, strict=True):
        assert phrase in problem.message, problem


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ('{"query_id": "q"}', '"chunks" is missing'),
        ('{"query_id": "", "chunks": []}', "non-empty"),
        ('{"query_id": "q", "chunks": {}}', '"chunks" must be a list'),
        ('{"query_id": "q", "chunks": [1]}', '"chunks"[0]'),
        ('{"query_id": "q", "chunks": [{"score": 1}]}', '"text" must be a string'),
        ('{"query_id": "q", "chunks": [{"text": "a", "chunk_id": 1}]}', 'write "1"'),
        ('{"query_id": "q", "chunks": [{"text": "a", "score": "1"}]}', '"score"'),
        ('{"query_id": "q", "chunks": [{"text": "a", "rank": 1}]}', "unknown keys ['rank']"),
        ('{"query_id": "q", "chunks": [], "error": 1}', '"error"'),
        ('{"query_id": "q", "chunks": [], "latency_s": "1"}', '"latency_s"'),
        ('{"query_id": "q", "text": "t", "relevant": []}', "unknown keys"),
        ('{"chunkrecall_run": 2}', "reads chunkrecall_run 1"),
    ],
)
def test_a_bad_run_line_is_named(tmp_path: Path, line: str, phrase: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(line)
    with pytest.raises(DatasetError) as caught:
        load_run(path)
    assert phrase in str(caught.value)
    assert "line 1" in str(caught.value)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "t", "relevant": ["a"]}\r\n\r\n')
    assert load_dataset(path)["t"].relevant == (Label(text="a"),)


def test_bytes_that_are_no_utf_8_are_named_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b'{"text": "t"}\n{"text": "\xe9"}\n')
    with pytest.raises(DatasetError, match=r"line 2: byte 24 \(0xe9\) is no UTF-8"):
        load_dataset(path)


def test_unknown_endings_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ending '.txt'"):
        load_dataset(tmp_path / "labels.txt")
    with pytest.raises(ValueError, match="unknown format"):
        load_run(tmp_path / "x.jsonl", format="pickle")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        load_dataset(tmp_path / "none.jsonl")


HOSTILE = "\x1b[31m[red]x[/red] | `code` <script>alert(1)</script> \u202e\ud800\n**b**"


def hostile_report() -> Report:
    dataset = Dataset(
        [
            Query(query_id="q1", text=HOSTILE, relevant=[HOSTILE, ["a", "b"]], tags=["t"]),
            Query(query_id="q2", text="e", relevant=["a"]),
            Query(query_id="q3", text="n", relevant=[]),
            Query(query_id="q4", text="u"),
        ],
        name=HOSTILE,
    )
    run = Run(
        name=HOSTILE,
        rankings=[
            Ranking(
                query_id="q1",
                chunks=[Chunk(text="b", score=float("nan")), Chunk(text="")],
                latency_s=0.1,
            ),
            Ranking(query_id="q2", error=HOSTILE),
            Ranking(query_id="q3", chunks=[]),
        ],
        complete=False,
        notes=(HOSTILE,),
    )
    return score(run, dataset, k=(1, None), no_relevant="mlflow", on_error="zero")


def test_a_report_survives_its_file_exactly(tmp_path: Path) -> None:
    report = hostile_report()
    report.save(tmp_path / "report.json")
    again = Report.load(tmp_path / "report.json")
    assert again == report
    assert again.to_dict() == report.to_dict()
    assert again.summary == report.summary
    assert again.by_tag() == report.by_tag()
    text = (tmp_path / "report.json").read_text()
    assert "NaN" not in text
    assert json.loads(text) == report.to_dict()


def test_a_report_shows_hostile_text_as_text() -> None:
    report = hostile_report()
    for shown in (str(report), report.to_markdown(), report._repr_html_(), repr(report)):
        shown.encode("utf-8")
    assert "\x1b" not in str(report)
    assert "\u202e" not in str(report)
    assert "<script>" not in report._repr_html_()
    assert "<script>" not in report.to_markdown()
    assert "\n**b**" not in report.to_markdown()


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": "chunkrecall-report"}', "[" * 9999]
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match="not a report"):
        Report.load(path)


def test_a_report_becomes_a_data_frame_with_missing_scores() -> None:
    pandas = pytest.importorskip("pandas")
    frame = hostile_report().to_pandas()
    assert list(frame["query_id"]) == ["q1", "q2", "q3", "q4"]
    assert frame["recall@1"].tolist()[:3] == [0.5, 0.0, 1.0]
    assert frame["recall@1"].isna().tolist() == [False, False, False, True]
    assert isinstance(frame, pandas.DataFrame)


def test_statuses_sum_to_the_total_and_unknown_cutoffs_are_refused() -> None:
    report = hostile_report()
    for one in report.summary.values():
        parts = one.scored + one.undefined + one.errored + one.not_run + one.unlabelled
        assert parts == one.total == 4
    with pytest.raises(ValueError, match="recall@7.*recall@1, recall@all"):
        report.mean(7)
    assert report.correct_rejection == 1.0
