"""Cases from real bug reports, area diagnosis; each test carries its case's id."""

from __future__ import annotations

import time
import unicodedata
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from chunkrecall import (
    Chunk,
    ChunkId,
    Dataset,
    Diagnosis,
    Label,
    NormalizedText,
    Query,
    Ranking,
    Report,
    Run,
    diagnose,
    evaluate_retriever,
    score,
)
from chunkrecall.diagnosis import candidate_draft
from chunkrecall.diagnosis.diagnose import TESTS


def chunks_of(items: list[Any]) -> list[Chunk]:
    return [item if isinstance(item, Chunk) else Chunk(text=item) for item in items]


def report_of(relevant: list[Any], retrieved: list[Any], *, k: Any = 10, **options: Any) -> Report:
    dataset = Dataset([Query(query_id="q", text="question", relevant=relevant)])
    run = Run(rankings=[Ranking(query_id="q", chunks=chunks_of(retrieved))])
    return score(run, dataset, k=k, **options)


def report_of_many(
    labels: dict[str, list[Any]], lists: dict[str, list[Any]], **options: Any
) -> Report:
    run = Run(
        rankings=[Ranking(query_id=one, chunks=chunks_of(found)) for one, found in lists.items()],
        name=options.pop("name", "run"),
    )
    return score(run, labels, **{"k": 10, **options})


class Deep(BaseRetriever):
    """A retriever with a depth of its own."""

    texts: list[str]
    k: int = 10

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=text) for text in self.texts[: self.k]]


# Boundaries


RULE = "Rule 5: delay costs one stroke. Exception: injury."


@pytest.mark.parametrize(
    "pieces",
    [
        ["Rule 5: delay costs one stroke.", "Exception: injury."],
        ["Exception: injury.", "Rule 5: delay costs one stroke."],
        ["Rule 5: delay costs one stroke.", "noise", "Exception: injury."],
        ["Rule 4 is void. Rule 5: delay costs one stroke.", "Exception: injury. Rule 6 follows."],
    ],
    ids=["in order", "the other way round", "with noise between", "with text around"],
)
def test_F037_a_label_whose_halves_were_retrieved_was_split(pieces: list[str]) -> None:
    report = report_of([RULE], pieces)
    found = diagnose(report)
    (miss,) = found.misses
    assert (report.mean(10), miss.cause, miss.certainty) == (0.0, "split", "fact")
    number = sum(piece != "noise" for piece in pieces)
    assert f"split across {number} retrieved chunks" in miss.evidence
    assert found.headline.startswith("the one miss becomes a hit under coverage matching")


def test_F037_one_half_alone_is_no_split_unless_the_corpus_has_the_other() -> None:
    halves = ["Rule 5: delay costs one stroke.", "Exception: injury."]
    report = report_of([RULE], halves[:1])
    assert diagnose(report).misses[0].cause != "split"
    (miss,) = diagnose(report, corpus=halves).misses
    assert (miss.cause, miss.certainty) == ("split", "fact")
    assert "the index holds the label split across 2 chunks" in miss.evidence


@pytest.mark.parametrize("chunk", ["Item: fee 100.", "Article 71 is lent free of charge."])
def test_F037_texts_that_share_phrases_are_neither_split_nor_merged(chunk: str) -> None:
    label = {
        "Item: fee 100.": "fee 10",
        "Article 71 is lent free of charge.": "Article 7 is lent free of charge.",
    }[chunk]
    report = report_of([label], [chunk, "Article 9 is lent free of charge."])
    causes = {diagnose(report).misses[0].cause, *diagnose(report).misses[0].secondary}
    assert not causes & {"split", "merged", "neighbour_window"}


def test_F039_overlapping_windows_beside_the_labelled_one_are_neighbours() -> None:
    report = report_of(["b c d e"], ["a b c d", "c d e f"])
    for corpus in (None, ["a b c d", "b c d e", "c d e f"]):
        (miss,) = diagnose(report, corpus=corpus).misses
        assert (report.mean(10), miss.cause, miss.certainty) == (0.0, "neighbour_window", "fact")
        assert "neighbouring windows returned" in miss.evidence
        assert "100 % of its text" in miss.evidence


# Ids


def test_F104_labels_that_are_document_ids_are_said_to_be() -> None:
    class Parents(LlamaIndexBaseRetriever):
        def _retrieve(self, query_bundle):
            nodes = [TextNode(id_=f"node-{n}", text=f"text {n}") for n in (1, 2)]
            for node, doc in zip(nodes, ("doc-7", "doc-9"), strict=True):
                node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=doc)
            return [NodeWithScore(node=node) for node in nodes]

    labels = Dataset([Query(query_id="q", text="t", relevant_ids=["doc-7"])])
    report = evaluate_retriever(Parents(), labels, k=2, progress=False)
    found = diagnose(report)
    assert report.mean(2) == 0.0
    assert found.headline == "the one miss becomes a hit under matching by parent document id"
    (miss,) = found.misses
    assert (miss.cause, miss.certainty) == ("id_differs", "fact")
    assert "'doc-7' is no chunk's id, and its document's id" in miss.evidence
    (remedy,) = found.remedies
    assert (remedy.action, remedy.recall) == ("match with ChunkId('ref_doc_id')", 1.0)
    again = evaluate_retriever(
        Parents(), labels, k=2, matcher=ChunkId("ref_doc_id"), progress=False
    )
    assert again.mean(2) == 1.0


@pytest.mark.parametrize(
    ("label", "metadata", "chunk_id", "matcher", "phrase"),
    [
        ("7", {"number": 7}, None, ChunkId("number"), "the int 7"),
        ("c-7", {"key": "c-7"}, "node-1", ChunkId(), "its metadata 'key'"),
        ("C-7", {}, "c-7", ChunkId(), "differ in case"),
        ("007", {}, "7", ChunkId(), "leading zeros"),
    ],
    ids=["number in the metadata", "another key", "case", "leading zeros"],
)
def test_F104_ids_of_another_kind_or_form_are_told(
    label: str, metadata: dict[str, Any], chunk_id: str | None, matcher: ChunkId, phrase: str
) -> None:
    chunk = Chunk(text="text", chunk_id=chunk_id, metadata=metadata)
    found = diagnose(report_of([Label(chunk_id=label)], [chunk], matcher=matcher))
    (miss,) = found.misses
    assert (miss.cause, miss.certainty) == ("id_differs", "fact")
    assert phrase in miss.evidence
    assert "becomes a hit under" in found.headline


def test_F105_ids_that_are_all_unknown_to_the_index_make_the_recall_no_measure() -> None:
    labels = Dataset(
        [Query(query_id=f"q{n}", text=f"t{n}", relevant_ids=[f"old-{n}"]) for n in range(30)]
    )
    chunks = [Chunk(text=f"text {n}", chunk_id=f"new-{n}") for n in range(30)]
    run = Run(rankings=[Ranking(query_id=f"q{n}", chunks=chunks[:5]) for n in range(30)])
    found = diagnose(score(run, labels, k=5), corpus=chunks)
    assert found.headline.startswith("all 30 labels are unknown to this index")
    assert "no measure of the retriever" in found.headline
    assert "by text or by ids derived from the content" in found.headline
    assert found.counts == {"not_indexed": 30}
    assert len(found.unwinnable) == 30


# Index


def test_F167_a_label_that_was_never_indexed_is_not_bad_ranking() -> None:
    report = report_of_many(
        {"q1": ["z one two three"], "q2": ["a"]}, {"q1": ["a", "b"], "q2": ["a"]}
    )
    found = diagnose(report, corpus=["a", "b", "z one two four"])
    (miss,) = found.misses
    assert (miss.cause, miss.certainty) == ("not_indexed", "fact")
    assert "exact lookup of the text over 3 chunks of the corpus found nothing" in miss.evidence
    assert "'z one two four'" in miss.evidence
    assert found.unwinnable == ("q1",)
    (unsure,) = diagnose(report).misses
    assert unsure.cause == "unknown"
    assert "corpus=" in unsure.remedy


@pytest.mark.parametrize("has_corpus", [True, False])
def test_F174_an_old_version_of_the_same_source_is_stale(has_corpus: bool) -> None:
    new = Chunk(text="Fee is 12 EUR (2025)", metadata={"source": "fees.md", "version": 2025})
    old = Chunk(text="Fee is 10 EUR (2023)", metadata={"source": "fees.md", "version": 2023})
    report = report_of([new.text], [old])
    (miss,) = diagnose(report, corpus=[new, old] if has_corpus else None).misses
    assert report.mean(10) == 0.0
    # Without the label's own chunk nothing says that the two are of one source.
    assert (miss.cause, miss.certainty) == ("stale", "fact" if has_corpus else "hypothesis")
    assert "2023" in miss.evidence


def test_F174_another_passage_of_the_same_version_is_not_stale() -> None:
    own = Chunk(text="Fee is 12 EUR (2025)", metadata={"source": "fees.md", "version": 2025})
    other = Chunk(text="Fee is 10 EUR (2025)", metadata={"source": "fees.md", "version": 2025})
    (miss,) = diagnose(report_of([own.text], [other]), corpus=[own, other]).misses
    assert "stale" not in (miss.cause, *miss.secondary)


# Rank


def test_F168_a_label_at_rank_12_is_below_the_cutoff_and_the_probe_changes_nothing() -> None:
    texts = [f"text {n}" for n in range(1, 61)]
    retriever = Deep(texts=texts)
    labels = {"question": ["text 12"]}
    report = evaluate_retriever(retriever, labels, k=10, progress=False)
    before = report.to_json()
    found = diagnose(report, retriever=retriever, probe_depth=50)
    (miss,) = found.misses
    assert (miss.cause, miss.certainty) == ("below_cutoff", "fact")
    assert "rank 12" in miss.evidence
    assert (report.to_json(), retriever.k, len(report.queries[0].retrieved)) == (before, 10, 10)
    assert found.remedies[0].recall == 1.0


def test_F168_a_retriever_that_cannot_go_deeper_leaves_it_unknown() -> None:
    report = evaluate_retriever(lambda text: ["a"], {"q": ["b"]}, k=1, progress=False)
    found = diagnose(report, retriever=lambda text: ["a"], probe_depth=50)
    (miss,) = found.misses
    assert miss.cause == "unknown"
    assert "no depth that could be set" in miss.evidence


def test_F172_what_a_deeper_search_ranks_first_was_missed_by_approximation() -> None:
    class Approximate(LlamaIndexBaseRetriever):
        similarity_top_k: int = 10

        def __init__(self, *, changes: bool = False) -> None:
            super().__init__()
            self.calls = 0
            self.changes = changes

        def _retrieve(self, query_bundle):
            self.calls += 1
            found = [(f"text {n}", 0.9 - n / 100) for n in range(1, 30)]
            if self.similarity_top_k > 50 or (self.changes and self.calls > 1):
                found.insert(0, ("label", 0.99))
            found = found[: self.similarity_top_k]
            return [NodeWithScore(node=TextNode(text=t), score=s) for t, s in found]

    retriever = Approximate()
    report = evaluate_retriever(retriever, {"q": ["label"]}, k=10, progress=False)
    (miss,) = diagnose(report, retriever=retriever, probe_depth=100).misses
    assert (miss.cause, miss.certainty) == ("approximate_search", "fact")
    assert "ranks it 1" in miss.evidence
    assert "a worse score" in miss.evidence

    changing = Approximate(changes=True)
    report = evaluate_retriever(changing, {"q": ["label"]}, k=10, progress=False)
    found = diagnose(report, retriever=changing, probe_depth=100)
    (miss,) = found.misses
    assert (miss.cause, miss.certainty) == ("approximate_search", "hypothesis")
    assert any("identical calls differ" in note for note in found.notes)


def test_F171_a_chunk_longer_than_the_model_reads_is_a_hypothesis() -> None:
    text = " ".join(f"word{n}" for n in range(493))

    def count_tokens(text: str) -> int:
        return len(text.split())

    report = report_of([text], ["other"])
    for options in ({}, {"token_limit": 256}):
        (miss,) = diagnose(report, token_counter=count_tokens, **options).misses
        assert (miss.cause, miss.certainty) == ("truncated", "hypothesis")
        assert "493 tokens > 256" in miss.evidence
    (miss,) = diagnose(report, token_counter=count_tokens, token_limit=512).misses
    assert miss.cause == "unknown"
    (miss,) = diagnose(report).misses
    assert "token_counter=" in miss.remedy


# Systematic causes


def doubled(text: str) -> str:
    return text.replace(" ", "  ")


SYSTEMATIC = {
    "whitespace": (doubled, "whitespace normalisation"),
    "line breaks": (lambda text: text.replace(" ", "\r\n"), "whitespace normalisation"),
    "no-break spaces": (lambda text: text.replace(" ", "\u00a0"), "whitespace normalisation"),
    "case": (str.upper, "case folding"),
    "decomposed": (lambda text: unicodedata.normalize("NFD", text), "Unicode normalisation (NFC)"),
    "full width": (lambda text: text.replace("1", "\uff11"), "Unicode normalisation (NFKC)"),
    "invisible": (lambda text: text.replace("a", "a\u200b"), "removing invisible characters"),
    "HTML": (lambda text: text.replace("&", "&amp;"), "HTML unescaping"),
    "accents": (lambda text: text.replace("\u00e9", "e"), "removing accents"),
}


@pytest.mark.parametrize(("change", "name"), SYSTEMATIC.values(), ids=list(SYSTEMATIC))
def test_F175_forty_zeros_with_one_reason_have_one_headline(change: Any, name: str) -> None:
    texts = {f"q{n}": f"The caf\u00e9 & bar number 1{n}" for n in range(40)}
    labels = {query: [text] for query, text in texts.items()}
    report = report_of_many(labels, {q: ["other", change(text)] for q, text in texts.items()})
    found = diagnose(report)
    assert report.mean(10) == 0.0
    assert found.headline == f"all 40 misses become hits under {name}"
    shown = str(found)
    assert shown.index(found.headline) < shown.index("text_differs")
    assert found.counts == {"text_differs": 40}
    assert {miss.certainty for miss in found.misses} == {"fact"}
    assert "U+" in found.misses[0].evidence
    best = found.remedies[0]
    assert (best.recall, best.recovers) == (1.0, 40)
    matcher = eval(best.action.removeprefix("match with "), {"NormalizedText": NormalizedText})
    assert score(report.run, labels, k=10, matcher=matcher).mean(10) == 1.0


@pytest.mark.parametrize("has_metadata", [True, False])
def test_F175_metadata_in_front_of_the_text_is_named(has_metadata: bool) -> None:
    metadata = {"file_name": "a.md", "page": "3"}
    front = "file_name: a.md\npage: 3\n\n"
    labels = {f"q{n}": [front + f"Text {n}"] for n in range(40)}
    lists = {
        f"q{n}": [Chunk(text=f"Text {n}", metadata=metadata if has_metadata else {})]
        for n in range(40)
    }
    found = diagnose(report_of_many(labels, lists))
    assert found.headline == "all 40 misses become hits under removing the metadata prefix"
    assert "metadata in front" in found.misses[0].evidence


def test_F175_a_label_that_merely_ends_like_a_chunk_has_no_metadata_in_front() -> None:
    report = report_of(["Note: see below. Text 1"], [Chunk(text="Text 1", metadata={"a": "b"})])
    assert diagnose(report).misses[0].cause != "text_differs"


def test_F175_a_part_with_one_reason_is_said_as_a_part() -> None:
    labels = {f"q{n}": [f"text number {n}"] for n in range(10)}
    lists = {f"q{n}": [doubled(f"text number {n}") if n < 7 else "x"] for n in range(10)}
    found = diagnose(report_of_many(labels, lists))
    assert found.headline == "7 of 10 misses become hits under whitespace normalisation"


# Order


def test_F178_one_primary_cause_by_a_fixed_order_and_the_same_every_time() -> None:
    label = "Caf\u00e9 opens at nine."
    indexed = unicodedata.normalize("NFD", label)
    texts = [f"text {n}" for n in range(1, 12)] + [indexed] + [f"text {n}" for n in range(13, 30)]
    retriever = Deep(texts=texts)
    report = evaluate_retriever(retriever, {"q": [label]}, k=10, progress=False)
    evidence: dict[str, Any] = {"corpus": texts, "retriever": retriever, "probe_depth": 20}
    (miss,) = diagnose(report, **evidence).misses
    assert (miss.cause, miss.certainty) == ("text_differs", "fact")
    assert "NFC" in miss.evidence
    assert "U+00E9" in miss.evidence
    assert "below_cutoff" in miss.secondary
    rank = next(one for one in miss.findings if one.cause == "below_cutoff")
    assert "rank 12" in rank.evidence
    assert diagnose(report, **evidence).to_json() == diagnose(report, **evidence).to_json()


def test_F178_the_tests_stand_in_the_documented_order() -> None:
    from chunkrecall.diagnosis import CAUSES

    assert [*[test.__name__ for test in TESTS], "unknown"] == list(CAUSES)


# Labels


def test_F038_another_wording_is_a_candidate_and_no_hit() -> None:
    report = report_of(["Refunds are paid within 30 days."], ["We pay refunds in 30 days or less."])
    found = diagnose(report)
    assert report.mean(10) == 0.0
    (candidate,) = found.candidates
    assert candidate.text == "We pay refunds in 30 days or less."
    assert 0 < candidate.similarity < 1
    assert "Possible alternate labels" in str(found)
    draft = candidate_draft(found, report)
    assert [chunk.relevant for chunk in draft.queries[0].chunks] == [None]
    draft.queries[0].chunks[0].relevant = True
    accepted = draft.to_dataset()["q"].relevant
    assert {str(label) for label in accepted or ()} == {candidate.text, candidate.label}


def test_F179_unverified_labels_are_counted_and_the_doubtful_ones_listed() -> None:
    key = "The deposit is paid back within fourteen days of return."
    queries = []
    lists = {}
    for n in range(101):
        text = f"Chapter {n} begins here. {key} See page {n}." if n < 12 else f"Text {n}"
        queries.append(
            Query(query_id=f"q{n}", text=f"t{n}", relevant=[text], metadata={"verified": False})
        )
        lists[f"q{n}"] = [f"Summary {n}. {key}" if n < 12 else text]
    report = report_of_many(Dataset(queries), lists)  # type: ignore[arg-type]
    found = diagnose(report)
    assert "labels verified by a person: 0 of 101 queries" in found.notes
    assert found.doubtful == tuple(f"q{n}" for n in range(12))
    assert found.counts == {"label_doubtful": 12}
    assert {miss.certainty for miss in found.misses} == {"hypothesis"}
    assert all("check the label" in miss.evidence for miss in found.misses)


def test_F185_the_unjudged_share_stands_beside_recall_and_makes_it_a_lower_bound() -> None:
    judged = [f"text {n}" for n in range(10)]
    labels = Dataset(
        [
            Query(
                query_id="q",
                text="t",
                relevant=[
                    *judged[:5],
                    *[Label(text=text, grade=0) for text in judged[5:]],
                ],
            )
        ]
    )
    first = report_of_many(labels, {"q": judged[1:5] + judged[5:]}, name="A")  # type: ignore[arg-type]
    second = report_of_many(
        labels,  # type: ignore[arg-type]
        {"q": judged[:4] + [f"new {n}" for n in range(6)]},
        name="B",
    )
    found = diagnose(first, others=[second])
    assert [(one.name, one.unjudged_share) for one in found.judged] == [("A", 0.0), ("B", 0.6)]
    (note,) = [note for note in found.notes if "unjudged" in note and "A 0 %, B 60 %" in note]
    assert "lower bound" in note
    assert any(note.startswith("B returns more unjudged chunks than A") for note in found.notes)
    draft = candidate_draft(diagnose(second), second)
    undecided = [chunk.text for chunk in draft.queries[0].undecided]
    assert undecided == [f"new {n}" for n in range(6)]


def test_F186_labels_that_all_lie_in_one_retrievers_lists_look_pooled() -> None:
    labels = {f"q{n}": [f"text {n}"] for n in range(10)}
    first = report_of_many(labels, {f"q{n}": [f"text {n}"] for n in range(10)}, k=5, name="A")
    second = report_of_many(
        labels, {f"q{n}": [f"text {n}"] if n < 6 else ["x"] for n in range(10)}, k=5, name="B"
    )
    for found in (diagnose(first, others=[second]), diagnose(second, others=[first])):
        (note,) = [note for note in found.notes if "pooled" in note]
        assert (
            "labels look pooled from A: 100 % are inside its top 5, against 60 % inside B's" in note
        )


def test_F176_an_empty_list_is_said_and_the_collapsed_tag_named() -> None:
    queries = [
        Query(
            query_id=f"q{n}",
            text=f"t{n}",
            relevant=[f"text {n}"],
            tags=["language=lt" if n < 3 else "language=en"],
        )
        for n in range(9)
    ]
    labels: Any = Dataset(queries)
    keyword = report_of_many(
        labels, {f"q{n}": [] if n < 3 else [f"text {n}"] for n in range(9)}, name="keyword"
    )
    vector = report_of_many(labels, {f"q{n}": [f"text {n}"] for n in range(9)}, name="vector")
    found = diagnose(keyword, others=[vector])
    assert found.counts == {"nothing_returned": 3}
    for miss in found.misses:
        assert "no results at all (empty list)" in miss.evidence
        assert "found_by_other" in miss.secondary
    assert any("'language=lt'" in note and "0.000" in note for note in found.notes)


# Work


def test_F136_diagnosing_long_texts_stays_bounded() -> None:
    texts = [f"{n} " + "lorem ipsum dolor sit amet " * 150 + f"end {n}" for n in range(100)]
    labels = {f"q{n}": [f"label {n} " + "lorem ipsum dolor sit amet " * 150] for n in range(20)}
    report = report_of_many(labels, dict.fromkeys(labels, texts), k=100)
    started = time.perf_counter()
    diagnose(report)
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize(
    ("label", "chunks"),
    [
        ("a" * 100_000, ["a" * 99_999 + "b", "b" + "a" * 99_999]),
        ("ab" * 50_000, ["ba" * 50_000] * 10),
        ("a b " * 25_000, ["a  b\n" * 25_000 + "c"] * 5),
    ],
    ids=["one letter", "two letters", "words"],
)
def test_F136_repeats_are_no_quadratic_work(label: str, chunks: list[str]) -> None:
    report = report_of([label], chunks)
    started = time.perf_counter()
    diagnose(report, corpus=chunks)
    assert time.perf_counter() - started < 5


def test_hostile_text_is_escaped_in_every_view() -> None:
    hostile = "<script>alert(1)</script>\x1b[31m | `x` \u202e"
    report = report_of([hostile], [hostile + " more"])
    found: Diagnosis = diagnose(report, corpus=[hostile + " more"])
    assert "<script>" not in found._repr_html_()
    assert "\x1b" not in str(found)
    assert "\u202e" not in str(found)
    assert "<script>" not in found.to_markdown().replace("\\<script\\>", "")
