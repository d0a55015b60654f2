"""JSON Lines files: exact round trips, and every way a file can be wrong, with its line."""

from __future__ import annotations

import json
from collections import UserDict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
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
    Run,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
    score,
)

ODD = ["\ud800", '"', "\\", "\u2028", "\u2029", "\0", "\r\n", "\x85", "\ufeff", "\U0001f600", "a"]
# A high and a low surrogate side by side are one character in JSON.
anything = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.lists(st.sampled_from(ODD), max_size=4).map("".join),
)
texts = anything.filter(lambda text: bool(text.strip()))
ids = anything.filter(bool)
plain = st.builds(
    Label, text=st.none() | texts, chunk_id=texts, grade=st.integers(-2, 10**20)
) | st.builds(Label, text=texts, grade=st.integers(0, 2))
groups = st.lists(plain, min_size=2, max_size=3).map(lambda ms: Label(alternatives=tuple(ms)))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | anything,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(anything, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
metadata = st.dictionaries(anything, json_values, max_size=3)
on_disk = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def without_conflicts(labels: list[Label]) -> bool:
    grades: dict[Any, set[int]] = {}
    for member in (member for label in labels for member in label.members):
        grades.setdefault(member.identity, set()).add(member.grade)
    return all(len(found) == 1 for found in grades.values())


@on_disk
@given(
    st.lists(
        st.tuples(
            ids,
            anything,
            st.none() | st.lists(plain | groups, max_size=3).filter(without_conflicts),
            st.lists(anything, max_size=2),
            metadata,
        ),
        max_size=3,
        unique_by=lambda row: row[0],
    ),
    st.none() | anything,
)
def test_any_dataset_is_read_back_equal(tmp_path: Path, rows: Any, name: Any) -> None:
    queries = [
        Query(query_id=i, text=text, relevant=labels, tags=tags, metadata=more)
        for i, text, labels, tags, more in rows
    ]
    dataset = Dataset(queries, name=name)
    save_dataset(dataset, tmp_path / "stem.jsonl")
    again = load_dataset(tmp_path / "stem.jsonl")
    assert list(again) == queries
    assert (again.fingerprint, again.name) == (
        dataset.fingerprint,
        "stem" if name is None else name,
    )


@on_disk
@given(
    st.lists(
        st.builds(
            Chunk,
            text=anything,
            chunk_id=st.none() | anything,
            score=st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
            metadata=metadata,
        ),
        max_size=4,
    ),
    st.none() | ids,
    st.booleans(),
)
def test_any_run_is_read_back_equal(
    tmp_path: Path, chunks: list[Chunk], error: Any, complete: bool
) -> None:
    run = Run(
        name=error or "",
        rankings=[Ranking(query_id="q", chunks=chunks, error=error, query_text=error)],
        complete=complete,
        settings={"depth": 3},
        notes=("a", "b"),
    )
    save_run(run, tmp_path / "r.jsonl")
    assert load_run(tmp_path / "r.jsonl") == run
    (tmp_path / "r.jsonl").read_bytes().decode("utf-8")


def test_a_partial_run_stays_partial_and_a_headerless_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    save_run(Run(complete=False), path)
    assert score(load_run(path), {"q": ["a"]}, k=1).queries[0].status == "not_run"
    path.write_text("\n")
    assert score(load_run(path), {"q": ["a"]}, k=1).absent == 1
    assert load_run(path).name == "run"


@pytest.mark.parametrize(
    ("header", "phrase"),
    [
        ({"complete": 0}, '"complete" must be true or false, got 0'),
        ({"complete": None}, '"complete" must be true or false, got null'),
        ({"compelte": False}, "unknown keys ['compelte']"),
        ({"name": 5}, '"name" must be a string'),
        ({"settings": [1]}, '"settings" must be an object'),
        ({"notes": "abc"}, '"notes" must be a list'),
        ({"notes": [1]}, '"notes"[0] must be a string'),
        ({"chunkrecall_run": "1"}, "reads chunkrecall_run 1, got '1'"),
    ],
)
def test_a_header_that_would_be_misread_is_refused(
    tmp_path: Path, header: dict[str, Any], phrase: str
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"chunkrecall_run": 1, **header}) + "\n")
    with pytest.raises(DatasetError) as caught:
        load_run(path)
    assert f"{path} line 1: " in str(caught.value)
    assert phrase in str(caught.value)


def test_a_header_belongs_first_and_its_name_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    row, header = '{"query_id": "q", "chunks": []}', '{"chunkrecall_run": 1, "name": null}'
    path.write_text(f"{header}\n{row}\n")
    assert load_run(path).name == "run"
    path.write_text(f"{row}\n{header}\n")
    with pytest.raises(DatasetError, match="line 2: a header must be the first row"):
        load_run(path)


def test_the_other_kind_of_file_is_recognised_and_the_right_call_named(tmp_path: Path) -> None:
    labels, ranked = tmp_path / "labels.jsonl", tmp_path / "run.jsonl"
    save_dataset({"t": ["a"]}, labels)
    save_run(Run(rankings=[Ranking(query_id="q")]), ranked)
    for headless in (False, True):
        for path, reader, phrase in (
            (labels, load_run, r"this is a dataset file: read it with load_dataset\(path\)"),
            (ranked, load_dataset, r"this is a run file: read it with load_run\(path\)"),
        ):
            if headless:
                path.write_text(path.read_text().split("\n", 1)[1])
            with pytest.raises(DatasetError, match=rf"line 1: .*{phrase}"):
                reader(path)  # type: ignore[operator]


BAD = [
    ('{"text": "t", "relevant_ids": [5]}', "relevant_ids[0] must be a string, got int 5"),
    ('{"text": "t", "id": 5}', 'write "5"'),
    ('{"text": "t", "query_id": "a", "id": "b"}', "mean the same"),
    ('{"text": "t", "query_id": ""}', "must not be empty"),
    ('{"text": null}', '"text" (the query) is missing'),
    ('{"text": "t", "relevant": [["a", ["b"]]]}', "another group"),
    ('{"text": "t", "relevant": [[]]}', "empty"),
    ('{"text": "t", "relevant": [{}]}', '"relevant"[0]: a label needs a text or a chunk_id'),
    ('{"text": "t", "relevant": [{"text": "a", "grade": 1.5}]}', "grade"),
    ('{"text": "t", "relevant": [{"text": "a", "chunk_id": 5}]}', "chunk_id"),
    ('{"text": "t", "relevants": ["a"]}', "unknown keys ['relevants']; a query row has"),
    ('{"text": "t", "metadata": {"a": Infinity}}', "Infinity is no JSON value — write null"),
    ('{"text": "t", "metadata": {"a": -Infinity}}', "-Infinity is no JSON value"),
    ('{"text": "t", "metadata": {"a": {"b": 1, "b": 2}}}', "repeated keys ['b']"),
    ('{"text": "t", "metadata": {"a": ' + "1" * 5000 + "}}", "digits"),
    ('{"text": "t"} {"text": "u"}', "no JSON: Extra data at character 15"),
    ("{'text': 't'}", "no JSON"),
    ('"t"', "must be a JSON object"),
    ("null", "must be a JSON object, got null"),
    ('{"text": "t", "metadata": ' + '{"a":' * 50_000, "nested too deeply"),
    ('{"text": "first"}', "taken by line 2"),
]


def test_every_bad_line_is_named_at_once_in_order(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        "\n".join(["  ", '{"text": "first"}', *[line for line, _ in BAD], '{"text": "u"}'])
    )
    with pytest.raises(DatasetError) as caught:
        load_dataset(path)
    problems = caught.value.problems
    places = [f"{path} line {number}" for number in range(3, 3 + len(BAD))]
    assert [problem.place for problem in problems] == places
    for problem, (_, phrase) in zip(problems, BAD, strict=True):
        assert phrase in problem.message, problem
        assert "pydantic" not in problem.message


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ({"chunks": []}, '"query_id" must be a non-empty string, got null'),
        ({"query_id": 5, "chunks": []}, "got 5"),
        ({"query_id": "q", "chunks": "a"}, '"chunks" must be a list'),
        ({"query_id": "q", "chunks": [None]}, '"chunks"[0]'),
        ({"query_id": "q", "chunks": [{"text": None, "chunk_id": "1"}]}, "got null"),
        ({"query_id": "q", "chunks": [{"text": "a", "score": True}]}, '"score"'),
        ({"query_id": "q", "chunks": [{"text": "a", "metadata": "m"}]}, "metadata"),
        ({"query_id": "q", "chunks": [{"text": "a", "id": "1", "chunk_id": "2"}]}, "mean the same"),
        ({"query_id": "q", "chunk": []}, "unknown keys ['chunk']"),
        ({"query_id": "q", "chunks": [], "query": 5}, '"query"'),
    ],
)
def test_a_bad_run_row_says_what_was_found(tmp_path: Path, row: Any, phrase: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DatasetError) as caught:
        load_run(path)
    assert str(caught.value).startswith(f"{path} line 1: ")
    assert phrase in str(caught.value)


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for row in ('"chunks": [{"text": "a", "score": 1e999}]', '"chunks": [], "latency_s": -1e999'):
        path.write_text('{"query_id": "q", ' + row + "}")
        with pytest.raises(DatasetError, match="must be a number"):
            load_run(path)


def test_chunks_may_be_bare_texts_or_ids_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text('{"id": "q", "chunks": ["a", {"id": "1"}, {"text": "", "score": 2}]}')
    assert load_run(path).rankings[0].chunks == (
        Chunk(text="a"),
        Chunk(text="", chunk_id="1"),
        Chunk(text="", score=2),
    )


def test_marks_line_ends_and_blank_lines_of_every_system_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.JSONL"
    path.write_bytes(
        b'\xef\xbb\xbf\r\n{"chunkrecall_dataset": 1, "name": "n"}\r\n \t\r\n'
        b'{"query": "t", "relevant": ["\xe2\x80\xa8x"]}\r\n\n{"text": "u"}'
    )
    dataset = load_dataset(path)
    assert (dataset.name, len(dataset)) == ("n", 2)
    assert dataset["t"].relevant == (Label(text="\u2028x"),)


def test_bytes_that_are_no_utf_8_are_named_by_their_offset_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    content = b'\xef\xbb\xbf{"text": "\xff"}\n{"text": "ok"}\r\n{"text": "\xc3\xa9\xed\xa0\x80"}\n'
    path.write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        load_dataset(path)
    first, second = caught.value.problems
    assert f"byte {content.index(0xFF)} (0xff) is no UTF-8" in first.message
    assert f"byte {content.index(0xED)} (0xed) is no UTF-8" in second.message
    assert second.place.endswith("line 3")
    path.write_bytes('{"text": "t"}'.encode("utf-16"))
    with pytest.raises(DatasetError, match="byte 0 .* is no UTF-8: the file is UTF-16"):
        load_dataset(path)


def test_paths_that_cannot_be_are_refused_by_the_right_error(tmp_path: Path) -> None:
    for reader in (load_dataset, load_run):
        with pytest.raises(ValueError, match=r"ending '\.txt'.*name it: format="):
            reader(tmp_path / "x.txt")
        with pytest.raises(FileNotFoundError):
            reader(str(tmp_path / "x.jsonl"))
        with pytest.raises(ValueError, match="unknown format"):
            reader(tmp_path / "x.jsonl", format="excel")  # type: ignore[arg-type]
        (tmp_path / "x").write_text("")
        assert reader(tmp_path / "x", format="jsonl").name == "x"
    for writer, record in ((save_dataset, {"q": ["a"]}), (save_run, Run())):
        with pytest.raises(ValueError, match="known endings") as caught:
            writer(record, tmp_path / "x.txt")  # type: ignore[operator]
        assert "format=" in str(caught.value)
        with pytest.raises(FileNotFoundError, match="no folder"):
            writer(record, tmp_path / "no" / "x.jsonl")  # type: ignore[operator]


class Odd:
    def __str__(self) -> str:
        return "odd"


def test_what_json_cannot_hold_is_written_as_the_nearest_value_and_never_ends_a_save(
    tmp_path: Path,
) -> None:
    itself: dict[str, Any] = {}
    itself["self"] = itself
    metadata = {
        "nan": float("nan"),
        "inf": [float("-inf")],
        "bytes": b"x",
        "numpy": [np.float32(0.5), np.int64(3), np.bool_(True), np.float64("nan")],
        "odd": Odd(),
        "tuple": ("a", None),
        "mapping": UserDict({1: 2}),
        "big": 10**30,
        "self": itself,
    }
    scores = [Decimal("0.5"), np.float32(0.25), np.int64(2), float("nan"), Odd(), 10**400]
    chunks = [Chunk(text="a", score=s, metadata=metadata) for s in scores]
    ranking = Ranking(query_id="q", chunks=chunks, latency_s=float("nan"))
    save_run(Run(rankings=[ranking], settings={"matcher": Odd()}), tmp_path / "r.jsonl")
    again = load_run(tmp_path / "r.jsonl")
    assert [c.score for c in again.rankings[0].chunks] == [0.5, 0.25, 2, None, None, 10**400]
    assert again.rankings[0].latency_s is None
    assert again.settings == {"matcher": "odd"}
    found = dict(again.rankings[0].chunks[0].metadata)
    assert found.pop("self")
    assert found == {
        "nan": None,
        "inf": [None],
        "bytes": "b'x'",
        "numpy": [0.5, 3, True, None],
        "odd": "odd",
        "tuple": ["a", None],
        "mapping": {"1": 2},
        "big": 10**30,
    }


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    save_run(Run(name="old"), path)
    before = path.read_bytes()
    huge = Ranking(query_id="q", chunks=[Chunk(text="a", metadata={"n": 10**5000})])
    with pytest.raises(ValueError, match="digits"):
        save_run(Run(rankings=[huge]), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "value",
    [
        {"query": ["q1", "q2"], "relevant": [["a"], ["b"]]},
        {"user_input": ["q1", "q2"], "reference_contexts": [["a"], ["b"]]},
        {"question": {"0": "q1"}, "relevant": {"0": ["a"]}},
        {"query": "q1", "relevant": ["a"]},
    ],
    ids=["columns", "ragas", "pandas", "row"],
)
def test_a_table_by_columns_is_never_read_as_a_mapping_of_queries(
    tmp_path: Path, value: dict[str, Any]
) -> None:
    path = tmp_path / "columns.json"
    path.write_text(json.dumps(value))
    with pytest.raises(DatasetError, match="column names.*list of rows"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("columns", "phrase"),
    [
        ([1, "relevant"], r'"columns"\[0\] must be a text, got 1'),
        ([["query"], "relevant"], r'"columns"\[0\] must be a text'),
        (["query", "relevant", "relevant"], "two columns have the name 'relevant'"),
    ],
)
def test_bad_names_of_columns_are_named(tmp_path: Path, columns: list[Any], phrase: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps({"columns": columns, "data": [["q", ["a"], ["b"]]]}))
    for layout in ("auto", "mlflow"):
        with pytest.raises(DatasetError, match=phrase):
            load_dataset(path, layout)  # type: ignore[arg-type]


def test_topics_with_one_id_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "topics.tsv").write_text("q1\tone\nq1\ttwo\n")
    with pytest.raises(DatasetError, match="'q1' stands here a second time"):
        load_dataset(tmp_path / "qrels.txt", format="trec", topics=tmp_path / "topics.tsv")
