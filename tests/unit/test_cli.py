"""The command line: one document on standard output, the rest on standard error, exact codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chunkrecall import Report, __version__
from chunkrecall.cli import main

HOSTILE = "\x1b[31mred\x1b[0m [red]x[/red] | <script>\u202e\nnext"
ROWS = [
    {"query_id": "q1", "text": "one", "relevant": ["a", "b"], "tags": ["t"]},
    {"query_id": "q2", "text": "two", "relevant": [HOSTILE]},
    {"query_id": "q3", "text": HOSTILE, "relevant": []},
]
MODULE = f"""
import sys
print("noise at import")
noisy = [0]

def search(text):
    print("noise in a call")
    return {{"one": ["x", "a"]}}.get(text, ["y"])

def make():
    print("noise in the factory")
    return search

class Box:
    inner = staticmethod(search)
    class Deep:
        @staticmethod
        def make():
            return search

class Retriever:
    def __call__(self, text):
        return search(text)

def broken(text):
    raise RuntimeError({HOSTILE!r})

def leave():
    sys.exit(0)

def quit(text):
    sys.exit(0)

def fail():
    raise ValueError({HOSTILE!r})

nothing = None
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = dict(sys.modules)
    (tmp_path / "cli_search.py").write_text(MODULE)
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    chunks = [{"text": "x"}, {"text": "a"}]
    (tmp_path / "run.jsonl").write_text(json.dumps({"query_id": "q1", "chunks": chunks}))
    yield tmp_path
    for name in set(sys.modules) - set(known):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Shell:
    """Runs the command in this process and keeps what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        self.out, self.err = self.capsys.readouterr()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", self.out + self.err)
        assert "Traceback" not in self.err
        assert isinstance(caught.value.code, int)
        return caught.value.code

    def run(self, target: str, *arguments: str) -> int:
        return self("run", target, "--dataset", "labels.jsonl", *arguments)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


COMMANDS = {
    "run": ("run", "cli_search:search", "--dataset", "labels.jsonl"),
    "score": ("score", "run.jsonl", "labels.jsonl"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("layout", ["table", "json", "markdown"])
def test_standard_output_is_exactly_the_one_document(
    folder: Path, shell: Shell, command: str, layout: str
) -> None:
    arguments = ("--k", "1,2,all", "--format", layout, "--report", "r.json")
    assert shell(*COMMANDS[command], *arguments) == 0
    report = Report.load("r.json")
    assert (report.mean(1), report.mean(None)) == (0.0, 0.25)
    if layout == "json":
        assert json.loads(shell.out) == report.to_dict()
    else:
        whole = report.to_terminal() if layout == "table" else report.to_markdown()
        assert len(shell.out.splitlines()) == len(whole.splitlines())
        assert shell.out.splitlines()[0] == whole.splitlines()[0]
    assert shell.out.endswith("\n")
    assert not shell.out.endswith("\n\n")
    assert (
        ("noise at import" in shell.err) == ("noise in a call" in shell.err) == (command == "run")
    )


LOUD = """
import ctypes, os, subprocess, sys
def search(text):
    os.write(1, b"noise of the descriptor\\n")
    subprocess.run([sys.executable, "-c", "print('noise of a child')"])
    ctypes.CDLL(None).puts(b"noise of a C library")
    return ["a"]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the C library has another name")
def test_what_writes_past_python_is_no_part_of_the_document_either(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "cli_loud.py").write_text(LOUD)
    shell = Shell(capfd)
    assert shell.run("cli_loud:search", "--format", "json") == 0
    assert json.loads(shell.out)["summary"]["recall@1"]["mean"] == 0.25
    for source in ("the descriptor", "a child", "a C library"):
        assert f"noise of {source}" in shell.err
    print("as before")
    assert capfd.readouterr().out == "as before\n"


def test_a_reader_that_goes_away_changes_no_exit_code(folder: Path) -> None:
    for dataset, code in (("labels.jsonl", 0), ("empty.jsonl", 4)):
        (folder / "empty.jsonl").write_text("")
        command = [sys.executable, "-m", "chunkrecall", "score", "run.jsonl", dataset]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert b"Error" not in process.stderr.read()
        assert process.returncode == code


@pytest.mark.parametrize(
    ("text", "cutoffs"),
    [("5", [5]), ("5,1,5", [1, 5]), (" 1 , 5 ", [1, 5]), ("all", [None]), ("all,2", [2, None])],
)
def test_cutoffs_are_one_or_several_numbers_or_all(
    folder: Path, shell: Shell, text: str, cutoffs: list[int | None]
) -> None:
    assert shell(*COMMANDS["score"], "--format", "json", "--k", text) == 0
    assert json.loads(shell.out)["k"] == cutoffs


@pytest.mark.parametrize(
    "text", ["0", "-1", "1,0", "", ",", "1,", "1,,2", "2.5", "five", "+5", "\u0665", "1 2", "None", "9" * 5000]
)  # fmt: skip
def test_what_is_no_cutoff_is_exit_code_2(folder: Path, shell: Shell, text: str) -> None:
    for command in COMMANDS.values():
        assert shell(*command, "--k", text) == 2
        assert shell.out == ""
        assert "k" in shell.err


@pytest.mark.parametrize(
    "target",
    ["cli_search:search", "cli_search:make()", "cli_search:Box.inner", "cli_search:Retriever()",
     "cli_search:Box.Deep.make()", "cli_search.py:search", "./cli_search.py:make()"],
)  # fmt: skip
def test_a_retriever_is_named_in_many_ways(folder: Path, shell: Shell, target: str) -> None:
    assert shell.run(target, "--k", "2", "--format", "json") == 0
    assert json.loads(shell.out)["summary"]["recall@2"]["mean"] == 0.25


@pytest.mark.parametrize(
    ("target", "phrase"),
    [
        ("cli_search", "write MODULE:RETRIEVER"),
        ("cli_search:", "write MODULE:RETRIEVER"),
        (":search", "write MODULE:RETRIEVER"),
        ("", "write MODULE:RETRIEVER"),
        ("no_such_module:search", "no_such_module"),
        ("cli_search.sub:search", "cli_search"),
        (".relative:search", "relative"),
        ("no_such_file.py:search", "no such file"),
        ("cli_search:nope", "there is no 'nope'; the module has"),
        ("cli_search:Box.nope", "there is no 'nope'"),
        ("cli_search:number()", "a int, no function"),
        ("cli_search:make(1)", "there is no 'make(1)'"),
        ("cli_search:()", "there is no ''"),
        ("cli_search:fail()", "ValueError: \\x1b[31m"),
        ("cli_search:leave()", "it called sys.exit(0)"),
        ("cli_search:broken()", "TypeError"),
        ("cli_search:nothing", "cannot ask NoneType"),
        ("cli_search:number", "cannot ask int"),
        ("cli_search:Retriever", "pass an instance"),
        ("leaves:search", "it called sys.exit(0)"),
        ("leaves.py:search", "it called sys.exit(0)"),
        ("raises:search", "RuntimeError: no key"),
        ("no_syntax:search", "SyntaxError"),
        ("needs:search", "No module named 'not_installed_here'"),
    ],
)
def test_what_cannot_be_loaded_is_exit_code_3_and_says_why(
    folder: Path, shell: Shell, target: str, phrase: str
) -> None:
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "raises.py").write_text("raise RuntimeError('no key')\n")
    (folder / "no_syntax.py").write_text("def (:\n")
    (folder / "needs.py").write_text("import not_installed_here\n")
    assert shell.run(target) == 3
    assert shell.out == ""
    assert phrase in shell.err


def test_a_file_sees_its_neighbours_and_replaces_no_module(folder: Path, shell: Shell) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "cli_neighbour.py").write_text("def search(text):\n    return ['a']\n")
    (inner / "json.py").write_text("from cli_neighbour import search\n")
    assert shell.run("inner/json.py:search", "--k", "1", "--format", "json") == 0
    assert json.loads(shell.out)["summary"]["recall@1"]["mean"] == 0.25
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("bogus",), "bogus"),
        (("score",), "Missing argument"),
        (("score", "run.jsonl"), "Missing argument"),
        (("score", "run.jsonl", "labels.jsonl", "more"), "unexpected extra argument"),
        (("score", "run.jsonl", "labels.jsonl", "--nope"), "--nope"),
        (("score", "run.jsonl", "labels.jsonl", "--format", "html"), "html"),
        (("score", "run.jsonl", "labels.jsonl", "--relevance-level", "0"), "relevance_level"),
        (("score", "run.jsonl", "labels.jsonl", "--relevance-level", "x"), "relevance-level"),
        (("score", "run.jsonl", "labels.jsonl", "--match", "id"), "pass a matcher"),
        (("score", "run.jsonl", "labels.jsonl", "--id-key", "x"), "--match id"),
        (("score", "run.jsonl", "labels.jsonl", "--report", "no/r.json"), "no folder 'no'"),
        (("score", "run.jsonl", "no.jsonl"), "no.jsonl"),
        (("score", "run.jsonl", "run.jsonl"), "load_run"),
        (("score", "labels.jsonl", "labels.jsonl"), "load_dataset"),
        (("score", "run.txt", "labels.jsonl"), "known endings"),
        (("score", ".", "labels.jsonl"), "known endings"),
        (("run", "cli_search:search"), "--dataset"),
        ((*COMMANDS["run"], "--max-concurrency", "0"), "max_concurrency"),
        ((*COMMANDS["run"], "--timeout-s", "-1"), "timeout_s"),
        ((*COMMANDS["run"], "--retries", "-1"), "retries"),
        ((*COMMANDS["run"], "--save-run", "out.txt"), "known endings"),
        ((*COMMANDS["run"], "--save-run", "no/out.jsonl"), "no folder 'no'"),
        ((*COMMANDS["run"], "--report", "no/r.json"), "no folder 'no'"),
        (("demo", "--k", "0"), "k must be"),
        (("eval", "--k", "1"), "--k"),
    ],
)
def test_bad_arguments_and_input_are_exit_code_2(
    folder: Path, shell: Shell, arguments: tuple[str, ...], phrase: str
) -> None:
    assert shell(*arguments) == 2
    assert shell.out == ""
    assert phrase in shell.err


def test_a_path_that_cannot_be_written_is_refused_before_anything_is_retrieved(
    folder: Path, shell: Shell
) -> None:
    for option, path in (("--save-run", "o.txt"), ("--report", "no/r.json")):
        assert shell.run("cli_search:search", option, path) == 2
        assert "noise" not in shell.err
    (folder / "there.jsonl").mkdir()
    for option in ("--save-run", "--report"):
        assert shell.run("cli_search:search", option, "there.jsonl") == 2
        assert "there.jsonl is a folder" in shell.err
        assert "noise" not in shell.err


def test_hostile_labels_are_named_harmlessly(folder: Path, shell: Shell) -> None:
    (folder / "bad.jsonl").write_text(
        json.dumps({"text": HOSTILE, HOSTILE: 1}) + "\n" + HOSTILE.split("\n", maxsplit=1)[0]
    )
    assert shell("score", "run.jsonl", "bad.jsonl") == 2
    assert "line 1" in shell.err
    assert "line 2" in shell.err
    assert shell(HOSTILE) == 2
    assert shell("score", "run.jsonl", HOSTILE) == 2


@pytest.mark.parametrize("layout", ["table", "json", "markdown"])
def test_a_run_that_measured_nothing_is_exit_code_4_with_its_document(
    folder: Path, shell: Shell, layout: str
) -> None:
    assert shell.run("cli_search:broken", "--format", layout, "--retries", "0") == 4
    assert "nothing could be measured" in shell.err
    if layout == "json":
        assert json.loads(shell.out)["summary"]["recall@1"]["errored"] == 2
    assert shell.out
    assert shell.run("cli_search:quit", "--format", layout, "--max-concurrency", "1") == 4
    assert shell.out
    assert shell.run("cli_search:broken", "--on-error", "zero", "--retries", "0") == 4
    assert shell.run("cli_search:broken", "--on-error", "raise", "--retries", "0") == 4
    assert shell.out == ""
    (folder / "empty.jsonl").write_text("")
    assert shell("score", "run.jsonl", "empty.jsonl") == 4
    assert shell("score", "empty.jsonl", "labels.jsonl") == 0  # absent queries retrieved nothing


def test_a_defect_of_the_program_is_no_missed_gate(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkrecall.cli.app.load_dataset", lambda path: path.no_such_name)
    with pytest.raises(SystemExit) as caught:
        main(list(COMMANDS["score"]))
    assert caught.value.code == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no_such_name" in shown.err


def test_a_saved_run_scores_like_the_run_itself(folder: Path, shell: Shell) -> None:
    assert shell.run("cli_search:search", "--save-run", "s.jsonl", "--format", "json") == 0
    first = json.loads(shell.out)
    assert shell("score", "s.jsonl", "labels.jsonl", "--format", "json") == 0
    assert json.loads(shell.out) == first
    for options in (
        ("--match", "exact"), ("--match", "normalized"), ("--dedupe",), ("--exclude-self",),
        ("--no-relevant", "mlflow"), ("--on-error", "zero"), ("--relevance-level", "1"),
    ):  # fmt: skip
        assert shell("score", "s.jsonl", "labels.jsonl", "--format", "json", *options) == 0
        assert json.loads(shell.out)["summary"]["recall@3"]["scored"] == 2


def test_help_and_version_are_documents_and_no_command_is_not(shell: Shell) -> None:
    assert (shell("--version"), shell.out, shell.err) == (0, f"{__version__}\n", "")
    for arguments in (("--help",), ("run", "--help"), ("score", "--help"), ("eval", "--help")):
        assert shell(*arguments) == 0
        assert "Usage: chunkrecall" in shell.out
    assert (shell(), shell.out) == (2, "")
    assert "Usage" in shell.err


class TestEval:
    @pytest.fixture
    def ask(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Any:
        def ask(payload: Any) -> int:
            raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
            return shell("eval")

        return ask

    def test_either_spelling_of_the_configuration_counts(self, ask: Any, shell: Shell) -> None:
        for name in ("eval_config", "evalConfig"):
            payload = {"hypothesis": '["x", "a"]', "reference": '["a"]', name: {"k": 1}}
            assert ask(payload) == 0
            assert json.loads(shell.out)["score"] == 0.0
        both = {**payload, "eval_config": {"k": 2}, "eval_name": "recall_at_k"}
        assert (ask(both), shell.out) == (2, "")
        assert "mean the same" in shell.err
        assert ask({**payload, "eval_config": None, "evalConfig": {"k": 2}}) == 0
        assert json.loads(shell.out)["score"] == 1.0

    def test_a_batch_gives_a_list_and_hostile_texts_are_ascii(self, ask: Any, shell: Shell) -> None:
        texts = json.dumps(["\x1b[31m", "\u202e", "\ud800"])
        assert ask({"hypothesis": [texts, "[]"], "reference": [texts, "[]"]}) == 0
        rows = json.loads(shell.out)
        assert [row["status"] for row in rows] == ["completed", "undefined"]
        assert shell.out.isascii()
        assert shell.out.count("\n") == 1
        assert ask(b'\xef\xbb\xbf{"hypothesis": "[]", "reference": "[\\"a\\"]"}') == 0
        assert json.loads(shell.out)["score"] == 0.0

    @pytest.mark.parametrize("reference", ["[]", ["[]", "[]"], []])
    def test_undefined_alone_is_exit_code_4_with_its_document(
        self, ask: Any, shell: Shell, reference: Any
    ) -> None:
        assert ask({"hypothesis": reference, "reference": reference}) == 4
        rows = json.loads(shell.out)
        for row in rows if isinstance(rows, list) else [rows]:
            assert (row["status"], row["score"]) == ("undefined", None)

    @pytest.mark.parametrize(
        ("payload", "phrase"),
        [
            (b"", "no JSON"),
            (b"{", "no JSON"),
            (b"\xff", "no JSON"),
            (b"[" * 100_000, "no JSON"),
            (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
            ([], "must be a JSON object, got list"),
            ("x", "must be a JSON object, got str"),
            (None, "must be a JSON object, got NoneType"),
            ({}, '"hypothesis" is missing'),
            ({"hypothesis": "[]"}, '"reference" is missing'),
            ({"hypothesis": "[]", "reference": "[]", HOSTILE: 1}, "unknown keys"),
            ({"hypothesis": ["a"], "reference": ["[]"]}, "hypothesis"),
            ({"hypothesis": "[1]", "reference": '["a"]'}, "hypothesis"),
            ({"hypothesis": None, "reference": "[]"}, "hypothesis"),
            ({"hypothesis": "[]", "reference": "[]", "eval_config": {"K": 1}}, "'k'"),
            ({"hypothesis": "[]", "reference": "[]", "eval_config": {"k": 0}}, "k must"),
            ({"hypothesis": "[]", "reference": "[]", "eval_config": []}, "eval_config"),
            ({"hypothesis": "[]", "reference": "[]", "eval_name": "recal"}, "recall_at_k"),
            ({"hypothesis": "[]", "reference": "[]", "eval_name": 5}, "unknown template 5"),
        ],
    )
    def test_what_cannot_be_read_is_exit_code_2_and_no_document(
        self, ask: Any, shell: Shell, payload: Any, phrase: str
    ) -> None:
        assert ask(payload) == 2
        assert shell.out == ""
        assert phrase in shell.err


def test_the_module_is_the_same_program_to_the_last_byte(folder: Path, shell: Shell) -> None:
    def process(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "chunkrecall", *arguments]
        return subprocess.run(command, capture_output=True, text=True, input=given, check=False)

    arguments = (*COMMANDS["run"], "--format", "json")
    done = process(*arguments)
    assert done.returncode == shell(*arguments) == 0
    assert json.loads(done.stdout)["summary"] == json.loads(shell.out)["summary"]
    done = process("eval", given='{"hypothesis": "[\\"a\\"]", "reference": "[\\"a\\"]"}')
    assert (done.returncode, json.loads(done.stdout)["score"]) == (0, 1.0)
    (folder / "leaves.py").write_text("import sys\nsys.exit()\n")
    done = process("run", "leaves:x", "--dataset", "labels.jsonl")
    assert (done.returncode, done.stdout) == (3, "")
