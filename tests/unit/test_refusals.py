"""Bad input to records, matchers, the kernel and scoring: clear errors, nothing guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from chunkrecall import (
    Chunk,
    ChunkId,
    Dataset,
    DatasetError,
    ExactText,
    Label,
    NormalizedText,
    Query,
    Ranking,
    Run,
    recall_at_k,
    recall_at_ks,
    score,
)
from chunkrecall.metric import check_ks


@pytest.mark.parametrize(
    ("fields", "error", "phrase"),
    [
        ({"relevant": "abc"}, TypeError, "relevant must be a list"),
        ({"relevant": b"abc"}, TypeError, "relevant must be a list"),
        ({"relevant": {"a": 1}}, TypeError, "relevant must be a list"),
        ({"relevant": pd.DataFrame({"a": ["b"]})}, TypeError, "relevant must be a list"),
        ({"relevant": [3]}, TypeError, r"relevant\[0\]"),
        ({"relevant": [None]}, TypeError, r"relevant\[0\]"),
        ({"relevant": [["a", ["b"]]]}, ValueError, "another group"),
        ({"relevant": [[]]}, ValueError, "empty"),
        ({"relevant": [""]}, ValueError, "blank"),
        ({"relevant_ids": "abc"}, TypeError, "relevant_ids must be a list"),
        ({"relevant_ids": [1]}, TypeError, r"relevant_ids\[0\]"),
        ({"relevant_ids": [" "]}, ValueError, "blank"),
        ({"tags": "abc"}, TypeError, "tags must be a list"),
        ({"text": 3}, TypeError, "text must be a string"),
        ({"text": {"query": "x"}}, TypeError, "text must be a string"),
        ({"query_id": ""}, ValueError, "query_id"),
        ({"query_id": 3}, TypeError, "query_id"),
        (
            {"relevant": [Label(text="a"), Label(text="a", grade=2)]},
            DatasetError,
            "grades 1 and 2",
        ),
        (
            {"relevant": [Label(text="a", grade=2), ["a", "b"]]},
            DatasetError,
            "grades 2 and 1",
        ),
    ],
)
def test_a_bad_query_is_refused(fields: dict[str, Any], error: Any, phrase: str) -> None:
    with pytest.raises(error, match=phrase):
        Query(**{"query_id": "q", "text": "t", **fields})


@pytest.mark.parametrize(
    "fields",
    [{}, {"text": ""}, {"text": 3}, {"chunk_id": " "}, {"text": "a", "extra": 1}, {"grade": 2}],
)
def test_a_bad_label_is_a_value_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="."):
        Label(**fields)


def test_judged_and_not_judged_stay_apart() -> None:
    assert Query(query_id="q", text="t").relevant is None
    assert Query(query_id="q", text="t", relevant=[]).relevant == ()
    assert Query(query_id="q", text="t", relevant_ids=[]).relevant == ()
    both = Query(query_id="q", text="t", relevant=["a"], relevant_ids=["1"])
    assert both.relevant == (Label(text="a"), Label(chunk_id="1"))


def test_a_dataset_is_a_collection_found_by_id() -> None:
    queries = [Query(query_id=str(i), text=f"t{i}") for i in range(3)]
    dataset = Dataset(queries)
    assert (len(dataset), list(dataset), dataset["1"]) == (3, queries, queries[1])
    assert "2" in dataset
    assert "9" not in dataset
    with pytest.raises(KeyError, match="'9'"):
        dataset["9"]
    with pytest.raises(DatasetError, match="taken by query 0"):
        Dataset([queries[0], queries[0]])
    with pytest.raises(TypeError, match="from_records"):
        Dataset([{"text": "a"}])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="frozen"):
        dataset.name = "x"


def test_records_are_read_by_named_keys_and_all_bad_ones_are_named() -> None:
    dataset = Dataset.from_records(
        [{"q": "one", "gold": ["a"]}, {"q": "two"}], query="q", relevant="gold", name="n"
    )
    assert [query.query_id for query in dataset] == ["one", "two"]
    assert dataset["two"].relevant is None
    with pytest.raises(DatasetError) as caught:
        Dataset.from_records([{"text": "a", "relevant": "x"}, 3, {"query": "b"}, {"text": "a"}])  # type: ignore[list-item]
    assert len(caught.value.problems) == 3


def test_the_fingerprint_sees_labels_and_not_names_or_order() -> None:
    one = Query(query_id="1", text="a", relevant=["x", "y"], metadata={"m": 1})
    two = Query(query_id="2", text="b", relevant=[])
    base = Dataset([one, two], name="n").fingerprint
    turned = Query(query_id="1", text="a", relevant=["y", "x", "x"])
    assert Dataset([two, turned]).fingerprint == base
    for changed in (
        Query(query_id="1", text="a", relevant=["x"]),
        Query(query_id="1", text="a", relevant=["xy"]),
        Query(query_id="1", text="a", relevant=[["x", "y"]]),
        Query(query_id="1", text="a", relevant=["x", Label(text="y", grade=2)]),
        Query(query_id="1", text="a", relevant=["x", "y"], tags=["t"]),
        Query(query_id="1", text="a"),
    ):
        assert Dataset([changed, two]).fingerprint != base


def test_chunks_are_made_when_they_are_looked_at_and_equal_their_kind() -> None:
    chunks = [Chunk(text="a", chunk_id="1", metadata={"source": "s"}), Chunk(text="b", score=0.5)]
    ranking = Ranking(query_id="q", chunks=chunks)
    assert ranking.chunks == chunks
    assert ranking.chunks[-1] == chunks[1]
    assert ranking.chunks[0:1] == (chunks[0],)
    assert ranking.texts == ("a", "b")
    assert [chunk.doc_id for chunk in ranking.chunks] == ["s", None]
    assert ranking == Ranking(query_id="q", chunks=tuple(chunks))
    assert ranking != Ranking(query_id="q", chunks=chunks[:1])
    with pytest.raises(IndexError):
        ranking.chunks[2]
    for bad in ("ab", [1], {"a": 1}):
        with pytest.raises(TypeError):
            Ranking(query_id="q", chunks=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text"):
        Chunk(text=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="chunk_id"):
        Chunk(text="a", chunk_id=1)  # type: ignore[arg-type]


def test_a_run_has_one_ranking_for_a_query() -> None:
    with pytest.raises(ValueError, match="more than one"):
        Run(rankings=[Ranking(query_id="q"), Ranking(query_id="q")])
    with pytest.raises(TypeError, match=r"rankings\[0\]"):
        Run(rankings=["q"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="load_run"):
        score("run.jsonl", {"q": ["a"]})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="load_dataset"):
        score(Run(), "labels.jsonl")  # type: ignore[arg-type]


def test_cutoffs_of_every_kind() -> None:
    assert check_ks([5, np.int64(1), None, 5]) == (1, 5, None)
    assert check_ks({3}) == (3,)
    assert check_ks(10**30) == (10**30,)
    for bad in ([], [0], np.bool_(True), np.float64(1.0), np.array([1.5]), [True], b"5", "1"):
        with pytest.raises(ValueError, match="k must"):
            check_ks(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("retrieved", "relevant", "error"),
    [
        (pd.DataFrame({"a": ["b"]}), ["a"], TypeError),
        (["a"], pd.DataFrame({"a": ["b"]}), TypeError),
        ("abc", ["a"], TypeError),
        (["a"], "abc", TypeError),
        (["a"], None, TypeError),
        ({"a"}, ["a"], TypeError),
        ([1], ["a"], TypeError),
        ([["a"]], ["a"], TypeError),
        (["a"], [1], TypeError),
        (["a"], [["a"]], TypeError),
        (["a"], [""], ValueError),
        (["a"], ["\u3000"], ValueError),
    ],
)
def test_the_kernel_refuses_what_is_no_list_of_strings(
    retrieved: Any, relevant: Any, error: Any
) -> None:
    with pytest.raises(error):
        recall_at_k(retrieved, relevant)
    with pytest.raises(error, match=r"\[1\]"):
        recall_at_ks([["a"], retrieved], [["a"], relevant], 1)


def test_the_kernel_takes_any_sequence_and_any_collection_of_labels() -> None:
    assert recall_at_k(("a", "b"), {"b"}, 2) == 1.0
    assert recall_at_k(iter(["a"]), (x for x in ["a"])) == 1.0  # type: ignore[arg-type]
    assert recall_at_k(["a"], []) is None
    assert recall_at_ks([["a"], ("b",)], [["a"], []], (1, None)) == {
        1: [1.0, None],
        None: [1.0, None],
    }
    with pytest.raises(ValueError, match="2 queries and relevant_lists has 1"):
        recall_at_ks([["a"], ["b"]], [["a"]], 1)


class Keyless:
    """A matcher of the user's own: the chunk begins with the label."""

    def __init__(self, ranks: Any = None) -> None:
        self.ranks = ranks

    def describe(self) -> str:
        return "begins with"

    def first_ranks(self, labels: Any, chunks: Any) -> tuple[int | None, ...]:
        if self.ranks is not None and len(chunks):
            return self.ranks
        return tuple(
            next((i for i, c in enumerate(chunks, 1) if c.text.startswith(label.text)), None)
            for label in labels
        )


def scored(matcher: Any, relevant: Any, texts: list[str], **options: Any) -> Any:
    dataset = Dataset([Query(query_id="q", text="t", relevant=relevant)])
    run = Run(rankings=[Ranking(query_id="q", chunks=[Chunk(text=t) for t in texts])])
    return score(run, dataset, k=(1, None), matcher=matcher, **options)


def test_a_matcher_of_the_users_own_scores_labels_and_groups() -> None:
    report = scored(Keyless(), ["ab", "ab", ["zz", "cd"]], ["abc", "cde"])
    assert (report.mean(1), report.mean(None)) == (0.5, 1.0)
    assert report.summary["recall@1"].ceiling is None
    assert report.rules["matcher"] == "begins with"


@pytest.mark.parametrize("ranks", [(), (1, 2), (0,), (9,)])
def test_a_matcher_that_gives_impossible_ranks_is_told_so(ranks: Any) -> None:
    with pytest.raises(ValueError, match="begins with"):
        scored(Keyless(ranks), ["ab"], ["abc"])


def test_what_is_no_matcher_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write ExactText\(\)"):
        scored(ExactText, ["a"], ["a"])
    with pytest.raises(TypeError, match="describe"):
        scored("exact", ["a"], ["a"])
    with pytest.raises(ValueError, match="unicode"):
        NormalizedText(unicode="nfc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key"):
        ChunkId(3)  # type: ignore[arg-type]


def test_labels_that_the_matcher_cannot_read_are_all_named() -> None:
    dataset = Dataset(
        [Query(query_id=f"q{i}", text="t", relevant=["a"], relevant_ids=["1"]) for i in range(7)]
    )
    with pytest.raises(ValueError, match=r"'q0'.*\n.*'q1'[\s\S]*2 more") as caught:
        score(Run(), dataset)
    assert "Label(text=…, chunk_id=…)" in str(caught.value)


def test_a_label_blank_after_normalising_is_refused() -> None:
    with pytest.raises(ValueError, match="blank after normalising"):
        scored(NormalizedText(strip_invisible=True), ["\u200b"], ["a"])


def test_conflicting_grades_under_a_matcher_are_a_dataset_error() -> None:
    labels = [Label(text="a"), Label(text=" a", grade=2)]
    assert scored(ExactText(), labels, ["a"]).mean(None) == 0.5
    with pytest.raises(DatasetError, match="grades 1 and 2"):
        scored(NormalizedText(), labels, ["a"])


def test_groups_lose_members_below_the_level_vanish_and_merge() -> None:
    low = Label(text="low", grade=1)
    high = Label(text="high", grade=2)
    groups = [[low, high], [high], [low]]
    report = scored(None, groups, ["low", "high"], relevance_level=2)
    assert report.queries[0].labels == ("high",)
    assert (report.mean(1), report.mean(None)) == (0.0, 1.0)
    undefined = scored(None, [low], ["low"], relevance_level=2)
    assert undefined.queries[0].status == "undefined"
    assert "level 2" in undefined.queries[0].reason


def test_undefined_is_decided_before_errored() -> None:
    dataset = Dataset([Query(query_id="q", text="t", relevant=[])])
    run = Run(rankings=[Ranking(query_id="q", error="RuntimeError: x")])
    report = score(run, dataset, k=1)
    assert report.queries[0].status == "undefined"
    assert report.rejectable == 0


def test_retrievals_of_no_labelled_query_are_counted() -> None:
    run = Run(rankings=[Ranking(query_id="other", chunks=[Chunk(text="a")])])
    report = score(run, {"q": ["a"]}, k=1)
    one = report.summary["recall@1"]
    assert (one.unlabelled, one.total, one.scored) == (1, 2, 1)


def test_dedupe_takes_no_textless_chunk_for_a_repeat() -> None:
    report = scored(None, ["b"], ["", "", "a", "a", "b"], dedupe=True)
    assert report.queries[0].ranks == {"b": 4}


def test_without_texts_a_report_keeps_the_numbers() -> None:
    report = scored(None, ["a", "b"], ["a"], keep_texts=False)
    assert report.queries[0].retrieved == ()
    assert report.queries[0].retrieved_count == 1
    assert report.mean(None) == 0.5
    assert report.run is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"relevance_level": 0}, ValueError),
        ({"relevance_level": True}, TypeError),
        ({"relevance_level": "1"}, TypeError),
        ({"no_relevant": "skip"}, ValueError),
        ({"on_error": "skip"}, ValueError),
    ],
)
def test_bad_scoring_rules_are_refused(options: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        scored(None, ["a"], ["a"], **options)


def test_numbers_in_metadata_equal_no_label() -> None:
    chunk = Chunk(text="t", metadata={"id": 7, "ids": ["7"], "name": "7"})
    labels = Query(query_id="q", text="t", relevant_ids=["7"]).relevant or ()
    assert ChunkId("id").first_ranks(labels, [chunk]) == (None,)
    assert ChunkId("ids").first_ranks(labels, [chunk]) == (None,)
    assert ChunkId("name").first_ranks(labels, [chunk]) == (1,)
    assert ChunkId("name") == ChunkId("name")
    assert repr(ChunkId("name")) == "ChunkId('name')"


def test_ids_that_are_no_strings_are_noted_with_what_to_do() -> None:
    dataset = Dataset([Query(query_id="q", text="t", relevant_ids=["7"])])
    for values, kinds in (([7, 8], "int"), ([7, None, 8.0], "float, int"), ([["7"]], "list")):
        chunks = [Chunk(text="t", metadata={"cid": value}) for value in values]
        run = Run(rankings=[Ranking(query_id="q", chunks=chunks)])
        report = score(run, dataset, k=1, matcher=ChunkId("cid"))
        assert report.mean(1) == 0.0
        (note,) = [note for note in report.notes if "no retrieved chunk" in note]
        assert f"the values under 'cid' are of type {kinds}: store them as strings" in note
