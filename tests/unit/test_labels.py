"""Labelled sets checked before a run, and labels ticked in what was retrieved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chunkrecall import (
    Chunk,
    Dataset,
    DatasetError,
    Label,
    Query,
    Ranking,
    Run,
    check_dataset,
    evaluate_retriever,
    load_dataset,
    save_dataset,
    save_run,
)
from chunkrecall.cli import main
from chunkrecall.labels import DatasetCheck, draft_from, read_draft, write_draft


def kinds(check: DatasetCheck) -> dict[str, tuple[str, ...]]:
    return {finding.kind: finding.query_ids for finding in check.findings}


def test_F073_tags_that_contradict_their_labels_are_errors() -> None:
    check = check_dataset(
        Dataset(
            [
                Query(query_id="q", text="q", tags=["multi_hop"], relevant=["a"]),
                Query(query_id="r", text="r", tags=["unanswerable"], relevant=["b"]),
                Query(query_id="s", text="s", tags=["multi-hop"], relevant=["a", "b"]),
                Query(query_id="t", text="t", tags=["unanswerable"], relevant=[]),
            ]
        )
    )
    found = [(one.kind, one.query_ids) for one in check.findings]
    assert found == [("contradicted tag", ("q",)), ("contradicted tag", ("r",))]
    assert not check.ok


def test_F188_labels_concentrated_on_one_chunk_are_told() -> None:
    queries = [Query(query_id=f"p{i}", text=f"p{i}", relevant=["popular"]) for i in range(60)]
    queries += [Query(query_id=f"o{i}", text=f"o{i}", relevant=[f"chunk {i}"]) for i in range(40)]
    check = check_dataset(Dataset(queries))
    (finding,) = check.findings
    assert finding.kind == "concentrated labels"
    assert "60 of 100 (0.600)" in finding.message
    assert check.ok  # a warning: it may be meant so


def test_labels_that_the_corpus_lacks_are_found_with_what_they_differ_by() -> None:
    corpus = [Chunk(text="one", chunk_id="c1"), Chunk(text="two"), Chunk(text="two")]
    check = check_dataset(
        {
            "exact": ["one"],
            "spaces": ["one "],
            "nowhere": ["three"],
            "twice": ["two"],
            "id": [Label(chunk_id="c1"), Label(chunk_id="c9")],
            "either": [["three", "one"]],
        },
        corpus,
    )
    assert kinds(check) == {
        "label text differs": ("spaces",),
        "label not in corpus": ("nowhere",),
        "ambiguous label": ("twice",),
        "dangling label": ("id",),
    }
    differs = next(one for one in check.findings if one.kind == "label text differs")
    assert "'c1' is equal after trimming whitespace" in differs.message


def test_what_stands_there_twice_is_told() -> None:
    check = check_dataset(
        Dataset(
            [
                Query(query_id="1", text="same", relevant=["a", "a", "Ａ"]),
                Query(query_id="2", text="same", relevant=None),
            ]
        ),
        k=(1, None),
    )
    assert kinds(check) == {
        "unjudged": ("2",),
        "repeated label": ("1",),
        "near-identical labels": ("1",),
        "repeated query text": ("1", "2"),
    }
    assert check.best_means == {"recall@1": 0.5, "recall@all": 1.0}
    assert (check.queries, check.judged, check.labels) == (2, 1, 2)


def test_a_check_shows_hostile_text_harmlessly() -> None:
    check = check_dataset({"<b>\x1b[31m": ["\x1b[2Jx "]}, ["\x1b[2Jx"])
    assert "\x1b" not in str(check)
    assert "<b>" not in check._repr_html_()
    assert json.loads(json.dumps(check.to_dict()))["ok"] is False


RUN = Run(
    name="bm25",
    rankings=[
        Ranking(
            query_id="q1",
            chunks=[Chunk(text="a", chunk_id="1"), Chunk(text="b", chunk_id="2"), Chunk(text="")],
            query_text="first",
        ),
        Ranking(query_id="q2", chunks=[Chunk(text="c", chunk_id="3")], query_text="second"),
    ],
)


def test_a_draft_keeps_what_was_labelled_and_gives_what_was_ticked(tmp_path: Path) -> None:
    known = Dataset(
        [Query(query_id="q1", text="first", relevant=["b", "elsewhere", ["x", "y"]], tags=["t"])]
    )
    path = tmp_path / "draft.jsonl"
    write_draft(RUN, path, known)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [chunk["relevant"] for chunk in rows[1]["chunks"]] == [None, True]
    rows[1]["chunks"][0]["relevant"] = True
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = read_draft(path).to_dataset("ticked")
    labels = dataset["q1"].relevant or ()
    assert [str(label) for label in labels] == ["a", "b", "elsewhere", "x | y"]
    assert labels[0].chunk_id == "1"
    assert dataset["q1"].tags == ("t",)
    assert dataset["q2"].relevant is None
    assert any("pooled from one retriever ('bm25')" in note for note in dataset.notes)


def test_a_query_whose_chunks_were_all_rejected_has_nothing_relevant() -> None:
    draft = draft_from(RUN)
    draft.queries[1].chunks[0].relevant = False
    dataset = draft.to_dataset()
    assert dataset["q2"].relevant == ()
    assert dataset["q1"].relevant is None


def test_the_mark_of_pooled_labels_survives_every_file(tmp_path: Path) -> None:
    draft = draft_from(RUN)
    draft.queries[0].chunks[0].relevant = True
    for name in ("set.jsonl", "set.csv", "set.parquet"):
        save_dataset(draft.to_dataset(), tmp_path / name)
        assert any("pooled" in note for note in load_dataset(tmp_path / name).notes)


def test_a_draft_of_a_report_and_what_cannot_be_drafted() -> None:
    report = evaluate_retriever(lambda text: [text, "x"], {"q": ["q"]}, k=1, progress=False)
    assert [chunk.text for chunk in draft_from(report).queries[0].chunks] == ["q", "x"]
    bare = evaluate_retriever(
        lambda text: [text], {"q": ["q"]}, k=1, keep_texts=False, progress=False
    )
    with pytest.raises(ValueError, match="keep_texts"):
        draft_from(bare)
    with pytest.raises(ValueError, match="give the dataset"):
        draft_from(Run(name="r", rankings=[Ranking(query_id="q", chunks=[])]))
    with pytest.raises(ValueError, match="depth"):
        draft_from(RUN, depth=0)


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ("{}", '"chunks"'),
        ('{"query_id": "q", "text": 1, "chunks": []}', '"text"'),
        ('{"query_id": "q", "text": "t", "chunks": [{"text": "a", "relevant": "yes"}]}', "true, false"),
        ('{"query_id": "q", "text": "t", "chunks": [1]}', '"chunks"[0]'),
        ('{"query_id": "q", "text": "t", "chunks": [{"text": "a", "chunk_id": 1}]}', "chunk_id"),
        ('{"query_id": "q", "text": "t", "chunks": [], "other_labels": [1]}', "other_labels"),
        ("[", "no JSON"),
    ],
)  # fmt: skip
def test_a_bad_draft_row_says_what_was_found(tmp_path: Path, row: str, phrase: str) -> None:
    path = tmp_path / "draft.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(DatasetError) as caught:
        read_draft(path)
    assert phrase in str(caught.value)
    assert caught.value.problems[0].row == 1


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    code = caught.value.code
    assert isinstance(code, int)
    return code


class Answers:
    """Standard input: a person's answers, then nobody."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def readline(self) -> str:
        return f"{self.lines.pop(0)}\n" if self.lines else ""


def test_the_walk_can_be_left_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(RUN, tmp_path / "run.jsonl")
    draft, out = str(tmp_path / "draft.jsonl"), str(tmp_path / "labels.jsonl")
    monkeypatch.setattr("sys.stdin", Answers("y", "what?", "q"))
    assert command("label", draft, "--run", str(tmp_path / "run.jsonl")) == 0
    assert "1 of 2 queries judged, 2 chunks undecided" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", Answers("n"))
    assert command("label", draft, "--out", out) == 0  # then nobody was there any more
    monkeypatch.setattr("sys.stdin", Answers("s"))
    assert command("label", draft) == 0
    asked = capsys.readouterr()
    assert asked.out.count("1 chunks undecided") == 2
    assert [str(label) for label in load_dataset(out)["q1"].relevant or ()] == ["a"]
    monkeypatch.setattr("sys.stdin", Answers("y"))
    assert command("label", draft, "--out", out) == 0
    assert [str(label) for label in load_dataset(out)["q2"].relevant or ()] == ["c"]
    assert command("label", draft, "--run", str(tmp_path / "run.jsonl")) == 2
    assert command("label", str(tmp_path / "other.jsonl")) == 2


def test_check_is_one_document_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, corpus = tmp_path / "labels.csv", tmp_path / "corpus.jsonl"
    save_dataset({"q": ["a"]}, labels)
    corpus.write_text('{"_id": "1", "text": "a"}\n')
    assert command("check", str(labels), "--corpus", str(corpus)) == 0
    assert "Nothing to complain about." in capsys.readouterr().out
    corpus.write_text('{"_id": "1", "text": "b"}\n')
    assert command("check", str(labels), "--corpus", str(corpus), "--format", "json") == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "label not in corpus"
    corpus.write_text('{"_id": "1"}\n5\n')
    assert command("check", str(labels), "--corpus", str(corpus), "--errors", "json") == 2
    problems = json.loads(capsys.readouterr().err)["problems"]
    assert [problem["row"] for problem in problems] == [1, 2]
    assert command("--errors", "xml", "check", str(labels)) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("in.jsonl", "out.csv"), 0),
        (("in.jsonl", "out.parquet"), 0),
        (("in.jsonl", "qrels.txt", "--to", "trec"), 2),  # texts, and TREC has ids
        (("run.jsonl", "run.txt", "--kind", "run", "--to", "trec"), 2),  # a chunk without an id
        (("run.jsonl", "run.csv", "--kind", "run"), 0),
        (("run.jsonl", "run.csv"), 2),
        (("in.jsonl", "out.csv", "--retrieved", "x"), 2),
        (("run.jsonl", "run.csv", "--kind", "run", "--topics", "x"), 2),
        (("in.jsonl", "no/out.csv"), 2),
        (("in.jsonl", "out.csv", "--to", "ragas"), 2),
    ],
)
def test_convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    save_dataset({"q": ["a"]}, "in.jsonl")
    save_run(RUN, "run.jsonl")
    assert command("convert", *arguments) == code
    if code == 0 and arguments[0] == "in.jsonl":
        assert load_dataset(arguments[1]).fingerprint == load_dataset("in.jsonl").fingerprint


def test_ids_go_to_trec_and_back(tmp_path: Path) -> None:
    labels = Dataset([Query(query_id="q", text="q", relevant=[Label(chunk_id="d", grade=2)])])
    save_dataset(labels, tmp_path / "qrels.txt", format="trec")
    assert (tmp_path / "qrels.txt").read_text() == "q 0 d 2\n"
    again: Any = load_dataset(tmp_path / "qrels.txt", format="trec")
    assert again.fingerprint == labels.fingerprint


def test_a_draft_loses_and_changes_no_label_of_its_dataset(tmp_path: Path) -> None:
    dataset = Dataset(
        [
            Query(
                query_id="q1",
                text="one",
                relevant=[
                    Label(text="a", grade=2),
                    Label(text="no", grade=0),
                    [Label(text="g1"), Label(text="g2")],
                    Label(text="elsewhere", grade=3),
                ],
                metadata={"from": "us", "pooled_from": ["earlier"]},
                tags=["t"],
            ),
            Query(query_id="q2", text="two", relevant=["never retrieved"]),
            Query(query_id="q3", text="three", relevant=None),
        ]
    )
    chunks = [Chunk(text=text, chunk_id=f"c{n}") for n, text in enumerate(["a", "no", "g2", "a"])]
    run = Run(name="bm25", rankings=[Ranking(query_id="q1", chunks=chunks)])
    draft = draft_from(run, dataset)
    draft.save(tmp_path / "draft.jsonl")
    draft = read_draft(tmp_path / "draft.jsonl")
    assert [chunk.relevant for chunk in draft.queries[0].chunks] == [True, False, True, True]
    back = draft.to_dataset()
    assert back.fingerprint == dataset.fingerprint
    assert [query.metadata for query in back] == [query.metadata for query in dataset]


def test_a_tick_beside_known_labels_is_marked_as_pooled(tmp_path: Path) -> None:
    dataset = Dataset([Query(query_id="q", text="one", relevant=[Label(text="no", grade=0)])])
    run = Run(
        name="bm25", rankings=[Ranking(query_id="q", chunks=[Chunk(text="no", chunk_id="c")])]
    )
    draft = draft_from(run, dataset)
    draft.queries[0].chunks[0].relevant = True
    [query] = draft.to_dataset()
    assert query.relevant == (Label(text="no", chunk_id="c"),)
    assert query.metadata == {"pooled_from": ["bm25"]}


@pytest.mark.parametrize("pooled", ["5", '"bm25"', "[1]"])
def test_a_draft_whose_pooling_is_no_list_of_names_is_refused(tmp_path: Path, pooled: str) -> None:
    path = tmp_path / "draft.jsonl"
    path.write_text(f'{{"chunkrecall_draft": 1, "pooled_from": {pooled}}}\n')
    with pytest.raises(DatasetError, match="pooled_from"):
        read_draft(path)
