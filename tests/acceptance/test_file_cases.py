"""Inputs of real bug reports about files, each with the right answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chunkrecall import (
    Dataset,
    DatasetError,
    Query,
    load_dataset,
    load_run,
    recall_at_k,
    save_dataset,
    score,
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def texts(query: Query) -> list[Any]:
    assert query.relevant is not None
    return [
        [str(one) for one in label.alternatives] if label.alternatives else str(label)
        for label in query.relevant
    ]


def refused(path: Path, **options: Any) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        load_dataset(path, **options)
    return caught.value


def test_F021_equal_scores_keep_the_rank_order_unless_trec_eval_is_asked_for(write: Any) -> None:
    path = write("run.txt", "q1 Q0 b 1 1.0 t\nq1 Q0 c 2 1.0 t\n")
    labels = Dataset([Query(query_id="q1", text="q", relevant_ids=["b"])])
    given = load_run(path, format="trec")
    assert score(given, labels, k=1).mean(1) == 1.0
    assert score(load_run(path, format="trec", order="trec_eval"), labels, k=1).mean(1) == 0.0
    assert any("equal scores" in note for note in given.notes)


def test_F044_a_python_list_in_a_cell_keeps_commas_inside_chunks(write: Any) -> None:
    path = write("set.csv", "query,relevant\nq1,\"['a, b', 'c']\"\n")
    assert texts(load_dataset(path)["q1"]) == ["a, b", "c"]


def test_F045_a_numpy_array_in_a_cell_is_refused_and_never_glued(write: Any) -> None:
    error = refused(write("set.csv", "query,relevant\nq1,['chunk one' 'chunk two']\n"))
    assert error.problems[0].row == 2
    assert "without a comma" in str(error)
    dots = refused(write("dots.csv", "query,relevant\nq1,\"['a', 'b', ..., 'z']\"\n"))
    assert "dots" in str(dots)


def test_F047_json_words_in_cells_load_and_a_null_label_is_refused(write: Any) -> None:
    rows = 'query,relevant,metadata\nq1,"[""a""]","{""ok"": true, ""page"": null}"\n'
    assert load_dataset(write("good.csv", rows))["q1"].metadata == {"ok": True, "page": None}
    error = refused(write("bad.csv", 'query,relevant\nq1,"[""a"", null]"\n'))
    assert error.problems[0].row == 2
    assert '"relevant"[1]' in str(error)


@pytest.mark.parametrize("name", ["set.csv", "set.tsv", "set.jsonl", "set.json", "set.parquet"])
def test_F048_separators_inside_chunks_survive_every_format(tmp_path: Path, name: str) -> None:
    relevant = ["| Plan | Price |\n| --- | --- |", "cat log | grep ERR"]
    dataset = Dataset([Query(query_id="q", text="q", relevant=relevant)])
    save_dataset(dataset, tmp_path / name)
    again = load_dataset(tmp_path / name)
    assert texts(again["q"]) == relevant
    assert again.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set.jsonl", '{"query":"q1","relevant":["a"]}\n{"query":"q2","relevant":["b"]}'),
        ("set.csv", 'query,relevant\nq1,"[""a""]"\nq2,"[""b""]"\n'),
        ("set.json", '[{"query":"q1","relevant":["a"]},{"query":"q2","relevant":["b"]}]'),
    ],
)
def test_F051_a_byte_order_mark_sticks_to_nothing(write: Any, name: str, content: str) -> None:
    dataset = load_dataset(write(name, b"\xef\xbb\xbf" + content.encode()))
    assert [(query.text, texts(query)) for query in dataset] == [("q1", ["a"]), ("q2", ["b"])]


def test_F052_a_nan_token_is_refused_with_its_line(write: Any) -> None:
    error = refused(write("set.jsonl", '{"query":"q1","relevant":NaN}\n'))
    assert error.problems[0].row == 1
    assert "NaN" in str(error)


def test_F055_a_repeated_key_is_named(write: Any) -> None:
    error = refused(write("set.json", '{"q1":["a"],"q2":["b"],"q1":["c"]}'))
    assert "'q1'" in str(error)


def test_F056_equal_judgements_merge_and_conflicting_ones_name_both_lines(write: Any) -> None:
    good = load_dataset(write("qrels.txt", "q1 0 d1 1\nq1 0 d1 1\nq1 0 d2 1\n"), format="trec")
    assert texts(good["q1"]) == ["d1", "d2"]
    assert any("count once" in note for note in good.notes)
    bad = write("bad.txt", "q1 0 d1 1\nq1 0 d1 1\nq1 0 d2 1\nq1 0 d2 0\n")
    error = refused(bad, format="trec")
    assert "line 4" in str(error)
    assert "line 3" in str(error)


@pytest.mark.parametrize(("order", "expected"), [("score", 0.0), ("rank", 1.0), ("trec_eval", 0.0)])
def test_F059_the_order_of_a_run_is_declared(write: Any, order: Any, expected: float) -> None:
    path = write("run.txt", "q1 Q0 d1 1 0.2 t\nq1 Q0 d2 2 0.9 t\n")
    run = load_run(path, format="trec", order=order)
    labels = Dataset([Query(query_id="q1", text="q", relevant_ids=["d1"])])
    assert score(run, labels, k=1).mean(1) == expected
    assert any("disagree" in note for note in run.notes)


QA = {
    "queries": {"q1": "A?"},
    "corpus": {"n1": "text one", "n2": "text two"},
    "relevant_docs": {"q1": ["n1"]},
    "mode": "text",
}


def test_F060_llama_index_files_load_without_the_framework(write: Any) -> None:
    for format_ in ("auto", "llama-index"):
        query = load_dataset(write("qa.json", json.dumps(QA)), format=format_)["q1"]
        assert query.text == "A?"
        assert [(one.text, one.chunk_id) for one in query.relevant or ()] == [("text one", "n1")]


def test_F061_a_query_without_labels_loads_and_is_named(write: Any) -> None:
    value = {
        "queries": {"q1": "A", "q2": "B"},
        "corpus": {"n1": "x"},
        "relevant_docs": {"q1": ["n1"]},
    }
    dataset = load_dataset(write("qa.json", json.dumps(value)))
    assert dataset["q2"].relevant is None
    assert any("'q2'" in note for note in dataset.notes)


@pytest.mark.parametrize("name", ["set.json", "set.jsonl", "set.csv"])
def test_F063_another_encoding_is_refused_with_the_byte_and_can_be_named(
    write: Any, name: str
) -> None:
    content = {
        "set.json": '[{"query":"café","relevant":["a"]}]',
        "set.jsonl": '{"query":"café","relevant":["a"]}\n',
        "set.csv": 'query,relevant\ncafé,"[""a""]"\n',
    }[name]
    path = write(name, content.encode("cp1252"))
    error = refused(path)
    assert f"byte {content.index('é')}" in str(error)
    assert "encoding=" in str(error)
    assert load_dataset(path, encoding="cp1252").queries[0].text == "café"


def test_F063_what_we_write_is_readable_utf8(tmp_path: Path) -> None:
    for name in ("set.jsonl", "set.json", "set.csv"):
        save_dataset({"如何退款?": ["两周内可以。"]}, tmp_path / name)
        assert "两周内可以。" in (tmp_path / name).read_text(encoding="utf-8")


def test_F064_answers_and_retrieved_contexts_are_no_labels(write: Any) -> None:
    row = {
        "user_input": "q",
        "retrieved_contexts": ["x"],
        "reference_contexts": ["y"],
        "reference": "an answer",
    }
    path = write("ragas.jsonl", json.dumps(row))
    assert texts(load_dataset(path, format="ragas")["q"]) == ["y"]
    assert load_run(path, format="ragas").rankings[0].texts == ("x",)
    old = {"question": "q", "contexts": ["x"], "ground_truth": "an answer"}
    error = refused(write("old.jsonl", json.dumps(old)), format="ragas", query="question")
    assert "'ground_truth'" in str(error)
    assert "'contexts'" in str(error)


def test_F067_mlflow_tables_load_in_split_form(write: Any) -> None:
    table = {
        "columns": ["question", "source", "retrieved_context"],
        "data": [["q1", ["d1", "d2"], ["d9", "d1", "x", "d2"]]],
    }
    path = write("table.json", json.dumps(table))
    dataset, run = load_dataset(path, format="mlflow"), load_run(path, format="mlflow")
    report = score(run, dataset, k=(3, None))
    assert (report.mean(3), report.mean(None)) == (0.5, 1.0)
    assert any("k=3" in note for note in run.notes)


def test_F068_langsmith_exports_are_read_as_data(write: Any) -> None:
    document = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "document", "Document"],
        "kwargs": {"page_content": "b", "metadata": {}, "type": "Document"},
    }
    row = {
        "inputs": {"question": "q"},
        "outputs": {"documents": [{"page_content": "a", "metadata": {}}, document]},
    }
    path = write("examples.jsonl", json.dumps(row))
    dataset = load_dataset(
        path, format="langsmith", query="inputs.question", relevant="outputs.documents"
    )
    assert texts(dataset["q"]) == ["a", "b"]
    assert "hold answers or what was retrieved" in str(refused(path, format="langsmith"))


def test_F071_groups_of_ids_and_rows_without_an_answer(write: Any) -> None:
    rows = [
        {"query": "one", "retrieval_gt": [["d1", "d2"], ["d3"]]},
        {"query": "two", "retrieval_gt": [[]]},
    ]
    path = write("set.json", json.dumps(rows))
    dataset = load_dataset(path, relevant_ids="retrieval_gt")
    assert texts(dataset["one"]) == [["d1", "d2"], "d3"]
    assert dataset["two"].relevant == ()


def test_F107_ids_are_text_and_a_blank_row_is_unlabelled(write: Any) -> None:
    dataset = load_dataset(write("set.csv", "query,relevant_ids\na,101\nb,\nc,007\n"))
    assert texts(dataset["a"]) == ["101"]
    assert dataset["b"].relevant is None
    assert texts(dataset["c"]) == ["007"]


@pytest.mark.parametrize("column", ["relevant", "relevant_ids", "tags", "metadata"])
def test_F147_a_cell_is_never_evaluated(write: Any, tmp_path: Path, column: str) -> None:
    target = tmp_path / "pwned"
    cell = f"__import__('os').system('touch {target}')"
    header = ["query", column] if column == "relevant" else ["query", "relevant", column]
    cells = ["q", cell] if column == "relevant" else ["q", '"[""a""]"', f'"{cell}"']
    refused(write("set.csv", ",".join(header) + "\n" + ",".join(cells) + "\n"))
    assert not target.exists()
    bomb = "[" * 100_000
    error = refused(write("bomb.csv", f"query,relevant\nq,{bomb}\n"))
    assert error.problems[0].row == 2
    assert len(str(error)) < 1_000


@pytest.mark.parametrize("name", ["set.pkl", "set.joblib", "set.pickle"])
def test_F148_pickles_are_never_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="can run any code"):
        load_dataset(tmp_path / name)
    with pytest.raises(ValueError, match="can run any code"):
        load_run(tmp_path / name)


def test_the_definition_agrees_with_the_kernel() -> None:
    assert recall_at_k(["d9", "d1", "x", "d2"], ["d1", "d2"], 3) == 0.5
