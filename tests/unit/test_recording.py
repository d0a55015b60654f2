"""The recorder without any framework: what nests in what, and what is kept."""

from __future__ import annotations

import gc
import sys

import pytest

from chunkrecall import Chunk, Dataset, Query
from chunkrecall.recording import Recorder
from chunkrecall.records import Chunks

LABELS = Dataset(
    [
        Query(query_id="q1", text="first", relevant=["a", "b"]),
        Query(query_id="q2", text="second", relevant=["c"]),
    ]
)


def chunks(*texts: str) -> Chunks:
    return Chunks.of([Chunk(text=text) for text in texts])


def recall(recorder: Recorder, query_id: str) -> float | None:
    rows = {row.query_id: row for row in recorder.report().queries}
    return rows[query_id].recall["recall@2"]


def test_a_second_start_or_end_of_one_retrieval_is_ignored() -> None:
    recorder = Recorder(LABELS, 2)
    assert recorder.start(1, name="R", query_text="first") is not None
    assert recorder.start(1, name="R", query_text="first") is None
    assert recorder.end(1, chunks("a")) == "q1"
    assert recorder.end(1, chunks("b")) is None
    assert recorder.start(1, name="R", query_text="first") is None
    assert recorder.report().queries[0].calls == ()
    assert recorder.fail(2, ValueError("never started")) is False


def test_what_ran_in_a_retrieval_that_never_ended_was_outermost() -> None:
    recorder = Recorder(LABELS, 2)
    dead = recorder.start(1, name="Outer", query_text="first")
    recorder.start(2, name="Inner", query_text="first", enclosing=dead)
    assert recorder.end(2, chunks("a", "x")) is None
    assert recall(recorder, "q1") == 0.5
    assert any("never ended" in note for note in recorder.report().notes)


def test_what_ran_in_a_retrieval_that_ended_is_its_stage() -> None:
    recorder = Recorder(LABELS, 2)
    outer = recorder.start(1, name="Outer", query_text="first")
    for key, text in ((2, "a"), (3, "b")):
        recorder.start(key, name="Inner", query_text="rewritten", enclosing=outer)
        recorder.end(key, chunks(text))
    assert recorder.end(1, chunks("a", "x")) == "q1"
    assert recall(recorder, "q1") == 0.5
    assert list(recorder.stages) == ["Inner", "Inner#2", "Outer", "final"]
    assert [(one.label, one.stage) for one in recorder.lost] == [("b", "Outer")]
    assert recorder.report().unlabelled == 0


def test_an_inner_retrieval_that_failed_is_no_stage() -> None:
    recorder = Recorder(LABELS, 2)
    outer = recorder.start(1, name="Outer", query_text="first")
    recorder.start(2, name="Inner", query_text="first", enclosing=outer, is_inner=True)
    assert recorder.fail(2, ConnectionError("down"))
    recorder.end(1, chunks("a", "b"))
    assert list(recorder.stages) == ["final"]
    assert recall(recorder, "q1") == 1.0


def test_steps_chain_up_and_each_loss_is_told_once() -> None:
    recorder = Recorder(LABELS, 2)
    recorder.start(1, name="R", query_text="first")
    recorder.end(1, chunks("a", "b", "x"))
    recorder.step("q1", "rerank", chunks("a", "x"))
    recorder.step("q1", "rerank", chunks("x"))
    recorder.step("q2", "rerank", chunks("c"))  # q2 was not retrieved
    assert recorder.story("q1") == (
        "R@3 1.000 → rerank@2 0.500 → rerank#2@1 0.000: 'a' lost at rerank#2, 'b' lost at rerank"
    )
    assert recorder.report().queries[1].status == "not_run"
    with pytest.raises(KeyError):
        recorder.story("q2")


def test_a_recorder_that_saw_nothing_says_so() -> None:
    (note,) = [n for n in Recorder(LABELS).report().notes if "no retriever events" in n]
    assert "any of 2 labelled queries" in note


def test_what_is_kept_is_the_same_after_a_hundred_thousand_retrievals() -> None:
    recorder = Recorder(LABELS, 2)
    found = [chunks("a", "x"), chunks("c")]

    def retrieve(start: int, stop: int) -> None:
        for key in range(start, stop):
            recorder.start(key, name="R", query_text=("first", "second", "neither")[key % 3])
            if key % 10:
                recorder.end(key, found[key % 2])

    retrieve(0, 20_000)  # until every buffer has reached its bound
    gc.collect()
    before = sys.getallocatedblocks()
    retrieve(20_000, 100_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1_000
    assert recorder.report().unlabelled == 30_000
