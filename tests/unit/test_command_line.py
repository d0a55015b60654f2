"""The commands: one document on standard output, and exit codes that mean something."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chunkrecall import __version__
from chunkrecall.cli import main

MODULE = """
def search(text):
    return {"one": ["a", "x"], "two": ["y"]}.get(text, [])

def make():
    return search

class Box:
    retriever = staticmethod(search)

def broken(text):
    raise RuntimeError("\\x1b[31mdown")

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "searchmod.py").write_text(MODULE)
    rows = [
        {"query_id": "q1", "text": "one", "relevant": ["a", "a", "b"]},
        {"query_id": "q2", "text": "two", "relevant": ["[red]hostile[/red]\x1b[31m|<script>"]},
    ]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.delitem(sys.modules, "searchmod", raising=False)
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    "target",
    ["searchmod:search", "searchmod:make()", "searchmod:Box.retriever", "searchmod.py:search"],
)
def test_run_scores_a_retriever_named_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    code = run("run", target, "--dataset", "labels.jsonl", "--k", "1,2", "--format", "json")
    shown = capsys.readouterr()
    assert code == 0
    report = json.loads(shown.out)
    assert report["summary"]["recall@1"]["mean"] == 0.25
    assert "repeated" in shown.err


def test_a_run_can_be_saved_scored_again_and_rendered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--k", "1,all", "--format", "markdown")
    assert (
        run(
            "run",
            "searchmod:search",
            "--dataset",
            "labels.jsonl",
            "--save-run",
            "run.jsonl",
            "--report",
            "report.json",
            *arguments,
        )
        == 0
    )
    first = capsys.readouterr().out
    assert run("score", "run.jsonl", "labels.jsonl", *arguments) == 0
    second = capsys.readouterr().out
    assert first == second
    assert "<script>" not in first
    assert json.loads((folder / "report.json").read_text())["format"] == "chunkrecall-report"
    assert run("score", "run.jsonl", "labels.jsonl", "--match", "normalized", "--dedupe") == 0
    table = capsys.readouterr().out
    assert "\x1b" not in table
    assert "[red]hostile[/red]" in table


@pytest.mark.parametrize(
    ("arguments", "code", "phrase"),
    [
        ((), 2, "Usage"),
        (("bogus",), 2, "bogus"),
        (("run", "searchmod:search"), 2, "--dataset"),
        (("score", "no.jsonl", "labels.jsonl"), 2, "no.jsonl"),
        (("score", "labels.jsonl", "labels.jsonl"), 2, "line 1"),
        (("run", "searchmod:search", "--dataset", "labels.jsonl", "--k", "0"), 2, "k must be"),
        (("run", "searchmod:search", "--dataset", "labels.jsonl", "--k", "x"), 2, "--k takes"),
        (("run", "searchmod:search", "--dataset", "labels.jsonl", "--match", "x"), 2, "match"),
        (
            ("run", "searchmod:search", "--dataset", "labels.jsonl", "--id-key", "x"),
            2,
            "--match id",
        ),
        (("run", "searchmod:search", "--dataset", "labels.jsonl", "--match", "id"), 2, "chunk_id"),
        (("run", "searchmod:number", "--dataset", "labels.jsonl"), 3, "int"),
        (("run", "searchmod", "--dataset", "labels.jsonl"), 3, "MODULE:RETRIEVER"),
        (("run", "nomodule:x", "--dataset", "labels.jsonl"), 3, "nomodule"),
        (("run", "nofile.py:x", "--dataset", "labels.jsonl"), 3, "no such file"),
        (("run", "searchmod:nope", "--dataset", "labels.jsonl"), 3, "there is no 'nope'"),
        (("run", "searchmod:number()", "--dataset", "labels.jsonl"), 3, "no function"),
        (("run", "searchmod:broken", "--dataset", "labels.jsonl"), 4, "nothing could be measured"),
        (
            ("run", "searchmod:broken", "--dataset", "labels.jsonl", "--on-error", "raise"),
            4,
            "down",
        ),
        (("score", "labels.jsonl", "labels.jsonl", "--on-error", "raise"), 2, "chunkrecall run"),
    ],
)
def test_what_goes_wrong_has_its_exit_code_and_says_what(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    phrase: str,
) -> None:
    assert run(*arguments) == code
    shown = capsys.readouterr()
    assert phrase in shown.err + (shown.out if not arguments else "")
    assert "\x1b" not in shown.err
    if code not in (0, 4) and arguments:
        assert shown.out == ""


def test_a_module_that_fails_to_import_is_exit_code_3(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "failing.py").write_text("raise ValueError('bad key')\n")
    assert run("run", "failing:x", "--dataset", "labels.jsonl") == 3
    assert "ValueError: bad key" in capsys.readouterr().err


def ask(payload: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    return run("eval")


@pytest.mark.parametrize("name", ["eval_config", "evalConfig"])
def test_eval_takes_either_spelling_of_the_configuration(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = {"hypothesis": '["a", "b"]', "reference": '["b"]', name: {"k": 1}}
    assert ask(payload, monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["score"] == 0.0


def test_eval_takes_a_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = {"evalName": "recall_at_k", "hypothesis": [["a"]], "reference": [["a", "b"]]}
    assert ask(payload, monkeypatch) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["score"] == 0.5


@pytest.mark.parametrize(
    ("payload", "code", "phrase"),
    [
        ("not json", 2, "no JSON"),
        ([], 2, "object"),
        ({"hypothesis": "[]"}, 2, "reference"),
        ({"hypothesis": "[]", "reference": "[]", "x": 1}, 2, "unknown keys"),
        (
            {
                "hypothesis": "[]",
                "reference": "[]",
                "eval_config": {"k": 1},
                "evalConfig": {"k": 1},
            },
            2,
            "mean the same",
        ),
        ({"hypothesis": "a", "reference": "[]"}, 2, "hypothesis"),
        ({"hypothesis": "[]", "reference": "[]"}, 4, ""),
    ],
)
def test_eval_refuses_what_it_cannot_read(
    payload: Any,
    code: int,
    phrase: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ask(payload, monkeypatch) == code
    assert phrase in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_the_module_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chunkrecall", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == __version__


@pytest.mark.filterwarnings("ignore")
def test_the_demo_gives_three_reports_with_equal_vector_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("demo", "--out", str(tmp_path / "out"), "--format", "json") == 0
    langchain, llama_index, bm25 = json.loads(capsys.readouterr().out)
    assert langchain["summary"] == llama_index["summary"]
    assert bm25["summary"] != langchain["summary"]
    assert 0.5 < langchain["summary"]["recall@10"]["mean"] < 1
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"corpus.jsonl", "dataset.jsonl", "llama-index-bm25.run.jsonl"} <= names
    again = run(
        "score",
        str(tmp_path / "out" / "langchain-vector.run.jsonl"),
        str(tmp_path / "out" / "dataset.jsonl"),
        "--format",
        "json",
    )
    assert again == 0
    assert json.loads(capsys.readouterr().out)["summary"] == langchain["summary"]
