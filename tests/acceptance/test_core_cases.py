"""Cases from real bug reports, area core; each test carries its case's id."""

from __future__ import annotations

import asyncio
import copy
import time
from fractions import Fraction
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBaseRetriever
from llama_index.core.schema import ImageNode, NodeWithScore, TextNode

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
    Report,
    RetrievalError,
    Run,
    aevaluate_retriever,
    evaluate_retriever,
    load_dataset,
    recall_at_k,
    score,
)
from chunkrecall.llama_index import nodes_to_texts
from chunkrecall.text import near_miss


def report_of(
    relevant: Any, retrieved: list[Any], *, k: Any = None, query_id: str = "q1", **options: Any
) -> Report:
    """One query's report; retrieved items are texts, or (id, text) pairs."""
    chunks = [
        Chunk(text=item) if isinstance(item, str) else Chunk(chunk_id=item[0], text=item[1])
        for item in retrieved
    ]
    dataset = Dataset([Query(query_id=query_id, text="question", relevant=relevant)])
    run = Run(rankings=[Ranking(query_id=query_id, chunks=chunks)])
    return score(run, dataset, k=k, **options)


def test_F001_a_chunk_retrieved_twice_counts_once() -> None:
    assert report_of(["A", "B"], ["A", "A", "X"]).mean(None) == 0.5
    assert report_of(["A"], ["A", "A"]).mean(None) == 1.0
    assert recall_at_k(["A", "A", "X"], ["A", "B"]) == 0.5


def test_F002_a_label_listed_twice_counts_once_and_is_named() -> None:
    report = report_of(["A", "A"], ["A"])
    assert report.mean(None) == 1.0
    assert any("'q1' 2 → 1" in note for note in report.notes)
    dataset = Dataset([Query(query_id="q1", text="t", relevant=["A", "A"])])
    assert any("'q1'" in note and "repeated" in note for note in dataset.notes)


def test_F004_the_cut_comes_before_duplicates_are_removed_unless_asked() -> None:
    assert report_of(["A", "B"], ["A", "A", "B"], k=2).mean(2) == 0.5
    deduped = report_of(["A", "B"], ["A", "A", "B"], k=2, dedupe=True)
    assert deduped.mean(2) == 1.0
    assert deduped.rules["dedupe"] is True
    assert any("dedupe=True" in note for note in deduped.notes)


def test_F005_a_list_shorter_than_k_is_scored_and_said() -> None:
    report = report_of(["A", "B"], ["A"], k=10)
    assert report.mean(10) == 0.5
    (query,) = report.queries
    assert query.retrieved_count == 1
    assert "1 retrieved" in query.reason
    assert any("recall@10 was measured on lists of at most 1 chunk" in n for n in report.notes)


def test_F006_recall_is_divided_by_all_labels_and_the_ceiling_is_shown() -> None:
    report = report_of(list("ABCDE"), ["A", "X"], k=1)
    assert report.mean(1) == 0.2
    assert report.summary["recall@1"].ceiling == 0.2
    assert "0.200" in str(report)


def two_queries(**options: Any) -> Report:
    dataset = Dataset(
        [
            Query(query_id="q1", text="t1", relevant=["A"]),
            Query(query_id="q2", text="t2", relevant=[]),
        ]
    )
    run = Run(
        rankings=[
            Ranking(query_id="q1", chunks=[Chunk(text="A")]),
            Ranking(query_id="q2", chunks=[Chunk(text="X")]),
        ]
    )
    return score(run, dataset, k=5, **options)


def test_F008_a_query_with_nothing_relevant_is_undefined_and_counted() -> None:
    report = two_queries()
    summary = report.summary["recall@5"]
    assert (summary.mean, summary.averaged_over, summary.undefined) == (1.0, 1, 1)
    assert report.queries[1].recall == {"recall@5": None}
    assert two_queries(no_relevant="zero").mean(5) == 0.5
    assert two_queries(no_relevant="one").mean(5) == 1.0
    assert two_queries(no_relevant="zero").queries[1].status == "undefined"


def test_F009_the_mlflow_policy_reproduces_two_thirds() -> None:
    dataset = Dataset(
        [
            Query(query_id="q1", text="t1", relevant=[]),
            Query(query_id="q2", text="t2", relevant=[]),
            Query(query_id="q3", text="t3", relevant=["A"]),
        ]
    )
    run = Run(
        rankings=[
            Ranking(query_id="q1", chunks=[]),
            Ranking(query_id="q2", chunks=[Chunk(text="X")]),
            Ranking(query_id="q3", chunks=[Chunk(text="A")]),
        ]
    )
    ours = score(run, dataset, k=3)
    assert (ours.mean(3), ours.summary["recall@3"].averaged_over) == (1.0, 1)
    theirs = score(run, dataset, k=3, no_relevant="mlflow")
    assert theirs.mean(3) == float(Fraction(2, 3))
    assert theirs.summary["recall@3"].averaged_over == 3


def test_F010_recall_hit_and_complete_are_undefined_together() -> None:
    (query,) = report_of([], ["X"], k=3).queries
    assert (query.recall, query.hit, query.complete) == (
        {"recall@3": None},
        {"hit@3": None},
        {"complete@3": None},
    )
    assert query.reason


def test_F013_a_mean_of_exactly_four_fifths_is_four_fifths() -> None:
    found = [5, 4, 2, 4, 5, 4]
    labels = [f"label {i}" for i in range(5)]
    dataset = Dataset(
        [Query(query_id=str(i), text=f"t{i}", relevant=labels) for i in range(len(found))]
    )
    run = Run(
        rankings=[
            Ranking(query_id=str(i), chunks=[Chunk(text=t) for t in labels[:n]])
            for i, n in enumerate(found)
        ]
    )
    report = score(run, dataset, k=5)
    assert report.mean(5) == 0.8
    assert report.mean(5) >= 0.8


def test_F014_retrieving_nothing_scores_0_and_raises_nothing() -> None:
    report = report_of(["A"], [], k=5)
    assert report.mean(5) == 0.0
    assert report.queries[0].status == "scored"
    assert recall_at_k([], ["A"], 5) == 0.0


def test_F017_the_mean_is_per_query_and_the_pooled_share_has_its_own_name() -> None:
    many = [f"m{i}" for i in range(9)]
    dataset = {"q1": ["A"], "q2": many}
    report = evaluate_retriever(
        lambda text: ["A"] if text == "q1" else many[:3], dataset, k=None, progress=False
    )
    summary = report.summary["recall@all"]
    assert summary.mean == float((1 + Fraction(1, 3)) / 2)
    assert summary.pooled == 0.4
    assert "pooled" in str(report)


def test_F018_the_relevance_level_decides_which_labels_count() -> None:
    labels = [
        Label(chunk_id="d1", grade=1),
        Label(chunk_id="d2", grade=2),
        Label(chunk_id="d3", grade=2),
    ]
    retrieved = [("d2", "x"), ("d1", "y")]
    assert report_of(labels, retrieved).mean(None) == 2 / 3
    strict = report_of(labels, retrieved, relevance_level=2)
    assert strict.mean(None) == 0.5
    assert strict.rules["relevance_level"] == 2
    assert any("grade 2" in note for note in strict.notes)


@pytest.mark.parametrize("k", [0, -1, True, 2.5, "5"])
def test_F020_an_odd_k_is_a_value_error_that_names_k(k: Any) -> None:
    with pytest.raises(ValueError, match="k must be"):
        recall_at_k(["X", "A"], ["A"], k)
    with pytest.raises(ValueError, match="k must be"):
        report_of(["A"], ["X", "A"], k=k)


def test_F020_no_k_is_the_whole_list() -> None:
    assert recall_at_k(["X", "A"], ["A"], None) == 1.0


def test_F022_any_some_and_all_of_the_evidence_have_three_names() -> None:
    report = report_of(["hop1", "hop2"], ["hop1", "X", "Y"], k=3)
    (query,) = report.queries
    assert query.recall["recall@3"] == 0.5
    assert query.hit["hit@3"] == 1
    assert query.complete["complete@3"] == 0
    assert report.summary["complete@3"].mean == 0.0


def test_F023_a_group_is_one_label_satisfied_by_any_member() -> None:
    assert report_of([["A1", "A2"], ["B"]], ["A2", "X"]).mean(None) == 0.5
    assert report_of(["A1", "A2", "B"], ["A2", "X"]).mean(None) == 1 / 3


def test_F024_a_chunk_with_the_querys_own_id_is_removed_only_when_asked() -> None:
    retrieved = [("d7", "seven"), ("d3", "three")]
    labels = [Label(chunk_id="d3")]
    plain = report_of(labels, retrieved, k=1, query_id="d7")
    assert plain.mean(1) == 0.0
    assert any("exclude_self=True removes it" in note for note in plain.notes)
    assert report_of(labels, retrieved, k=1, query_id="d7", exclude_self=True).mean(1) == 1.0


def test_F025_several_cutoffs_cost_one_call() -> None:
    calls = []

    def spy(text: str) -> list[str]:
        calls.append(text)
        return [f"chunk {i}" for i in range(10)]

    report = evaluate_retriever(spy, {"q": ["chunk 4"]}, k=[1, 3, 5, 10], progress=False)
    assert calls == ["q"]
    assert [report.mean(k) for k in (1, 3, 5, 10)] == [0.0, 0.0, 1.0, 1.0]


def test_F026_a_leading_space_is_a_miss_that_is_explained() -> None:
    retrieved = [" supercalifragilistic", "ok"]
    exact = report_of(["supercalifragilistic"], retrieved)
    assert exact.mean(None) == 0.0
    assert "equal after trimming whitespace" in exact.queries[0].reason
    normalized = report_of(["supercalifragilistic"], retrieved, matcher=NormalizedText())
    assert normalized.mean(None) == 1.0


def test_F029_invisible_characters_are_removed_only_when_asked() -> None:
    retrieved = ["infor\u00admation re\u200btrieval"]
    label = "information retrieval"
    exact = report_of([label], retrieved)
    assert exact.mean(None) == 0.0
    assert "U+00AD" in exact.queries[0].reason
    assert "U+200B" in exact.queries[0].reason
    assert report_of([label], retrieved, matcher=NormalizedText()).mean(None) == 0.0
    visible = NormalizedText(strip_invisible=True)
    assert report_of([label], retrieved, matcher=visible).mean(None) == 1.0


def test_F030_an_escaped_ampersand_is_explained_and_never_stored() -> None:
    retrieved = ["R&amp;D spend rose"]
    report = report_of(["R&D spend rose"], retrieved)
    assert report.mean(None) == 0.0
    assert "equal after HTML unescape" in report.queries[0].reason
    report.to_markdown(), report._repr_html_(), str(report)
    assert report.queries[0].missing == ("R&D spend rose",)
    assert report.queries[0].retrieved == ("R&amp;D spend rose",)
    unescaped = NormalizedText(unescape_html=True)
    assert report_of(["R&D spend rose"], retrieved, matcher=unescaped).mean(None) == 1.0


def test_F031_a_nodes_text_is_its_body_without_metadata() -> None:
    node = TextNode(text="body", metadata={"file": "a.md"})
    assert nodes_to_texts([NodeWithScore(node=node)]) == ["body"]
    report = evaluate_retriever(
        lambda _: [NodeWithScore(node=node)], {"q": ["body"]}, k=1, progress=False
    )
    assert report.mean(1) == 1.0


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\u00a0"])
def test_F033_a_blank_label_is_refused_at_every_entry(blank: str, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="blank"):
        Label(text=blank)
    with pytest.raises(ValueError, match="blank"):
        Query(query_id="q", text="t", relevant=[blank])
    with pytest.raises(ValueError, match="blank"):
        evaluate_retriever(lambda _: ["anything"], {"q": [blank]}, k=1)
    with pytest.raises(ValueError, match="blank"):
        recall_at_k(["anything"], [blank])
    path = tmp_path / "labels.jsonl"
    import json

    path.write_text(json.dumps({"text": "q", "relevant": ["fine", blank]}) + "\n")
    with pytest.raises(DatasetError, match=r"labels\.jsonl line 1.*blank"):
        load_dataset(path)


@pytest.mark.parametrize("matcher", [ExactText(), NormalizedText()])
def test_F033_an_empty_chunk_satisfies_nothing(matcher: Any) -> None:
    assert report_of(["A"], ["", "A"], k=1, matcher=matcher).mean(1) == 0.0


def test_F041_stripping_accents_leaves_hangul_whole() -> None:
    matcher = NormalizedText(strip_accents=True)
    assert report_of(["\ubb38\uc11c"], ["\ubb38\uc11c"], matcher=matcher).mean(None) == 1.0
    assert report_of(["\ubb38\uc11c"], ["\ubb34\uc11c"], matcher=matcher).mean(None) == 0.0
    assert report_of(["r\u00e9sum\u00e9"], ["resume"], matcher=matcher).mean(None) == 1.0
    assert report_of(["r\u00e9sum\u00e9"], ["resume"], matcher=NormalizedText()).mean(None) == 0.0


def test_F042_equal_texts_are_one_label_by_text_and_two_by_id() -> None:
    labels = [
        Label(text="Terms apply.", chunk_id="d1#c3"),
        Label(text="Terms apply.", chunk_id="d2#c9"),
    ]
    retrieved = [("d1#c3", "Terms apply.")]
    assert report_of(labels, retrieved, matcher=ChunkId()).mean(None) == 0.5
    by_text = report_of(labels, retrieved, matcher=ExactText())
    assert by_text.mean(None) == 1.0
    assert any("merged" in note and "'q1' 2 → 1" in note for note in by_text.notes)


def test_F043_the_matching_mode_is_explicit_and_unused_texts_are_said() -> None:
    labels = [Label(text="x", chunk_id="zzz")]
    retrieved = [("random", "x")]
    by_text = report_of(labels, retrieved)
    assert by_text.mean(None) == 1.0
    assert by_text.rules["matcher"] == "exact text"
    by_id = report_of(labels, retrieved, matcher=ChunkId())
    assert by_id.mean(None) == 0.0
    assert any("texts that the labels carry were not compared" in n for n in by_id.notes)


def test_F086_the_blocking_call_works_inside_a_running_loop() -> None:
    async def main() -> Report:
        return evaluate_retriever(lambda _: ["a"], {"q": ["a"]}, k=1, progress=False)

    async def main_with_async_retriever() -> Report:
        async def search(_: str) -> list[str]:
            await asyncio.sleep(0)
            return ["a"]

        return evaluate_retriever(search, {"q": ["a"]}, k=1, progress=False)

    assert asyncio.run(main()).mean(1) == 1.0
    assert asyncio.run(main_with_async_retriever()).mean(1) == 1.0


class LoopBound:
    """An async client that works on the loop it was first used on, and on no other."""

    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()

    async def __call__(self, text: str) -> list[str]:
        await asyncio.sleep(0)
        self.loops.add(asyncio.get_running_loop())
        return [text]


def test_F088_one_loop_for_a_whole_run_and_the_callers_loop_when_awaited() -> None:
    dataset: dict[str, list[str]] = {f"q{i}": [f"q{i}"] for i in range(6)}
    blocking = LoopBound()
    assert evaluate_retriever(blocking, dataset, k=1, progress=False).mean(1) == 1.0
    assert len(blocking.loops) == 1
    awaited = LoopBound()

    async def main() -> tuple[Report, asyncio.AbstractEventLoop]:
        report = await aevaluate_retriever(awaited, dataset, k=1, progress=False)
        return report, asyncio.get_running_loop()

    report, loop = asyncio.run(main())
    assert report.mean(1) == 1.0
    assert awaited.loops == {loop}


class SyncOnly(LlamaIndexBaseRetriever):
    """Its async method is there and raises."""

    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="a"))]

    async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        raise NotImplementedError


def test_F089_a_missing_async_method_falls_back_to_the_sync_one_and_is_noted_once() -> None:
    dataset = {"q1": ["a"], "q2": ["a"], "q3": ["a"]}
    report = asyncio.run(aevaluate_retriever(SyncOnly(), dataset, k=1, progress=False))
    assert report.mean(1) == 1.0
    assert sum("sync method was used instead" in note for note in report.notes) == 1


def test_F090_an_async_method_that_blocks_is_noted_and_threads_overlap_it() -> None:
    async def blocking(_: str) -> list[str]:
        time.sleep(0.04)
        return ["a"]

    dataset = {f"q{i}": ["a"] for i in range(6)}
    plain = asyncio.run(aevaluate_retriever(blocking, dataset, k=1, progress=False))
    assert plain.mean(1) == 1.0
    assert any("no overlap observed" in note for note in plain.notes)
    started = time.perf_counter()
    threaded = asyncio.run(
        aevaluate_retriever(blocking, dataset, k=1, use_threads=True, progress=False)
    )
    assert time.perf_counter() - started < 6 * 0.04
    assert threaded.mean(1) == 1.0
    late = asyncio.run(
        aevaluate_retriever(blocking, dataset, k=1, timeout_s=0.01, retries=0, progress=False)
    )
    assert late.summary["recall@1"].errored == 6


def test_F091_results_stand_in_dataset_order_whatever_finishes_first() -> None:
    async def search(text: str) -> list[str]:
        await asyncio.sleep(0.002 * (10 - int(text)))
        return [f"c{text}"]

    dataset = Dataset(
        [Query(query_id=f"id{i}", text=str(i), relevant=[f"c{i}"]) for i in range(10)]
    )
    many = asyncio.run(aevaluate_retriever(search, dataset, k=1, max_concurrency=5, progress=False))
    one = asyncio.run(aevaluate_retriever(search, dataset, k=1, max_concurrency=1, progress=False))
    assert [q.query_id for q in many.queries] == [q.query_id for q in dataset]
    assert many.mean(1) == 1.0
    assert [q.recall for q in many.queries] == [q.recall for q in one.queries]


def flaky(text: str) -> list[str]:
    if text == "q2":
        raise RuntimeError("rate limit")
    return ["a"]


def test_F139_one_failing_query_costs_one_record() -> None:
    dataset = {"q1": ["a"], "q2": ["a"], "q3": ["a"]}
    report = evaluate_retriever(flaky, dataset, k=1, progress=False)
    assert [q.status for q in report.queries] == ["scored", "errored", "scored"]
    assert report.queries[1].error == "RuntimeError: rate limit"
    assert isinstance(report.queries[1].exception, RuntimeError)
    assert report.mean(1) == 1.0
    with pytest.raises(RetrievalError, match="'q2'.*rate limit"):
        evaluate_retriever(flaky, dataset, k=1, on_error="raise", progress=False)


def test_F140_an_errored_query_is_excluded_or_0_and_both_bounds_are_printed() -> None:
    dataset = {"q1": ["a"], "q2": ["a"], "q3": ["a"]}
    report = evaluate_retriever(flaky, dataset, k=1, progress=False)
    summary = report.summary["recall@1"]
    assert (summary.mean, summary.averaged_over) == (1.0, 2)
    assert (summary.bound_low, summary.bound_high) == (2 / 3, 1.0)
    assert "0.667 … 1.000" in str(report)
    zero = evaluate_retriever(flaky, dataset, k=1, on_error="zero", progress=False)
    assert zero.mean(1) == 2 / 3
    assert zero.summary["recall@1"].averaged_over == 3
    assert zero.queries[1].status == "errored"
    assert (zero.summary["recall@1"].bound_low, zero.summary["recall@1"].bound_high) == (2 / 3, 1.0)


@pytest.mark.parametrize(
    "returned",
    [["a"], [{"page_content": "a"}], [(Document(page_content="a"), 0.7)], ["a", ImageNode()]],
    ids=["text", "dict", "pair", "image"],
)
def test_F143_other_result_shapes_are_converted(returned: list[Any]) -> None:
    report = evaluate_retriever(lambda _: returned, {"q": ["a"]}, k=2, progress=False)
    assert report.mean(2) == 1.0
    assert report.queries[0].retrieved[0] == "a"
    if len(returned) == 2:
        assert report.queries[0].retrieved == ("a", "")
        assert any("have no text" in note for note in report.notes)


def test_F143_an_unknown_type_is_named_with_its_index() -> None:
    report = evaluate_retriever(lambda _: ["a", 7], {"q": ["a"]}, k=2, progress=False)
    assert "item 1" in str(report.queries[0].error)
    assert "int" in str(report.queries[0].error)


class Stored(BaseRetriever):
    """Returns its own Document objects every time."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


def test_F146_evaluation_changes_nothing_the_caller_owns() -> None:
    documents = [
        Document(page_content="b", metadata={"n": [1]}),
        Document(page_content="a", id="1"),
    ]
    before = copy.deepcopy(documents)
    dataset = {"q": ["a", "a", "b"]}
    retriever = Stored(documents=documents)
    one = evaluate_retriever(retriever, dataset, k=1, dedupe=True, progress=False)
    two = evaluate_retriever(retriever, dataset, k=1, dedupe=True, progress=False)
    assert documents == before
    assert dataset == {"q": ["a", "a", "b"]}
    assert one.summary == two.summary
    assert [q.ranks for q in one.queries] == [q.ranks for q in two.queries]


def test_F184_negative_controls_are_counted_apart() -> None:
    dataset = Dataset(
        [Query(query_id=f"a{i}", text=f"a{i}", relevant=["A"]) for i in range(40)]
        + [Query(query_id=f"n{i}", text=f"n{i}", relevant=[]) for i in range(8)]
    )
    run = Run(
        rankings=[
            Ranking(query_id=f"a{i}", chunks=[Chunk(text="A" if i < 34 else "B")])
            for i in range(40)
        ]
        + [Ranking(query_id=f"n{i}", chunks=[] if i < 6 else [Chunk(text="B")]) for i in range(8)]
    )
    report = score(run, dataset, k=5)
    assert report.mean(5) == 0.85
    assert report.summary["recall@5"].averaged_over == 40
    assert (report.rejected, report.rejectable) == (6, 8)
    assert "6 of 8" in str(report)


def test_near_misses_are_named_the_same_everywhere() -> None:
    assert near_miss("supercalifragilistic", " supercalifragilistic") == (
        "equal after trimming whitespace"
    )
