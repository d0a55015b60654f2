"""Source spans as labels, and labels resolved against the chunks of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from chunkrecall import (
    Chunk,
    Coverage,
    Dataset,
    ExactText,
    Label,
    Overlap,
    Query,
    Report,
    check_dataset,
    evaluate_retriever,
    load_dataset,
    relabel,
    save_dataset,
    score,
)
from chunkrecall.labels.overlap import longest_overlap
from chunkrecall.langchain import documents_to_chunks
from chunkrecall.records import Ranking, Run, Span

TEXT = "The first rule is silence. The second rule is patience, and the third is to leave early."


def dataset_of(*labels: Any) -> Dataset:
    return Dataset([Query(query_id="q", text="?", relevant=list(labels))])


def cut(text: str, *ends: int, **metadata: Any) -> list[Chunk]:
    """The text cut at these places, each piece stripped as splitters do, with its offset."""
    pieces = []
    for start, end in zip((0, *ends), (*ends, len(text)), strict=True):
        piece = text[start:end]
        offset = start + len(piece) - len(piece.lstrip())
        place = {"source": "d", "start_index": offset, **metadata}
        pieces.append(Chunk(text=piece.strip(), chunk_id=f"c{len(pieces)}", metadata=place))
    return pieces


def ids(resolved: Any, query_id: str = "q") -> list[Any]:
    return [
        [member.chunk_id for member in label.members] if label.alternatives else label.chunk_id
        for label in resolved.dataset[query_id].relevant or ()
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"doc_id": "d"}, "a span needs doc_id, start and end"),
        ({"doc_id": "d", "start": 1}, "a span needs doc_id, start and end"),
        ({"start": 1, "end": 2, "text": "a"}, "a span needs doc_id, start and end"),
        ({"doc_id": "d", "start": 2, "end": 2}, "0 <= start < end"),
        ({"doc_id": "d", "start": -1, "end": 2}, "0 <= start < end"),
        ({"doc_id": " ", "start": 1, "end": 2}, "must not be blank"),
        ({"doc_id": "d", "start": 1, "end": 3, "text": "abc"}, "characters, not bytes"),
        ({"doc_id": "d", "start": "1", "end": 3}, "valid integer"),
    ],
)
def test_a_span_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Label(**fields)


def test_a_span_shows_compares_and_saves_as_what_it_is(tmp_path: Path) -> None:
    label = Label.span("d", 3, 9, grade=2)
    assert label.source_span == Span("d", 3, 9)
    assert (str(label), repr(label)) == ("d[3:9]", "Label(doc_id='d', start=3, end=9, grade=2)")
    dataset = dataset_of(label, [Label.span("d", 1, 2), "other"], Label.span("d", 0, 3, text="abc"))
    for name in ("set.jsonl", "set.json", "set.csv"):
        save_dataset(dataset, tmp_path / name)
        assert load_dataset(tmp_path / name).queries == dataset.queries, name
    fingerprints = {dataset_of(Label.span("d", 3, end)).fingerprint for end in (8, 9)}
    assert len(fingerprints | {dataset_of("d[3:9]").fingerprint}) == 3


def test_a_span_without_a_text_is_refused_by_what_reads_texts() -> None:
    with pytest.raises(ValueError, match=r"match spans by Coverage\(\), or resolve them"):
        score(Run(), dataset_of(Label.span("d", 3, 9)), k=1)
    with pytest.raises(ValueError, match="no text"):
        ExactText().first_ranks([Label.span("d", 3, 9)], [])
    with pytest.raises(ValueError, match="has no text"):
        Coverage().first_ranks([Label(chunk_id="x")], [])


@pytest.mark.parametrize(
    "metadata",
    [
        {"source": "d"},
        {"start_index": 0},
        {"source": "d", "start_index": -1},
        {"source": "d", "start_index": "0"},
        {"source": "d", "start_index": True},
        {"source": 5, "start_index": 0},
        {"source": "d", "start_char_idx": None, "end_char_idx": None},
        {"source": "d", "start_char_idx": 4, "end_char_idx": 4},
    ],
    ids=str,
)
def test_metadata_without_usable_offsets_place_nothing_and_say_so(metadata: dict[str, Any]) -> None:
    chunk = Chunk(text="abcdef", metadata=metadata)
    assert chunk.span is None
    run = Run(rankings=[Ranking(query_id="q", chunks=[chunk])])
    report = score(run, dataset_of(Label.span("d", 0, 6)), k=1, matcher=Coverage())
    assert report.mean(1) == 0.0
    assert any("add_start_index=True" in note for note in report.notes)
    resolved = relabel(dataset_of(Label.span("d", 0, 6)), [chunk])
    assert "no chunk of the corpus carries offsets" in resolved.unresolved[0].reason
    assert resolved.dataset["q"].relevant is None


def test_the_offsets_of_a_document_are_those_of_its_content_whatever_text_is_taken() -> None:
    document = Document(
        page_content="long content", metadata={"source": "d", "start_index": 5, "t": "x"}
    )
    for text_from in (None, "t"):
        assert documents_to_chunks([document], text_from=text_from)[0].span == Span("d", 5, 17)
    assert document.metadata == {"source": "d", "start_index": 5, "t": "x"}


def test_a_passage_and_its_span_resolve_to_the_same_chunks() -> None:
    start = TEXT.index("The second")
    passage = TEXT[start : TEXT.index(", and")]
    for ends, expected in (
        ((27,), ["c1"]),
        ((43,), ["c0", "c1"]),
        ((27, 50), ["c1"]),
        ((), ["c0"]),
    ):
        chunks = cut(TEXT, *ends)
        by_text = relabel(dataset_of(passage), chunks)
        by_place = relabel(
            dataset_of(Label.span("d", start, start + len(passage), text=passage)), chunks
        )
        if ends != (27, 50):  # its last four characters are too few to be known by their text
            assert ids(by_text) == ids(by_place) == expected
        else:
            assert (ids(by_text), ids(by_place)) == (expected, ["c1", "c2"])
        assert by_text.unresolved == by_place.unresolved == ()


def test_windows_that_each_hold_the_whole_label_are_alternatives() -> None:
    windows = [
        Chunk(
            text=TEXT[start : start + 60],
            chunk_id=f"w{start}",
            metadata={"source": "d", "start_index": start},
        )
        for start in (0, 10, 20)
    ]
    span = Label.span("d", 22, 50)
    assert ids(relabel(dataset_of(span), windows)) == [["w0", "w10", "w20"]]
    assert ids(relabel(dataset_of(TEXT[22:50]), windows)) == [["w0", "w10", "w20"]]


def test_the_rule_says_how_much_a_chunk_must_share() -> None:
    chunks = cut("a" * 300, 150)
    label = dataset_of(Label.span("d", 100, 180))  # 50 in the first, 30 in the second
    for rule, expected in (
        ("any", ["c0", "c1"]),
        (0, ["c0", "c1"]),
        (0.375, ["c0", "c1"]),
        (0.4, ["c0"]),
        (0.625, ["c0"]),
        (Overlap(0.2, of="chunk"), ["c0", "c1"]),
        (Overlap(0.3, of="chunk"), ["c0"]),
    ):
        assert ids(relabel(label, chunks, rule=rule)) == expected, rule
    strict = relabel(label, chunks, rule=0.7)
    assert "share too little" in strict.unresolved[0].reason
    (partial,) = relabel(label, chunks, rule=0.5).partial
    assert (partial.covered, partial.reason) == (0.625, "the chosen chunks hold 0.625 of it")


@pytest.mark.parametrize("rule", ["half", -0.1, 1.1, None, True, float("nan"), [0.5]])
def test_a_rule_that_is_none_is_refused(rule: Any) -> None:
    with pytest.raises(ValueError, match="rule must be|min_share must be"):
        relabel(dataset_of("a"), [], rule=rule)


def test_what_is_not_resolved_leaves_the_set_and_is_counted() -> None:
    chunks = [
        Chunk(text="Refunds  take 14 days.", chunk_id="r"),
        Chunk(text="Express costs 9 euros."),
    ]
    queries = [
        Query(
            query_id="q",
            text="?",
            relevant=["Refunds take 14 days!", Label(text="Express costs 9 euros.", grade=3)],
        ),
        Query(query_id="none", text="?", relevant=[]),
        Query(query_id="unjudged", text="?"),
        Query(query_id="lost", text="?", relevant_ids=["gone"], tags=["t"], metadata={"m": 1}),
        Query(query_id="group", text="?", relevant=[["gone too", "Refunds take 14 days."]]),
    ]
    resolved = relabel(Dataset(queries, name="set"), chunks)
    made = resolved.dataset
    assert [one.grade for one in made["q"].relevant or ()] == [3]
    assert (made["none"].relevant, made["unjudged"].relevant, made["lost"].relevant) == (
        (),
        None,
        None,
    )
    assert (made["lost"].tags, made["lost"].metadata["m"], made.name) == (("t",), 1, "set")
    assert ids(resolved, "group") == ["r"]
    assert [one.query_id for one in resolved.unresolved] == ["q", "lost"]
    assert resolved.labels == 4
    assert "no chunk has the id 'gone'" in resolved.unresolved[1].reason
    assert any("2 labels of 2 queries" in note for note in made.notes)
    assert resolved.to_dict()["unresolved"][1]["label"] == "gone"
    assert "not resolved" in resolved.to_markdown()
    assert "<table" in resolved._repr_html_()


def test_labels_that_meet_in_one_chunk_become_one_with_the_higher_grade() -> None:
    chunks = cut(TEXT)
    resolved = relabel(dataset_of(Label.span("d", 0, 9), Label.span("d", 10, 20, grade=2)), chunks)
    assert [(one.chunk_id, one.grade) for one in resolved.dataset["q"].relevant or ()] == [
        ("c0", 2)
    ]


def test_the_check_of_a_set_knows_spans() -> None:
    chunks = cut(TEXT, 27)
    assert check_dataset(dataset_of(Label.span("d", 0, 9)), chunks).ok
    outside = check_dataset(dataset_of(Label.span("d", 900, 950), Label.span("e", 0, 9)), chunks)
    assert [one.kind for one in outside.findings] == ["dangling label"] * 2
    assert "d[900:950]" in outside.findings[0].message


def test_coverage_stands_in_every_view_of_a_report_and_survives_a_file(tmp_path: Path) -> None:
    dataset = Dataset(
        [
            Query(
                query_id="q", text="?", relevant=[TEXT, ["nothing of it", TEXT[:26]]], tags=["t"]
            ),
            Query(query_id="e", text="fails", relevant=["x"]),
            Query(query_id="n", text="none", relevant=[]),
        ]
    )

    def search(text: str) -> list[str]:
        if text == "fails":
            raise ValueError(text)
        return [TEXT[:26], TEXT[26:]]

    report = evaluate_retriever(search, dataset, k=(1, 2), matcher=Coverage(), progress=False)
    solid = len("".join(TEXT.split()))
    first = len("".join(TEXT[:26].split())) / solid
    query = report.queries[0]
    assert query.coverage == {"coverage@1": (first + 1) / 2, "coverage@2": 1.0}
    assert query.ranks == {TEXT: 2, f"nothing of it | {TEXT[:26]}": 1}
    summary = report.summary["coverage@1"]
    assert summary.mean == (first + 1) / 2
    assert (summary.bound_low, summary.bound_high) == ((first + 1) / 4, (first + 3) / 4)
    assert (summary.averaged_over, summary.errored, summary.undefined) == (1, 1, 1)
    assert report.by_tag()["t"]["coverage@2"].mean == 1.0
    assert "coverage" in str(report)
    assert "coverage" in report.to_markdown()
    assert report.to_pandas()["coverage@1"][0] == (first + 1) / 2
    report.save(tmp_path / "r.json")
    loaded = Report.load(tmp_path / "r.json")
    assert loaded == report
    assert loaded.summary == report.summary
    plain = evaluate_retriever(search, dataset, k=1, progress=False)
    assert "coverage@1" not in plain.summary
    assert "coverage" not in str(plain)
    assert plain.queries[0].coverage == {}


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_longest_overlap_is_the_longest_that_there_is(first: str, second: str) -> None:
    sizes = range(min(len(first), len(second)), -1, -1)
    expected = next(size for size in sizes if first[len(first) - size :] == second[:size])
    assert longest_overlap(first, second) == expected
