"""Inputs of real bug reports about matching and re-chunking, each with the right answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from chunkrecall import (
    Chunk,
    ChunkId,
    Contains,
    Coverage,
    Dataset,
    ExactText,
    Fuzzy,
    Label,
    NormalizedText,
    Overlap,
    Query,
    Ranking,
    Report,
    Run,
    check_dataset,
    evaluate_retriever,
    load_dataset,
    relabel,
    save_dataset,
    score,
)
from chunkrecall.cli import main
from chunkrecall.gate import check_gate


def report_of(relevant: Any, chunks: Any, matcher: Any = None, k: Any = None) -> Report:
    return evaluate_retriever(
        lambda text: list(chunks),
        Dataset([Query(query_id="q", text="?", relevant=relevant)]),
        k=k,
        matcher=matcher,
        progress=False,
    )


@pytest.mark.parametrize(
    ("matcher", "label", "chunk"),
    [
        (Fuzzy(0.5), "ab", "ax"),
        (Fuzzy(0.9), "0123456789", "012345678x"),
        (Fuzzy(0.7), "0123456789", "0123456xyz"),
        (Fuzzy(0.1), "0123456789", "0abcdefghi"),
        (Coverage(0.5), "abcdef", "abc"),
        (Coverage(0.9), "0123456789", "012345678"),
        (Coverage(0.7), "0123456789", "0123456"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_F035_exactly_at_the_threshold_counts_everywhere(
    matcher: Any, label: str, chunk: str
) -> None:
    report = report_of([label], [chunk], matcher, k=1)
    assert report.mean(1) == 1.0
    assert report.queries[0].found == (label,)
    assert report.summary["hit@1"].mean == 1.0
    (above,) = type(matcher)(matcher.threshold + 0.001).first_ranks(
        [Label(text=label)], [Chunk(text=chunk)]
    )
    assert above is None


SPLIT = "Rule 5: delay costs one stroke. Exception: injury."
HALVES = ["Rule 5: delay costs one stroke.", "Exception: injury."]


def test_F037_a_label_that_was_split_counts_once_both_halves_came() -> None:
    assert report_of([SPLIT], HALVES).mean(None) == 0.0
    report = report_of([SPLIT], HALVES, Coverage(), k=(1, 2))
    assert (report.mean(1), report.mean(2)) == (0.0, 1.0)
    assert report.queries[0].ranks == {SPLIT: 2}
    solid = len("".join(SPLIT.split()))
    first = len("".join(HALVES[0].split()))
    assert report.queries[0].coverage == {"coverage@1": first / solid, "coverage@2": 1.0}


def test_F038_another_wording_gets_no_silent_credit() -> None:
    label, other = "Refunds are paid within 30 days.", "We pay refunds in 30 days or less."
    for matcher in (None, NormalizedText(), Contains(), Coverage(), Fuzzy()):
        assert report_of([label], [other], matcher).mean(None) == 0.0


def test_F039_neighbouring_windows_cover_the_label_between_them() -> None:
    label, windows = "b c d e", ["a b c d", "c d e f"]
    assert report_of([label], windows, ExactText()).mean(None) == 0.0
    report = report_of([label], windows, Coverage(1), k=(1, 2))
    assert report.queries[0].coverage == {"coverage@1": 3 / 4, "coverage@2": 4 / 4}
    assert report.mean(2) == 1.0


def node(node_id: str, document: str) -> TextNode:
    return TextNode(
        id_=node_id,
        text=f"text of {node_id}",
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)},
    )


def test_F104_labels_that_are_document_ids_are_recognised_as_such() -> None:
    nodes = [node("node-1", "doc-7"), node("node-2", "doc-9")]
    labels = [Label(chunk_id="doc-7")]
    report = report_of(labels, nodes, k=2)
    assert report.mean(2) == 0.0
    (note,) = [note for note in report.notes if "no label id was ever returned" in note]
    assert "1 of 1 labels equals a parent document id" in note
    assert "use document-level matching: ChunkId('ref_doc_id')" in note
    by_document = report_of(labels, nodes, ChunkId("ref_doc_id"), k=2)
    assert by_document.mean(2) == 1.0
    assert not any("no label id" in note for note in by_document.notes)


def test_F105_ids_of_an_earlier_index_are_told_from_misses() -> None:
    queries = [
        Query(query_id=f"q{i}", text=f"question {i}", relevant_ids=[f"old-{i}"]) for i in range(30)
    ]
    dataset = Dataset(queries)
    index = [Chunk(text=f"text {i}", chunk_id=f"new-{i}") for i in range(30)]
    resolved = relabel(dataset, index)
    assert len(resolved.unresolved) == 30
    assert "all labels are unknown to this index" in str(resolved)
    assert "derive them from the content, or label with texts or spans" in " ".join(
        str(resolved).split()
    )
    # Left without labels, no query is scored: the mean is missing, not 0.
    assert score(Run(), resolved.dataset, k=1).mean(1) is None
    assert not check_dataset(dataset, index).ok
    report = evaluate_retriever(lambda text: index[:5], dataset, k=5, progress=False)
    assert any("no label id was ever returned" in note for note in report.notes)


@pytest.mark.parametrize(
    "matcher", [Coverage(), Fuzzy(), Contains()], ids=lambda one: one.describe()
)
def test_F136_the_slow_matchers_are_bounded_on_large_input(matcher: Any) -> None:
    texts = [f"{i} " + "".join(f"w{i * j % 997} " for j in range(900)) for i in range(1, 101)]
    labels = [Label(text=texts[i % 100]) for i in range(190)]
    labels += [Label(text=texts[i][::-1]) for i in range(10)]
    chunks = [Chunk(text=text) for text in texts]
    started = time.process_time()
    ranks = matcher.first_ranks(labels, chunks)
    assert time.process_time() - started < 5
    assert all(rank is not None for rank in ranks[:190])


@pytest.mark.parametrize("unit", ["a", "ab", "abc ", "\u4e2d"])
def test_F136_repeats_do_not_blow_up(unit: str) -> None:
    long = (unit * 100_000)[:100_000]
    chunks = [Chunk(text=long[1:]), Chunk(text=long[:-7] + "z"), Chunk(text="b" * 100_000)]
    started = time.process_time()
    for matcher in (Coverage(), Contains(), Fuzzy()):
        matcher.first_ranks([Label(text=long)], chunks)
    relabel({"q": [long]}, chunks)
    assert time.process_time() - started < 10


P = [
    Chunk(text="p" * 200, chunk_id=f"P{i}", metadata={"doc_id": "d1", "start_index": 200 * i})
    for i in range(2)
]
Q = [
    Chunk(text="q" * 150, chunk_id=f"Q{i}", metadata={"doc_id": "d1", "start_index": 150 * i})
    for i in range(2)
]


def test_F183_a_span_is_resolved_against_any_chunking() -> None:
    dataset = Dataset([Query(query_id="q", text="?", relevant=[Label.span("d1", 100, 180)])])
    by_p, by_q = relabel(dataset, P), relabel(dataset, Q)
    assert [one.chunk_id for one in by_p.dataset["q"].relevant or ()] == ["P0"]
    assert [one.chunk_id for one in by_q.dataset["q"].relevant or ()] == ["Q0", "Q1"]

    def recall(resolved: Any, *chunks: Chunk) -> float | None:
        run = Run(rankings=[Ranking(query_id="q", chunks=chunks)])
        return score(run, resolved.dataset, k=1, matcher=ChunkId()).mean(1)

    assert recall(by_p, P[0]) == 1.0
    assert recall(by_q, Q[0]) == 0.5
    run = Run(rankings=[Ranking(query_id="q", chunks=[Q[0]])])
    report = score(run, dataset, k=1, matcher=Coverage())
    assert report.summary["coverage@1"].mean == 50 / 80 == 0.625
    assert report.rules["matcher"] == "coverage (at least 0.9 of the label)"
    assert report.mean(1) == 0.0
    # The rule is part of the fingerprint, even where it leads to the same labels.
    half = relabel(dataset, P, rule=0.5)
    assert half.dataset["q"].relevant == by_p.dataset["q"].relevant
    assert half.dataset.fingerprint != by_p.dataset.fingerprint
    assert [one.chunk_id for one in relabel(dataset, Q, rule=0.5).dataset["q"].relevant or ()] == [
        "Q0"
    ]
    assert relabel(dataset, P, rule=Overlap()).dataset.fingerprint == by_p.dataset.fingerprint


def test_F183_another_threshold_is_no_baseline() -> None:
    dataset = Dataset([Query(query_id="q", text="?", relevant=[Label.span("d1", 100, 180)])])
    run = Run(rankings=[Ranking(query_id="q", chunks=[Q[0]])])
    report = score(run, dataset, k=1, matcher=Coverage(0.6))
    with pytest.raises(ValueError, match=r"baseline was matched by coverage \(at least 0.9"):
        check_gate(report, [], baseline=score(run, dataset, k=1, matcher=Coverage()))
    assert check_gate(report, [], baseline=score(run, dataset, k=1, matcher=Coverage(0.6))).passed


def test_F183_both_frameworks_offsets_are_read() -> None:
    dataset = Dataset([Query(query_id="q", text="?", relevant=[Label.span("d1", 100, 180)])])
    documents = [
        Document(
            page_content="q" * 150, id=f"Q{i}", metadata={"source": "d1", "start_index": 150 * i}
        )
        for i in range(2)
    ]
    nodes = []
    for i in range(2):
        made = node(f"Q{i}", "d1")
        made.text, made.start_char_idx, made.end_char_idx = "q" * 150, 150 * i, 150 * i + 150
        nodes.append(made)
    for corpus in (documents, nodes):
        resolved = relabel(dataset, corpus)
        assert [one.chunk_id for one in resolved.dataset["q"].relevant or ()] == ["Q0", "Q1"]
        report = evaluate_retriever(
            lambda text, found=corpus: found, dataset, k=(1, 2), matcher=Coverage(), progress=False
        )
        assert report.queries[0].coverage == {"coverage@1": 0.625, "coverage@2": 1.0}


def code_of(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_F183_the_command_writes_the_resolved_set_and_lists_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, corpus, out = (tmp_path / name for name in ("l.jsonl", "c.jsonl", "o.jsonl"))
    queries = [
        Query(query_id="q", text="?", relevant=[Label.span("d1", 100, 180)]),
        Query(query_id="r", text="!", relevant=[Label.span("d2", 0, 9), "nowhere to be found"]),
    ]
    save_dataset(Dataset(queries), labels)
    assert load_dataset(labels).queries == tuple(queries)
    corpus.write_text(
        "\n".join(
            json.dumps({"id": one.chunk_id, "text": one.text, "metadata": dict(one.metadata)})
            for one in Q
        )
    )
    arguments = ["relabel", str(labels), "--corpus", str(corpus), "--out", str(out)]
    assert code_of([*arguments, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["query_id"] for one in told["unresolved"]] == ["r", "r"]
    assert "'d2'" in told["unresolved"][0]["reason"]
    resolved = load_dataset(out)
    assert [one.chunk_id for one in resolved["q"].relevant or ()] == ["Q0", "Q1"]
    assert resolved["r"].relevant is None
    assert resolved.fingerprint == told["fingerprint"]
    assert any("2 labels of 1 queries are in no chunk" in note for note in resolved.notes)
    corpus.write_text('{"id": "x", "text": "something else"}\n')
    assert code_of(arguments) == 4
    assert "all labels are unknown to this index" in capsys.readouterr().out
    assert code_of([*arguments, "--overlap", "most"]) == 2
