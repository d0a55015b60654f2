"""Diagnosis: what it takes, what it gives, and the ways in which it must not be fooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from chunkrecall import (
    Chunk,
    ChunkId,
    ChunkRecallError,
    Contains,
    Coverage,
    Dataset,
    ExactText,
    Fuzzy,
    Label,
    NormalizedText,
    Query,
    Ranking,
    Report,
    Run,
    diagnose,
    evaluate_retriever,
    save_dataset,
    save_run,
    score,
)
from chunkrecall.cli import main
from chunkrecall.diagnosis import CAUSES
from chunkrecall.diagnosis.corpus import read_corpus
from chunkrecall.diagnosis.passages import Passages
from chunkrecall.diagnosis.rules import rules_of

TEXTS = ["Parcels ship within two days.", "Refunds take 14 days.", "Express costs 9 euros."]


def report_of(labels: Any, lists: dict[str, list[str]], *, k: Any = 5, **options: Any) -> Report:
    run = Run(
        rankings=[
            Ranking(query_id=q, chunks=[Chunk(text=t, chunk_id=f"id-{t}") for t in texts])
            for q, texts in lists.items()
        ]
    )
    return score(run, labels, k=k, **options)


# What lists chunks


def documents() -> list[Document]:
    return [Document(page_content=text, id=str(n)) for n, text in enumerate(TEXTS)]


def nodes() -> list[TextNode]:
    return [TextNode(text=text, id_=str(n)) for n, text in enumerate(TEXTS)]


def vector_store() -> InMemoryVectorStore:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
    store.add_documents(documents())
    return store


def faiss() -> Any:
    from langchain_community.vectorstores import FAISS

    return FAISS.from_documents(documents(), DeterministicFakeEmbedding(size=4))


def byte_store() -> InMemoryStore:
    store = InMemoryStore()
    store.mset([(one.id or "", one) for one in documents()])
    return store


def langchain_bm25() -> Any:
    from langchain_community.retrievers import BM25Retriever

    return BM25Retriever.from_documents(documents())


def llama_index_bm25() -> Any:
    from llama_index.retrievers.bm25 import BM25Retriever

    return BM25Retriever.from_defaults(nodes=nodes(), similarity_top_k=2)


def docstore() -> SimpleDocumentStore:
    store = SimpleDocumentStore()
    store.add_documents(nodes())
    return store


def index() -> VectorStoreIndex:
    return VectorStoreIndex(nodes(), embed_model=MockEmbedding(embed_dim=4))


LISTINGS = {
    "texts": lambda: TEXTS,
    "Chunks": lambda: [Chunk(text=text, chunk_id=str(n)) for n, text in enumerate(TEXTS)],
    "Documents": documents,
    "nodes": nodes,
    "dicts": lambda: [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)],
    "mapping": lambda: {str(n): text for n, text in enumerate(TEXTS)},
    "InMemoryVectorStore": vector_store,
    "its retriever": lambda: vector_store().as_retriever(),
    "FAISS": faiss,
    "FAISS's docstore": lambda: faiss().docstore,
    "key-value store": byte_store,
    "LangChain BM25": langchain_bm25,
    "VectorStoreIndex": index,
    "index retriever": lambda: index().as_retriever(),
    "storage context": lambda: index().storage_context,
    "docstore": docstore,
    "LlamaIndex BM25": llama_index_bm25,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("listing", LISTINGS.values(), ids=list(LISTINGS))
def test_whatever_lists_chunks_is_a_corpus(listing: Any) -> None:
    corpus = read_corpus(listing())
    assert sorted(corpus.chunks.texts) == sorted(TEXTS)
    found = diagnose(report_of({"q": ["Gone."]}, {"q": TEXTS[:1]}), corpus=listing())
    assert found.counts == {"not_indexed": 1}


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_a_corpus_file_is_a_corpus(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"corpus.{ending}"
    rows = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)]
    lines = "\n".join(map(json.dumps, rows)) if ending == "jsonl" else json.dumps(rows)
    path.write_text(lines, encoding="utf-8")
    assert read_corpus(path).by_id == {"0": [0], "1": [1], "2": [2]}


@pytest.mark.parametrize("corpus", [object(), 7, [object()], index().vector_store])
def test_what_lists_no_chunks_is_refused_and_says_what_to_pass(corpus: object) -> None:
    with pytest.raises(
        (TypeError, ChunkRecallError), match=r"corpus=|pass the index|holds no chunk"
    ):
        diagnose(report_of({"q": ["a"]}, {"q": ["b"]}), corpus=corpus)


# Arguments


def test_arguments_of_the_wrong_kind_are_refused() -> None:
    report = report_of({"q": ["a"]}, {"q": ["b"]}, k=(1, 5))
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (TypeError, {"others": [7]}),
        (TypeError, {"others": 7}),
        (TypeError, {"stages": 7}),
        (ValueError, {"at": 3}),
        (ValueError, {"probe_depth": 0}),
        (ValueError, {"token_counter": len, "token_limit": 0}),
    ]
    for error, options in wrong:
        with pytest.raises(error):
            diagnose(report, **options)
    with pytest.raises(TypeError, match="Report"):
        diagnose(report.run)  # type: ignore[arg-type]


def test_a_miss_is_a_miss_at_the_cutoff_that_is_asked_for() -> None:
    report = report_of({"q": ["c"]}, {"q": ["a", "b", "c"]}, k=(1, 2, 3))
    assert diagnose(report).misses == ()
    assert diagnose(report).headline == "nothing was missed"
    (miss,) = diagnose(report, at=2).misses
    assert (miss.cause, miss.findings[0].details) == ("below_cutoff", {"rank": 3})


def test_an_errored_query_is_no_miss() -> None:
    run = Run(rankings=[Ranking(query_id="q", error="down")])
    found = diagnose(score(run, {"q": ["a"]}, k=1))
    assert found.misses == ()
    assert any("1 errored" in note for note in found.notes)


def test_a_report_without_texts_leaves_the_forms_unknown_and_says_so() -> None:
    report = report_of({"q": ["a b"]}, {"q": ["a  b"]}, keep_texts=False)
    found = diagnose(report)
    assert found.counts == {"unknown": 1}
    assert "keep_texts=True" in found.misses[0].remedy
    assert any("keep_texts=True" in note for note in found.notes)


def test_a_saved_report_is_diagnosed_and_the_dataset_brings_back_what_it_lacks(
    tmp_path: Path,
) -> None:
    labels = Dataset(
        [Query(query_id="q", text="t", relevant=[Label(text="Gone away.", chunk_id="id-x")])]
    )
    report = report_of(labels, {"q": ["Gone  away."]}, matcher=ChunkId())
    report.save(tmp_path / "report.json")
    loaded = Report.load(tmp_path / "report.json")
    assert diagnose(loaded).misses[0].label == "id-x"
    again = diagnose(loaded, dataset=labels, corpus=[Chunk(text="Gone away.", chunk_id="id-x")])
    assert again.misses[0].label == "id-x"
    assert again.candidates[0].text == "Gone  away."


@pytest.mark.parametrize(
    "matcher",
    [
        ExactText(),
        ChunkId(),
        ChunkId("key of 'mine'"),
        NormalizedText(),
        NormalizedText(unicode=None, casefold=True, strip_invisible=True),
        NormalizedText(unicode="NFKD", unescape_html=True, strip_accents=True),
        NormalizedText(unicode=None, collapse_whitespace=False),
        Contains(),
        Contains("chunk-in-label"),
        Coverage(0.75),
        Fuzzy(),
    ],
    ids=lambda matcher: matcher.describe(),
)
def test_the_matcher_of_a_report_is_known_by_what_the_report_says(matcher: Any) -> None:
    labels = Dataset([Query(query_id="q", text="t", relevant=[Label(text="a", chunk_id="a")])])
    report = report_of(labels, {"q": ["b"]}, matcher=matcher)
    for one in (report, Report.from_dict(report.to_dict())):
        rules = rules_of(one, None, None, 5)
        assert (rules.matcher, rules.is_matcher_known) == (matcher, True)


def test_a_matcher_of_the_callers_own_is_noted_unless_it_is_passed() -> None:
    class Starts:
        def describe(self) -> str:
            return "starts alike"

        def first_ranks(self, labels: Any, chunks: Any) -> Any:
            texts = [chunk.text for chunk in chunks]
            return tuple(
                next((r for r, text in enumerate(texts, 1) if text.startswith(one.text)), None)
                for one in labels
            )

    report = report_of({"q": ["a"]}, {"q": ["b"]}, matcher=Starts())
    loaded = Report.from_dict(report.to_dict())
    assert any("pass matcher=" in note for note in diagnose(loaded).notes)
    for found in (diagnose(report), diagnose(loaded, matcher=Starts())):
        assert not any("pass matcher=" in note for note in found.notes)


def test_groups_are_one_miss_and_any_alternative_may_explain_it() -> None:
    report = report_of({"q": [["one way", "another way"]]}, {"q": ["Another  way", "another  way"]})
    (miss,) = diagnose(report).misses
    assert miss.label == "one way | another way"
    assert miss.cause == "text_differs"


def test_removed_repeats_are_not_counted_as_ranks() -> None:
    report = report_of({"q": ["c"]}, {"q": ["a", "a", "b", "c"]}, k=2, dedupe=True)
    (miss,) = diagnose(report).misses
    assert (miss.cause, miss.findings[0].details["rank"]) == ("below_cutoff", 3)


def test_the_retriever_that_is_asked_deeper_is_left_as_it_was() -> None:
    store = vector_store()
    retriever = store.as_retriever(search_kwargs={"k": 1})
    labels = {"q": list(TEXTS)}
    report = evaluate_retriever(retriever, labels, k=1, progress=False)
    before = report.to_json()
    found = diagnose(report, retriever=retriever, probe_depth=3)
    assert found.counts == {"below_cutoff": 2}
    assert retriever.search_kwargs == {"k": 1}
    assert report.to_json() == before
    assert [(one.action, one.k, one.recall) for one in found.remedies] == [
        ('search_kwargs={"k": 3}', 3, 1.0)
    ]


def test_stages_that_run_beside_one_another_do_not_lose_each_others_labels() -> None:
    labels = {"q": ["a"]}
    stages = {
        "Vector": report_of(labels, {"q": ["a", "x"]}),
        "BM25": report_of(labels, {"q": ["y", "z"]}),
        "Fusion": report_of(labels, {"q": ["x", "y"]}),
        "final": report_of(labels, {"q": ["x", "y"]}),
    }
    (miss,) = diagnose(stages["final"], stages=stages).misses
    assert (miss.cause, miss.findings[0].details["stage"]) == ("lost_at_stage", "Fusion")


def test_the_token_limit_is_what_the_counter_says_of_itself() -> None:
    class Counter:
        max_seq_length = 3

        def __call__(self, text: str) -> list[str]:
            return text.split()

    (miss,) = diagnose(report_of({"q": ["a b c d"]}, {"q": ["x"]}), token_counter=Counter()).misses
    assert (miss.cause, "4 tokens > 3") == ("truncated", miss.evidence.split(": ")[1])


def test_a_chunk_that_resembles_the_label_is_not_the_label_where_the_corpus_has_both() -> None:
    report = report_of({"q": ["a b"]}, {"q": ["a  b"]})
    for corpus, cause in (
        (None, "text_differs"),
        (["a b"], "text_differs"),  # as the file has it, not as the store gave it
        (["a  b"], "text_differs"),
        (["a b", "a  b"], "label_doubtful"),
    ):
        assert diagnose(report, corpus=corpus).misses[0].cause == cause


def test_the_corpus_is_looked_up_as_the_report_was_matched() -> None:
    report = report_of({"q": ["A  b"]}, {"q": ["other"]}, matcher=NormalizedText(casefold=True))
    (miss,) = diagnose(report, corpus=["a b"]).misses
    assert (miss.cause, "it is indexed" in miss.evidence) == ("unknown", True)
    report = report_of({"q": ["A  b"]}, {"q": ["other"]})
    assert diagnose(report, corpus=["a b"]).misses[0].cause == "text_differs"


def test_ids_under_a_metadata_key_are_looked_up_under_it() -> None:
    labels = Dataset([Query(query_id="q", text="t", relevant_ids=["k1"])])
    report = report_of(labels, {"q": ["other"]}, matcher=ChunkId("key"))
    chunk = Chunk(text="text", chunk_id="x", metadata={"key": "k1"})
    assert "it is indexed" in diagnose(report, corpus=[chunk]).misses[0].evidence
    assert diagnose(report, corpus=[Chunk(text="text")]).misses[0].cause == "not_indexed"


def test_a_label_that_is_a_place_is_looked_up_by_its_place() -> None:
    place = Label.span("rules", 100, 180)
    labels = Dataset([Query(query_id="q", text="t", relevant=[place])])
    placed = [
        Chunk(text="a" * 150, metadata={"source": "rules", "start_index": 0}),
        Chunk(text="b" * 150, metadata={"source": "rules", "start_index": 150}),
    ]
    report = report_of(labels, {"q": ["other"]}, matcher=Coverage())
    for one in (report, Report.from_dict(report.to_dict())):
        (miss,) = diagnose(one, corpus=placed).misses
        assert (miss.cause, "it is indexed" in miss.evidence) == ("unknown", True)
        (miss,) = diagnose(one, corpus=placed[:1]).misses
        assert (miss.cause, miss.certainty) == ("not_indexed", "fact")
        assert "lookup by coverage" in miss.evidence
        # Chunks that do not say where they stand tell nothing of a place.
        (miss,) = diagnose(one, corpus=["a" * 150, "b" * 150]).misses
        assert (miss.cause, "where they stand" in miss.remedy) == ("unknown", True)


# Passages


def test_a_long_label_stands_in_a_chunk_even_where_it_begins_within_a_word() -> None:
    chunks = Passages(["Fees: 100 a year", r"\n\nOslo is the capital of Norway and of its fjords"])
    assert chunks.containing("10") is None
    assert chunks.containing("Oslo is the capital of Norway") == 1


@pytest.mark.parametrize(
    ("wanted", "texts", "share"),
    [
        ("abcdef ghijkl", ["abcdef", "ghijkl"], 1.0),
        ("abcdef ghijkl", ["xx abcdef", "ghijkl yy"], 1.0),
        ("abcdef ghijkl", ["abcdef yy", "xx ghijkl"], 0.0),
        ("abcdef ghijkl", ["abcdef"], 0.5),
        ("", ["a"], 0.0),
        ("a\0b", ["ab"], 1.0),
        ("abc", [], 0.0),
    ],
)
def test_pieces_end_where_the_passage_or_the_wanted_text_does(
    wanted: str, texts: list[str], share: float
) -> None:
    assert Passages(texts).cover(wanted)[1] == share


# Views


def test_every_view_says_the_headline_and_json_is_plain() -> None:
    labels = {f"q{n}": [f"text {n}"] for n in range(3)}
    found = diagnose(report_of(labels, {q: [t[0] + "\n"] for q, t in labels.items()}))
    headline = "all 3 misses become hits under whitespace normalisation"
    for shown in (str(found), found.to_markdown(), found._repr_html_(), repr(found)):
        assert headline in shown
    row = json.loads(found.to_json())
    assert (row["format"], row["headline"]) == ("chunkrecall-diagnosis", headline)
    assert list(row["counts"]) == ["text_differs"]
    assert row["misses"][0]["findings"][0]["details"]["rank"] == 1
    assert set(row["counts"]) <= set(CAUSES)


# Command line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    labels = {f"q{n}": [f"text {n}"] for n in range(4)}
    lists = {q: [texts[0].replace(" ", "  "), "other"] for q, texts in labels.items()}
    report = report_of(labels, lists)
    assert report.run is not None
    report.save("report.json")
    save_dataset(labels, "labels.jsonl")
    save_run(report.run, "run.jsonl")
    rows = [{"id": q, "text": texts[0]} for q, texts in labels.items()]
    Path("corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    Path("searchmod.py").write_text(
        "def search(text):\n    print('noise')\n    return ['x']\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return exit_.value.code or 0  # type: ignore[return-value]


@pytest.mark.parametrize(
    "arguments",
    [
        ("report.json",),
        ("run.jsonl", "--dataset", "labels.jsonl"),
        ("report.json", "--dataset", "labels.jsonl", "--other", "run.jsonl", "--at", "5"),
    ],
    ids=["report", "run", "both"],
)
def test_the_command_says_the_headline_in_every_format(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    for form in ("table", "markdown", "json"):
        assert run_cli("diagnose", *arguments, "--format", form) == 0
        shown = capsys.readouterr().out
        assert "all 4 misses become hits under whitespace normalisation" in shown
        if form == "json":
            assert json.loads(shown)["counts"] == {"text_differs": 4}


def test_the_command_looks_into_the_corpus_asks_the_retriever_and_writes_a_draft(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_cli(
        "diagnose", "report.json", "--dataset", "labels.jsonl", "--corpus", "corpus.jsonl",
        "--retriever", "searchmod:search", "--draft", "draft.jsonl", "--format", "json",
        "--match", "exact",
    )  # fmt: skip
    shown = capsys.readouterr()
    assert code == 0
    row = json.loads(shown.out)
    assert row["counts"] == {"text_differs": 4}
    assert "draft.jsonl" in shown.err
    assert "chunkrecall_draft" in Path("draft.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("run.jsonl",), "--dataset"),
        (("none.json",), "none.json"),
        (("report.json", "--at", "3"), "recall@3"),
        (("report.json", "--threshold", "0.8"), "--match coverage"),
        (("report.json", "--probe-depth", "5"), "--retriever"),
        (("report.json", "--draft", "report.json"), "exists"),
        (("report.json", "--corpus", "none.jsonl"), "none.jsonl"),
    ],
)
def test_what_the_command_cannot_do_is_bad_input(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], phrase: str
) -> None:
    assert run_cli("diagnose", *arguments) == 2
    assert phrase in capsys.readouterr().err
