"""A run that was killed goes on where it stopped, with nothing lost and nothing asked twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chunkrecall import (
    Chunk,
    Dataset,
    DatasetError,
    Query,
    Report,
    aevaluate_retriever,
    evaluate_retriever,
    retrieve,
)

LABELS = {f"q{i}": [f"right {i}"] for i in range(20)}


class Search:
    """Finds every second label, and counts how often it is asked what."""

    def __init__(self, failing: tuple[str, ...] = (), interrupt_at: int | None = None) -> None:
        self.asked: list[str] = []
        self.failing = failing
        self.interrupt_at = interrupt_at

    def __call__(self, text: str) -> list[Chunk]:
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        self.asked.append(text)
        if text in self.failing:
            raise PermissionError("no key")
        number = int(text[1:])
        found = f"right {number}" if number % 2 else "wrong"
        return [
            Chunk(text=found, chunk_id=f"c{number}", score=0.1 * number, metadata={"n": number})
        ]


def told(report: Report) -> dict[str, Any]:
    """Everything but latencies, and the note that some of it was there already."""
    row = report.to_dict()
    for query in row["queries"]:
        query["latency_s"] = None
    row["notes"] = [note for note in row["notes"] if "checkpoint" not in note]
    return row


def run(search: Search, path: Path | None, **options: Any) -> Report:
    return evaluate_retriever(search, LABELS, k=1, progress=False, checkpoint=path, **options)


def test_a_finished_run_is_not_asked_again_and_gives_the_same_report(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    plain = run(Search(), None)
    first = run(Search(), path)
    again = Search()
    second = run(again, path)
    assert again.asked == []
    assert told(first) == told(plain)
    assert told(second) == told(plain)
    assert any("20 of 20 queries were not asked again" in note for note in second.notes)


@pytest.mark.parametrize("kept", [0, 1, 7, 20])
def test_exactly_the_missing_queries_are_asked_and_a_torn_line_is_dropped(
    tmp_path: Path, kept: int
) -> None:
    path = tmp_path / "run.ckpt"
    plain = run(Search(), path, max_concurrency=1)
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[kept + 1][:-1] if kept < 20 else b'{"query_id": "q'
    path.write_bytes(b"".join(lines[: kept + 1]) + torn)  # whole but for its newline
    again = Search()
    assert told(run(again, path)) == told(plain)
    assert sorted(again.asked) == sorted(list(LABELS)[kept:])
    assert len(path.read_bytes().splitlines()) == 21


def test_a_file_torn_in_its_first_line_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    path.write_bytes(b'{"chunkrecall_check')
    assert told(run(Search(), path)) == told(run(Search(), None))
    assert run(Search(), path).mean(1) == 0.5


def test_the_async_twin_goes_on_from_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    run(Search(), path, max_concurrency=1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:8]))
    again = Search()
    report = asyncio.run(aevaluate_retriever(again, LABELS, k=1, progress=False, checkpoint=path))
    assert len(again.asked) == 13
    assert told(report) == told(run(Search(), None))


def test_failures_stay_until_they_are_to_be_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    failing = Search(failing=("q3", "q5"))
    assert run(failing, path).summary["recall@1"].errored == 2
    again = Search()
    assert run(again, path).summary["recall@1"].errored == 2
    assert again.asked == []
    report = run(again, path, only="errored")
    assert sorted(again.asked) == ["q3", "q5"]
    assert told(report) == told(run(Search(), None))
    with pytest.raises(ValueError, match="needs the checkpoint"):
        run(Search(), None, only="errored")
    with pytest.raises(ValueError, match="only must be"):
        run(Search(), path, only="all")


def test_F135_a_checkpoint_of_another_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    run(Search(), path)
    before = path.read_bytes()
    with pytest.raises(DatasetError, match="its queries is"):
        evaluate_retriever(Search(), {"other": ["a"]}, k=1, progress=False, checkpoint=path)
    with pytest.raises(DatasetError, match="its depth is"):
        evaluate_retriever(Search(), LABELS, k=7, progress=False, checkpoint=path)
    with pytest.raises(DatasetError, match="its retriever is"):
        evaluate_retriever(lambda text: [text], LABELS, k=1, progress=False, checkpoint=path)
    relabelled = {text: ["something else"] for text in LABELS}
    report = evaluate_retriever(Search(), relabelled, k=1, progress=False, checkpoint=path)
    assert report.mean(1) == 0.0  # labels have no part in what is retrieved
    assert path.read_bytes() == before
    for content in (b"[1]\n", b"no json\n", before + b'{"query_id": 5}\n'):
        path.write_bytes(content)
        with pytest.raises(DatasetError):
            run(Search(), path)
        assert path.read_bytes() == content
    with pytest.raises(FileNotFoundError):
        run(Search(), tmp_path / "no" / "run.ckpt")


def test_F093_an_interrupt_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"

    with pytest.raises(KeyboardInterrupt):
        run(Search(interrupt_at=12), path, max_concurrency=1)
    again = Search()
    run(again, path)
    assert len(again.asked) == 8


PROGRAM = """
import json, os, sys, time
from chunkrecall import Dataset, Query, evaluate_retriever

calls = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def search(text):
    os.write(calls, text.encode() + b"\\n")
    time.sleep(0.002)
    number = int(text[1:])
    return [f"right {number}" if number % 3 else "wrong", "x" * 3000]

labels = Dataset([Query(query_id=f"id{i}", text=f"q{i}", relevant=[f"right {i}"]) for i in range(1000)])
report = evaluate_retriever(search, labels, k=1, progress=False, checkpoint=sys.argv[1], max_concurrency=8)
report.save(sys.argv[3])
"""
KILLS = 30


@pytest.mark.slow
def test_F133_thirty_kills_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    path, calls, out = (tmp_path / name for name in ("run.ckpt", "calls", "report.json"))
    command = [sys.executable, str(tmp_path / "program.py"), str(path), str(calls), str(out)]
    seed = random.Random(7)
    kills = 0
    for _ in range(KILLS):
        started = path.stat().st_size if path.exists() else 0
        process = subprocess.Popen(command)
        while process.poll() is None and (not path.exists() or path.stat().st_size <= started):
            time.sleep(0.002)
        time.sleep(seed.random() * 0.012)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if out.exists():
            break
    assert subprocess.run(command, check=False).returncode == 0
    assert kills >= 5
    report = Report.load(out)
    plain = evaluate_retriever(
        lambda text: [
            f"right {text[1:]}" if int(text[1:]) % 3 else "wrong",
            "x" * 3000,
        ],
        Dataset(
            [Query(query_id=f"id{i}", text=f"q{i}", relevant=[f"right {i}"]) for i in range(1000)]
        ),
        k=1,
        progress=False,
        name=report.name,
    )
    assert told(report) == told(plain)
    asked = calls.read_text().split()
    assert len(set(asked)) == 1000
    assert len(asked) <= 1000 + kills * 8  # those in flight at each kill
    assert len(path.read_bytes().splitlines()) == 1001


def test_a_run_can_be_checkpointed_without_scoring(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    whole = retrieve(Search(), LABELS, progress=False, checkpoint=path)
    again = retrieve(Search(), LABELS, progress=False, checkpoint=path)
    assert [one.texts for one in again.rankings] == [one.texts for one in whole.rankings]
    header = json.loads(path.read_text().splitlines()[0])
    assert header["chunkrecall_checkpoint"] == 1
