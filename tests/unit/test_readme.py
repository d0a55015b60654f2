"""The README does what it says: its blocks are run, and its tables are checked against the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from pathlib import Path

import pytest
import typer

import chunkrecall
from chunkrecall import Chunk, Label, Query, Ranking, Report, Run, save_dataset, save_run, score
from chunkrecall.cli import main
from chunkrecall.cli.app import app
from chunkrecall.retrieval import retrieve

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced block and the output that the README shows for it."""

    section: str
    language: str
    line: int
    source: str
    output: str | None


def blocks() -> list[Block]:
    """Every fenced block; a text block that directly follows another is that one's output."""
    found: list[Block] = []
    section, fence, start = "", None, 0
    previous_end = 0
    body: list[str] = []
    lines = TEXT.splitlines()
    for number, line in enumerate(lines, start=1):
        if fence is None and line.startswith("#"):
            section = line.lstrip("# ")
        elif fence is None and line.startswith("```"):
            fence, start, body = line[3:].strip(), number, []
        elif fence is not None and line == "```":
            source = "\n".join(body) + "\n"
            follows = found and not any(lines[previous_end : start - 1])
            if fence == "text" and follows and found[-1].output is None:
                last = found.pop()
                found.append(Block(last.section, last.language, last.line, last.source, source))
            else:
                found.append(Block(section, fence, start, source, None))
            fence, previous_end = None, number
        elif fence is not None:
            body.append(line)
    return found


BLOCKS = blocks()
PYTHON_SECTIONS = [
    (section, list(group))
    for section, group in groupby(
        [block for block in BLOCKS if block.language == "python"], key=lambda block: block.section
    )
]


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.mark.parametrize(
    "section", [blocks for _, blocks in PYTHON_SECTIONS], ids=[name for name, _ in PYTHON_SECTIONS]
)
def test_the_python_blocks_print_what_the_readme_shows(
    section: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in section:
        printed = StringIO()
        # Padded, so that a traceback names the line of the README.
        code = compile("\n" * block.line + block.source, str(README), "exec")
        with redirect_stdout(printed):
            exec(code, namespace)
        # LangSmith announces each experiment under a name it makes up.
        lines = [one for one in trimmed(printed.getvalue()) if not one.startswith("Starting eval")]
        assert lines == trimmed(block.output or "")


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "js"], ids=lambda block: block.section
)
def test_the_node_blocks_print_what_the_readme_shows(block: Block, tmp_path: Path) -> None:
    node = shutil.which("node")
    scripts = Path(sys.executable).parent
    if node is None or shutil.which("chunkrecall", path=str(scripts)) is None:
        pytest.skip("needs Node.js and the installed chunkrecall command")
    script = tmp_path / "readme.cjs"
    script.write_text(block.source, encoding="utf-8")
    done = subprocess.run(
        [node, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert trimmed(done.stdout) == trimmed(block.output or "")


def test_every_public_name_stands_in_the_api_table() -> None:
    # One error waits for the feature that will raise it.
    later = {"ComparisonError", "__version__"}
    named = set(re.findall(r"`(\w+)", section("Python API")))
    assert set(chunkrecall.__all__) - later <= named


def test_every_name_for_llama_index_stands_in_its_table() -> None:
    from chunkrecall import llama_index

    rows = table(section("Python API"), "`chunkrecall.llama_index`")
    listed = {name for names, *_ in rows for name in re.findall(r"`(\w+)", names)}
    assert listed == set(llama_index.__all__)


def test_every_command_and_option_stands_in_the_command_line_tables() -> None:
    root = typer.main.get_command(app)
    commands = {"": root, **root.commands}  # type: ignore[attr-defined]
    options = {
        option
        for command in commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option not in ("--help",)
    }
    text = section("Command line")
    assert set(re.findall(r"`(--[a-z-]+)`", text)) == options
    listed = {row[0].split("`")[1].split()[0] for row in table(text, "command")}
    assert listed == set(commands) - {""}


def test_the_options_are_listed_with_the_commands_that_take_them() -> None:
    root = typer.main.get_command(app)
    for names, of, *_ in table(section("Command line"), "option"):
        for option in re.findall(r"`(--[a-z-]+)`", names):
            takers = {
                name
                for name, command in root.commands.items()  # type: ignore[attr-defined]
                if any(option in parameter.opts for parameter in command.params)
            }
            assert set(re.findall(r"`(\w+)`", of)) == takers, option


EXITS = {
    0: ["score", "run.jsonl", "dataset.jsonl"],
    1: ["score", "run.jsonl", "dataset.jsonl", "--min-recall", "0.8@1"],
    2: ["score", "run.jsonl", "dataset.jsonl", "--match", "unknown"],
    3: ["run", "no_such_module:retriever", "--dataset", "dataset.jsonl"],
    4: ["score", "run.jsonl", "unjudged.jsonl"],
}


@pytest.mark.parametrize("code", EXITS)
def test_the_exit_codes_are_those_of_the_table(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_dataset({"q": ["a"]}, "dataset.jsonl")
    save_dataset({"q": None}, "unjudged.jsonl")
    save_run(Run(rankings=[Ranking(query_id="q")]), "run.jsonl")
    with pytest.raises(SystemExit) as exit_:
        main(EXITS[code])
    assert exit_.value.code == code
    listed = {int(row[0]) for row in table(section("Command line"), "exit code")}
    assert listed == set(EXITS)


def test_every_extra_stands_in_the_installation_table() -> None:
    import tomllib

    project = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(project["project"]["optional-dependencies"])
    listed = {row[0].strip("`") for row in table(section("Installation"), "extra")}
    assert listed == extras | {"none"}


def test_every_file_that_the_readme_links_to_is_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT):
        assert (README.parent / target).is_file(), target


# The scoring tables: each row is computed, with the arithmetic beside it.


def one(
    retrieved: str, relevant: list[object], *, query_id: str = "q", **options: object
) -> float | None:
    """The recall of one query whose chunk texts and ids are single letters or words."""
    chunks = [Chunk(text=word, chunk_id=word) for word in retrieved.split()]
    run = Run(rankings=[Ranking(query_id=query_id, chunks=chunks)])
    query = Query(query_id=query_id, text=query_id, relevant=relevant)
    report = score(run, [query], **options)  # type: ignore[arg-type]
    return next(iter(report.queries[0].recall.values()))


def failing(text: str) -> list[str]:
    raise RuntimeError(text)


def absent() -> float | None:
    report = score(Run(rankings=[]), {"q": ["a"]}, k=1)
    assert (report.queries[0].status, report.absent) == ("scored", 1)
    return report.queries[0].recall["recall@1"]


def not_run() -> float | None:
    report = score(Run(rankings=[], complete=False), {"q": ["a"]}, k=1)
    assert report.queries[0].status == "not_run"
    return report.queries[0].recall["recall@1"]


def errored() -> float | None:
    report = score(retrieve(failing, {"q": ["a"]}), {"q": ["a"]}, k=1)
    assert report.queries[0].status == "errored"
    return report.queries[0].recall["recall@1"]


def undefined() -> float | None:
    report = score(Run(rankings=[]), {"q": []}, k=1)
    assert report.queries[0].status == "undefined"
    return report.queries[0].recall["recall@1"]


def unlabelled() -> str:
    report = score(Run(rankings=[Ranking(query_id="other")]), {"q": ["a"]}, k=1)
    assert (report.summary["recall@1"].unlabelled, len(report.queries)) == (1, 1)
    return "–"


def by_score() -> float | None:
    chunks = [Chunk(text="b", score=0.1), Chunk(text="a", score=0.9)]
    run = Run(rankings=[Ranking(query_id="q", chunks=chunks)])
    return score(run, {"q": ["a"]}, k=1).mean(1)


CASES: dict[str, Callable[[], object]] = {
    "repeated chunk": lambda: one("a a b", ["a", "b"], k=2),
    "`dedupe=True`": lambda: one("a a b", ["a", "b"], k=2, dedupe=True),
    "repeated label": lambda: one("a", ["a", "a", "b"], k=1),
    "list shorter than k": lambda: one("a", ["a", "b"], k=5),
    "order": by_score,
    "`exclude_self=True`": lambda: one("q1 a", ["a"], query_id="q1", k=1, exclude_self=True),
    "`k=None`": lambda: one("x x x a", ["a"], k=None),
    "group": lambda: one("b", [["a", "b"], "c"], k=1),
    "grades": lambda: one(
        "a", [Label(text="a", grade=1), Label(text="b", grade=2)], k=1, relevance_level=2
    ),
    "nothing retrieved": lambda: one("", ["a"], k=1),
    "undefined": undefined,
    "errored": errored,
    "not run": not_run,
    "absent": absent,
    "unlabelled": unlabelled,
}


def two() -> Report:
    """One query with its only label found, one with one of three."""
    run = retrieve(lambda text: ["a"], {"one": ["a"], "two": ["a", "b", "c"]})
    return score(run, {"one": ["a"], "two": ["a", "b", "c"]}, k=1)


def with_an_error(**options: object) -> Report:
    dataset = {"a": ["a"], "b": ["b"]}
    run = retrieve(lambda text: ["a"] if text == "a" else failing(text), dataset)
    return score(run, dataset, k=1, **options)  # type: ignore[arg-type]


def with_nothing_relevant(policy: str) -> float | None:
    dataset = {"a": ["a"], "b": []}
    return score(retrieve(lambda text: ["a"], dataset), dataset, k=1, no_relevant=policy).mean(1)  # type: ignore[arg-type]


def bounds() -> str:
    summary = with_an_error().summary["recall@1"]
    return f"{summary.bound_low} … {summary.bound_high}"


FIGURES: dict[str, Callable[[], object]] = {
    "mean": lambda: round(two().mean(1) or 0, 3),  # (1 + 1/3) / 2
    "pooled": lambda: two().summary["recall@1"].pooled,  # 2 / 4
    "hit": lambda: two().summary["hit@1"].mean,
    "complete": lambda: two().summary["complete@1"].mean,
    "ceiling": lambda: (
        score(Run(rankings=[]), {"q": ["a", "b", "c", "d"]}, k=1).summary["recall@1"].ceiling
    ),
    "bounds": bounds,
    '`on_error="zero"`': lambda: with_an_error(on_error="zero").mean(1),
    '`no_relevant="zero"`': lambda: with_nothing_relevant("zero"),
    '`no_relevant="one"`': lambda: with_nothing_relevant("one"),
    '`no_relevant="mlflow"`': lambda: with_nothing_relevant("mlflow"),
}


def section(name: str) -> str:
    """The text of the section with this heading, up to the next of the same level."""
    after = TEXT.split(f"\n## {name}\n", 1)[1]
    return after.split("\n## ", 1)[0]


def table(text: str, first_heading: str) -> list[list[str]]:
    """The body rows of the table whose first column has this heading."""
    lines = text.split(f"\n| {first_heading} |", 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize(
    ("heading", "claims"), [("case", CASES), ("figure", FIGURES)], ids=["cases", "figures"]
)
def test_the_scoring_tables_have_the_right_numbers(
    heading: str, claims: dict[str, Callable[[], object]]
) -> None:
    shown = {row[0]: row[-1] for row in table(section("What counts"), heading)}
    assert shown == {name: str(claim()) for name, claim in claims.items()}


def test_the_demo_prints_every_line_of_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    picture = next(block for block in BLOCKS if block.section == "The demo")
    done = subprocess.run(
        [sys.executable, "-m", "chunkrecall", "demo"],
        capture_output=True,
        cwd=tmp_path,
        check=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
    )
    printed = {*trimmed(done.stdout), *trimmed(done.stderr), "…", ""}
    assert [line for line in trimmed(picture.source) if line not in printed] == []


def test_pytest_prints_every_line_of_its_picture(tmp_path: Path) -> None:
    source, picture = (block.source for block in BLOCKS if block.section == "In pytest")
    (tmp_path / "test_search.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        cwd=tmp_path,
        check=False,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "80", "PYTEST_ADDOPTS": "", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 1, done.stdout
    printed = trimmed(done.stdout)
    assert [line for line in trimmed(picture) if line not in printed] == []


def test_the_causes_of_a_miss_are_those_of_the_table_in_their_order() -> None:
    from chunkrecall.diagnosis import CAUSES

    rows = table(section("Why was it missed?"), "cause")
    assert {row[0].strip("`"): row[1] for row in rows} == dict(CAUSES)
    assert [row[0].strip("`") for row in rows] == list(CAUSES)
