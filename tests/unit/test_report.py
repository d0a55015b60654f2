"""Reports: exact files, hostile texts harmless in every view, garbage refused by file name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chunkrecall import (
    Chunk,
    Dataset,
    DatasetError,
    Query,
    Ranking,
    Report,
    Run,
    evaluate_retriever,
    score,
)

HOSTILE = [
    "\x1b[31mred\x1b]0;title\x07", "[red]x[/red]", "a | b", "<script>alert(1)</script>",
    "\u202eevil\u2066", "line\nbreak\r\nand\u2028more", "\ud800 lone", "nul\0", "`code` **b** $x$",
    "&lt;&amp;", "![x](http://e.com/x.png)", "\x9b31m", "\u200b", "x" * 5000,
]  # fmt: skip


def hostile_report(text: str) -> Report:
    dataset = Dataset(
        [
            Query(query_id=text, text=text, relevant=[text, [text + "2", "b"]], tags=[text]),
            Query(query_id="e", text=text, relevant=["a"]),
            Query(query_id="n", text="n", relevant=[]),
            Query(query_id="late", text=text, relevant=["z"]),
        ],
        name=text,
    )
    chunks = [
        Chunk(text="b", chunk_id=text, score=float("nan"), metadata={text: text}),
        Chunk(text=text + " ", score=float("inf")),
    ]
    run = Run(
        name=text,
        rankings=[
            Ranking(query_id=text, chunks=chunks, latency_s=0.25),
            Ranking(query_id="e", error=text),
            Ranking(query_id="n"),
        ],
        complete=False,
        notes=(text,),
    )
    return score(run, dataset, k=(1, 2, None), no_relevant="mlflow", on_error="zero")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_report_survives_its_file_exactly_whatever_its_texts(text: str, tmp_path: Path) -> None:
    report = hostile_report(text)
    report.save(tmp_path / "report.json")
    again = Report.load(tmp_path / "report.json")
    assert again == report
    assert (again.to_dict(), again.summary) == (report.to_dict(), report.summary)
    assert [query.reason for query in again.queries] == [query.reason for query in report.queries]
    stored = (tmp_path / "report.json").read_bytes()
    assert stored.isascii()
    assert not re.search(rb"\b(NaN|Infinity)\b", stored)
    assert Report.from_dict(json.loads(report.to_json(indent=2))).to_json() == report.to_json()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_view_of_a_report_lets_a_text_take_effect(text: str) -> None:
    report = hostile_report(text)
    terminal, page, table = str(report), report._repr_html_(), report.to_markdown()
    for shown in (terminal, page, table, repr(report)):
        shown.encode("utf-8")
        assert len(shown) < 40_000
    for shown in (terminal, page, table):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", shown)
    assert set(re.findall(r"<(/?\w+)", page)) <= {
        f"{end}{tag}" for end in ("", "/") for tag in
        ("div", "p", "table", "thead", "tbody", "tr", "th", "td", "caption")
    }  # fmt: skip
    assert not re.search(r"(?<!\\)<(?!!--)", table)
    tables = [block.split("\n") for block in table.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3  # the means, the tags and the worst queries; a text adds no cell
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    if text == "[red]x[/red]":
        assert text in terminal
    assert max(map(len, report.to_terminal(width=60).splitlines())) <= 60


def test_a_mean_is_shown_as_0_or_1_only_if_it_is_exact() -> None:
    dataset = {str(i): ["a"] for i in range(5000)}
    chunks = [Chunk(text="a")]
    for found, shown in ((4999, "0.999"), (1, "0.001"), (5000, "1.000"), (0, "0.000")):
        run = Run(rankings=[Ranking(query_id=str(i), chunks=chunks) for i in range(found)])
        report = score(run, dataset, k=1)
        assert report.mean(1) == found / 5000
        for view in (str(report), report.to_markdown(), report._repr_html_()):
            assert shown in view
            assert ("1.000" in view) == (found == 5000)


def test_a_mean_at_another_cutoff_is_refused_and_names_the_known_ones() -> None:
    report = score(Run(), {"q": ["a"]}, k=(5, None))
    assert (report.mean(5), report.mean(None)) == (0.0, 0.0)
    for k in (4, 10**30):
        with pytest.raises(ValueError, match=f"no recall@{k}; it has recall@5, recall@all"):
            report.mean(k)
    for bad in (0, True, "5", 5.0):
        with pytest.raises(ValueError, match="k must"):
            report.mean(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no recall@all"):
        score(Run(), {"q": ["a"]}, k=5).mean(None)


def test_the_worst_are_the_failed_then_the_lowest_in_dataset_order() -> None:
    dataset = {q: ["a", "b"] for q in ("whole", "half", "none", "half2", "failed", "none2")}
    dataset["undefined"] = []
    texts = {"whole": "ab", "half": "a", "none": "x", "half2": "b", "none2": ""}
    rankings = [
        Ranking(query_id=q, chunks=[Chunk(text=c) for c in t]) for q, t in texts.items()
    ] + [Ranking(query_id="failed", error="E: x")]
    report = score(Run(rankings=rankings), dataset, k=(1, 2))
    names = [query.query_id for query in report.worst()]
    assert names == ["failed", "none", "none2", "half", "half2"]
    assert [query.query_id for query in report.worst(2)] == names[:2]
    assert "Worst 5 of 5" in str(report)


def test_a_data_frame_has_na_for_no_score_dataset_order_and_its_columns_even_when_empty() -> None:
    pandas = pytest.importorskip("pandas")
    frame = hostile_report("t").to_pandas()
    assert list(frame["query_id"]) == ["t", "e", "n", "late"]
    names = [f"{m}@{k}" for m in ("recall", "hit", "complete") for k in ("1", "2", "all")]
    assert [column for column in frame.columns if "@" in column] == names
    for name in [*names, "latency_s"]:
        assert frame[name].dtype == pandas.Float64Dtype()
    assert frame["recall@all"].tolist()[:3] == [0.5, 0.0, 1.0]
    assert frame["recall@all"].iloc[3] is pandas.NA
    assert frame["latency_s"].iloc[1] is pandas.NA
    assert frame["recall@all"].mean() == 0.5
    empty = score(Run(), Dataset([]), k=(1, 2, None)).to_pandas()
    assert (list(empty.columns), len(empty)) == (list(frame.columns), 0)


def tagged() -> Report:
    labels = Dataset(
        [
            Query(query_id="1", text="1", relevant=["a"], tags=["fees", "both"]),
            Query(query_id="2", text="2", relevant=["a", "b"], tags=["both"]),
            Query(query_id="3", text="3", relevant=["a"], tags=["broken"]),
            Query(query_id="4", text="4", relevant=["a"]),
        ]
    )
    rankings = [Ranking(query_id=q, chunks=[Chunk(text="x"), Chunk(text="a")]) for q in "124"]
    return score(Run(rankings=[*rankings, Ranking(query_id="3", error="E: x")]), labels, k=(1, 2))


def test_every_view_has_a_table_of_tags_where_there_are_tags() -> None:
    report = tagged()
    assert {tag: one["recall@2"].mean for tag, one in report.by_tag().items()} == {
        "both": 0.75, "broken": None, "fees": 1.0,
    }  # fmt: skip
    text = str(report)
    for row in (
        r"tag +recall@1 +recall@2 +queries +scored +errors",
        r"both +0\.000 +0\.750 +2 +2 +0",
        r"broken +– +– +1 +0 +1",
        r"fees +0\.000 +1\.000 +1 +1 +0",
    ):
        assert re.search(row, text), row
    assert "| both | 0.000 | 0.750 | 2 | 2 | 0 |" in report.to_markdown()
    assert "Recall by tag" in report._repr_html_()
    assert "Recall by tag" not in str(score(Run(), {"q": ["a"]}, k=1))


def test_of_many_tags_the_lowest_are_shown() -> None:
    labels = Dataset(
        [
            Query(query_id=f"{i:03}", text="t", relevant=["a"], tags=[f"tag{i:03}"])
            for i in range(100)
        ]
    )
    found = [Ranking(query_id=f"{i:03}", chunks=[Chunk(text="a")]) for i in range(50)]
    text = str(score(Run(rankings=found), labels, k=1))
    assert "Recall by tag: the lowest 20 of 100 tags" in text
    assert re.findall(r"^tag(\d+)", text, re.MULTILINE) == [f"{i:03}" for i in range(50, 70)]


def test_a_data_frame_is_grouped_by_tag_as_by_tag_is() -> None:
    pytest.importorskip("pandas")
    report = tagged()
    means = report.to_pandas().explode("tags").groupby("tags")["recall@2"].mean()
    assert {tag: means[tag] for tag in ("both", "fees")} == {"both": 0.75, "fees": 1.0}


def test_a_report_of_nothing_is_shown_and_saved(tmp_path: Path) -> None:
    report = score(Run(), Dataset([]), k=1)
    report.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == report
    assert report.mean(1) is None
    assert "0 queries" in str(report)
    assert (report.by_tag(), report.worst(), report.correct_rejection) == ({}, (), None)


GOOD = score(
    Run(rankings=[Ranking(query_id="q", chunks=[Chunk(text="a")])]), {"q": ["a"]}, k=1
).to_dict()
ROW = GOOD["queries"][0]
BAD_REPORTS: list[Any] = [
    None, 5, "x", [], {}, [GOOD], {**GOOD, "version": 2}, {**GOOD, "k": []}, {**GOOD, "k": [0]},
    {**GOOD, "k": "1"}, {**GOOD, "rules": {}}, {**GOOD, "rules": {"matcher": 5}},
    {**GOOD, "name": 5}, {**GOOD, "queries": "abc"}, {**GOOD, "queries": {}},
    {**GOOD, "notes": "abc"}, {**GOOD, "dataset": None},
    *({**GOOD, "queries": [{**ROW, **change}]} for change in (
        {"ranks": {}}, {"ranks": {"a": "1"}}, {"ranks": {"a": 0}}, {"ranks": {"a": True}},
        {"ranks": ["a"]}, {"retrieved": "abc"}, {"assigned": 0.5}, {"assigned": "x"},
        {"tags": "ab"}, {"status": "fine"}, {"query_id": None}, {"text": 7},
        {"retrieved_count": "1"}, {"calls": [1]},
    )),
]  # fmt: skip


@pytest.mark.parametrize("row", BAD_REPORTS, ids=range(len(BAD_REPORTS)))
def test_a_file_that_is_no_report_is_a_dataset_error_naming_it(row: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(row))
    with pytest.raises(DatasetError, match=r"odd\.json: not a report.*report\.save"):
        Report.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, json.dumps(GOOD).replace("null", "NaN").encode()],
    ids=["empty", "cut", "utf-16", "deep", "nan"],
)
def test_bytes_that_are_no_json_are_a_dataset_error_naming_the_file(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    with pytest.raises(DatasetError, match=r"odd\.json: not a report"):
        Report.load(tmp_path / "odd.json")
    with pytest.raises(FileNotFoundError):
        Report.load(tmp_path / "none.json")
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert Report.load(tmp_path / "bom.json").to_dict() == GOOD


def test_paraphrases_of_one_question_can_count_once() -> None:  # F188
    labels = {f"paraphrase {i}": ["common"] for i in range(60)}
    labels |= {f"other {i}": [f"right {i}"] for i in range(40)}

    def search(text: str) -> list[str]:
        return ["common"] if text.startswith("paraphrase") else ["wrong"]

    report = evaluate_retriever(search, labels, k=1)
    assert report.mean(1) == 0.6
    assert report.mean(1, per="label_set") == 1 / 41
    with pytest.raises(ValueError, match="label_set"):
        report.mean(1, per="labels")  # type: ignore[arg-type]


def test_a_mean_per_label_set_is_a_mean_of_means() -> None:
    labels = {"a": ["x", "y"], "b": ["y", "x"], "c": ["z"]}
    found = {"a": ["x"], "b": ["x", "y"], "c": []}
    report = evaluate_retriever(lambda text: found[text], labels, k=5)
    assert report.mean(5, per="label_set") == 0.375
    empty = evaluate_retriever(lambda text: [], {"a": None}, k=5)
    assert empty.mean(5, per="label_set") is None
