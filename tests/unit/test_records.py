"""Records: every odd input refused by name, equality, laziness, copies and fingerprints."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from chunkrecall import Chunk, Dataset, DatasetError, Label, Query, Ranking, Run, score
from chunkrecall.records import Chunks, as_dataset


def query(**fields: Any) -> Query:
    return Query(**{"query_id": "q", "text": "t", **fields})


@pytest.mark.parametrize("field", ["relevant", "relevant_ids", "tags"])
@pytest.mark.parametrize("bare", ["ab", b"ab", {"a": 1}, 7, bytearray(b"a")], ids=repr)
def test_what_is_no_list_is_a_type_error_naming_query_and_field(field: str, bare: Any) -> None:
    with pytest.raises(TypeError, match=rf"Query 'q': {field}"):
        query(**{field: bare})


@pytest.mark.parametrize("item", [None, 7, b"a", {"text": "a"}, {"a"}, True, 1.5], ids=repr)
def test_what_is_no_label_is_a_type_error_naming_its_place(item: Any) -> None:
    with pytest.raises(TypeError, match=r"relevant\[1\]"):
        query(relevant=["a", item])
    with pytest.raises(TypeError, match=r"relevant\[1\]\[0\]"):
        query(relevant=["a", [item, "b"]])


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u3000\u2028"])
def test_a_blank_label_or_id_is_a_value_error_at_every_entry(blank: str) -> None:
    for refused in (
        lambda: query(relevant=[blank]),
        lambda: query(relevant=["a", ["b", blank]]),
        lambda: query(relevant_ids=[blank]),
        lambda: Label(text=blank),
        lambda: Label(text="a", chunk_id=blank),
    ):
        with pytest.raises(ValueError, match="blank"):
            refused()


GROUP = Label(alternatives=(Label(text="a"), Label(text="b")))


@pytest.mark.parametrize(
    "item", [[["a"], "b"], [("a", "b")], [GROUP, "c"], [GROUP], [[]], []], ids=repr
)
def test_a_group_is_neither_empty_nor_nested(item: Any) -> None:
    with pytest.raises(ValueError, match="group"):
        query(relevant=[item])


@pytest.mark.parametrize(
    "fields",
    [
        {"alternatives": (Label(text="a"),), "text": "x"},
        {"alternatives": (Label(text="a"),), "chunk_id": "x"},
        {"alternatives": (Label(text="a"), Label(text="b")), "grade": 2},
        {"alternatives": (GROUP,)},
        {"text": "a", "grade": True},
        {"text": "a", "grade": 1.0},
        {"text": "a", "grade": "1"},
        {"text": b"a"},
        {"chunk_id": 5},
    ],
)
def test_a_label_whose_meaning_is_unclear_is_a_value_error(fields: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Label(**fields)


def test_a_label_is_what_its_repr_says() -> None:
    for label in (GROUP, Label(text="a\n", chunk_id="1", grade=0), Label(chunk_id="1")):
        assert eval(repr(label)) == label
    assert query(relevant=[["a"]]).relevant == (Label(text="a"),)
    assert query(relevant=[("a", Label(text="b"))]).relevant == (GROUP,)


@pytest.mark.parametrize(
    ("metadata", "phrase"),
    [("ab", "dict"), (5, "dict"), ([("a", 1)], "dict"), ({1: 2}, "keys must be strings")],
)
def test_metadata_that_is_no_dict_of_names_is_a_type_error(metadata: Any, phrase: str) -> None:
    with pytest.raises(TypeError, match=phrase):
        query(metadata=metadata)


def test_conflicting_grades_are_all_named_and_equal_ones_pass() -> None:
    one, two = Label(text="a"), Label(text="a", grade=2)
    with pytest.raises(DatasetError) as caught:
        query(relevant=[one, two, [Label(chunk_id="b", grade=3), "c"]], relevant_ids=["b"])
    assert [problem.place for problem in caught.value.problems] == ["Query 'q'"] * 2
    query(relevant=[two, two, [two, "b"]])
    query(relevant=[one, Label(text="a", chunk_id="1", grade=2)])  # two labels until a matcher says


def test_what_the_caller_passes_is_copied_and_records_are_frozen() -> None:
    relevant, metadata = ["a"], {"m": 1}
    made = query(relevant=relevant, metadata=metadata)
    relevant.append("b")
    metadata["m"] = 2
    assert (made.relevant, made.metadata) == ((Label(text="a"),), {"m": 1})
    for record, field in (
        (made, "text"),
        (Label(text="a"), "grade"),
        (Dataset([made]), "queries"),
        (Chunk(text="a"), "text"),
        (Run(), "name"),
    ):
        with pytest.raises((ValueError, AttributeError)):
            setattr(record, field, "x")


def test_bad_records_are_named_by_their_own_number_all_at_once() -> None:
    rows: list[Any] = [
        3,
        {"text": "a"},
        {"text": 5},
        {"question": "b"},
        {"text": "a"},
        {"text": "c", "relevant": [Label(text="x"), Label(text="x", grade=2)]},
        {"text": "d", "relevant": float("nan")},
    ]
    with pytest.raises(DatasetError) as caught:
        Dataset.from_records(rows)
    problems = caught.value.problems
    assert [problem.place for problem in problems] == [f"record {i}" for i in (0, 2, 3, 4, 5, 6)]
    phrases = ["dict", "text must be", "'question'", "record 1", "grades 1 and 2", "nan"]
    assert all(phrase in p.message for phrase, p in zip(phrases, problems, strict=True))


@pytest.mark.parametrize("records", ["abc", b"abc", {"text": "a"}, None, 5])
def test_records_that_are_no_list_are_a_type_error(records: Any) -> None:
    with pytest.raises(TypeError, match="records must be a list of dicts"):
        Dataset.from_records(records)


def test_records_are_read_by_the_named_keys_and_none_leaves_a_field_out() -> None:
    rows = [{"id": "1", "q": "one", "gold": ["a"], "ids": ["9"], "kind": ["t"], "metadata": {}}]
    names: dict[str, Any] = {"query": "q", "relevant": "gold", "query_id": "id", "tags": "kind"}
    (one,) = Dataset.from_records(rows, relevant_ids="ids", **names)
    assert one == Query(query_id="1", text="one", relevant=["a"], relevant_ids=["9"], tags=["t"])
    (two,) = Dataset.from_records(iter(rows), query="q", relevant=None, query_id=None)
    assert (two.query_id, two.relevant, two.tags) == ("one", None, ())


def test_a_key_of_the_callers_own_that_no_record_has_is_refused() -> None:
    rows = [{"question": "a", "gold": ["x"]}, {"question": "b"}]
    with pytest.raises(
        DatasetError, match=r"no record has the key 'golds' \(for relevant\).*'gold'"
    ):
        Dataset.from_records(rows, query="question", relevant="golds")
    with pytest.raises(DatasetError) as caught:
        Dataset.from_records(rows, query="question", relevant="g", query_id="i", tags="t")
    assert [problem.place for problem in caught.value.problems] == ["records"] * 3
    assert len(Dataset.from_records(rows, query="question", relevant="gold", tags=None)) == 2
    assert len(Dataset.from_records([], relevant="gold")) == 0
    unjudged = Dataset.from_records([{"text": "a", "gold": None}], relevant="gold")
    assert unjudged["a"].relevant is None


def test_a_mapping_or_a_list_of_queries_is_a_dataset_and_nothing_else_is() -> None:
    assert list(as_dataset({"a": ["x"], "b": None, "c": []})) == [
        Query(query_id="a", text="a", relevant=["x"]),
        Query(query_id="b", text="b"),
        Query(query_id="c", text="c", relevant=[]),
    ]
    assert len(as_dataset([query()])) == len(as_dataset((query(),))) == 1
    for bad in ("labels.jsonl", None, 5, {"a": "bare"}, {5: ["a"]}, [{"text": "a"}]):
        with pytest.raises(TypeError):
            as_dataset(bad)  # type: ignore[arg-type]


def test_a_dataset_survives_copying_and_pickling_and_equals_its_kind() -> None:
    dataset = Dataset([query(relevant=[["a", "b"]], metadata={"m": [1]})], name="n")
    assert dataset.fingerprint
    for again in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert again == dataset
        assert (again["q"], again.fingerprint) == (dataset["q"], dataset.fingerprint)
    assert dataset != Dataset([query()], name="n")
    assert [q.query_id for q in Dataset([query(query_id=i) for i in "ba"])] == ["b", "a"]
    with pytest.raises(DatasetError, match="'q' is taken by query 0"):
        Dataset(iter([query(), query(text="u")]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"relevant": ["ab"]}, {"relevant": ["a", "b"]}),
        ({"relevant": ["1"]}, {"relevant_ids": ["1"]}),
        ({"relevant": None}, {"relevant": []}),
        ({"relevant": ["a"]}, {"relevant": [Label(text="a", grade=0)]}),
        ({"relevant": [Label(text="a", chunk_id="b")]}, {"relevant": ["a"], "relevant_ids": ["b"]}),
        ({"relevant": [["a", "b"]]}, {"relevant": ["a", "b"]}),
        ({"tags": ["ab"]}, {"tags": ["a", "b"]}),
        ({"text": "t1", "tags": ["x"]}, {"text": "t", "tags": ["1x"]}),
        ({"query_id": "q1"}, {"query_id": "q"}),
        ({"relevant": ["\ud800"]}, {"relevant": ["?"]}),
    ],
)
def test_the_fingerprint_tells_apart_what_scores_differently(one: Any, other: Any) -> None:
    assert Dataset([query(**one)]).fingerprint != Dataset([query(**other)]).fingerprint


def test_the_fingerprint_ignores_order_repeats_name_and_metadata() -> None:
    first = query(relevant=["a", ["b", "c"]], tags=["x", "y"], metadata={"m": 1})
    second = query(query_id="r")
    turned = query(relevant=[["c", "b"], "a", "a"], tags=["y", "x", "y"])
    assert Dataset([first, second], name="n").fingerprint == Dataset([second, turned]).fingerprint


def test_a_chunk_of_a_ranking_can_be_copied_pickled_and_taken_apart() -> None:
    ranking = Ranking(query_id="q", chunks=[Chunk(text="a")])
    chunk = ranking.chunks[0]
    assert dataclasses.asdict(chunk) == {
        "text": "a",
        "chunk_id": None,
        "score": None,
        "metadata": {},
    }
    assert pickle.loads(pickle.dumps(chunk)) == copy.deepcopy(chunk) == chunk == Chunk(text="a")
    run = Run(rankings=[ranking])
    assert pickle.loads(pickle.dumps(run)) == copy.deepcopy(run) == run


def test_chunks_are_a_sequence_like_a_tuple_of_chunks() -> None:
    listed = [Chunk(text=t, chunk_id=i, score=s) for t, i, s in (("a", None, 1), ("b", "2", None))]
    chunks = Chunks.of(listed)
    plain = tuple(listed)
    assert chunks == listed == list(chunks)
    assert plain == chunks
    for part in (slice(None), slice(1, None), slice(None, None, -1), slice(5, 9), slice(-1, None)):
        assert chunks[part] == plain[part]
    assert (chunks[-1], chunks.index(plain[1]), plain[0] in chunks) == (plain[1], 1, True)
    assert chunks != plain[:1]
    assert chunks != "ab"
    assert list(chunks.take([1, 0])) == [plain[1], plain[0]]
    assert Chunks.of(iter(listed)) == chunks
    assert Chunks.of([]) == ()
    for index in (2, -3):
        with pytest.raises(IndexError):
            chunks[index]


def test_a_chunk_is_made_only_when_somebody_looks_at_it() -> None:
    broken = Chunks(["a", 7], ["1", "2"])  # type: ignore[list-item]
    assert len(broken) == 2
    assert broken[0] == Chunk(text="a", chunk_id="1")
    with pytest.raises(TypeError, match="text must be a string"):
        broken[1]


@pytest.mark.parametrize(
    ("metadata", "doc_id"),
    [
        ({"doc_id": "1", "ref_doc_id": "2", "source": "3"}, "1"),
        ({"doc_id": None, "ref_doc_id": "2", "source": "3"}, "2"),
        ({"doc_id": 5, "source": "3"}, "3"),
        ({"file": "4"}, None),
    ],
)
def test_the_document_of_a_chunk_is_the_first_key_with_a_text(metadata: Any, doc_id: Any) -> None:
    assert Chunk(text="a", metadata=metadata).doc_id == doc_id


def test_runs_and_rankings_equal_their_kind_and_refuse_the_rest() -> None:
    def ranking(**fields: Any) -> Ranking:
        return Ranking(**{"query_id": "q", "chunks": [Chunk(text="a")], **fields})

    assert ranking() == ranking(exception=ValueError())
    for changed in ({"query_id": "r"}, {"error": "e"}, {"latency_s": 1.0}, {"query_text": "t"}):
        assert ranking() != ranking(**changed)
    assert ranking() != "q"
    assert Run(rankings=[ranking()]) == Run(rankings=iter([ranking()]))  # type: ignore[arg-type]
    assert Run() != Run(complete=False)
    with pytest.raises(TypeError, match="unhashable"):
        hash(ranking())
    for bad in ("q", {"q": 1}, b"q", [None], [{"query_id": "q"}]):
        with pytest.raises(TypeError):
            Run(rankings=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="query_id"):
        Ranking(query_id=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'q' has more than one"):
        Run(rankings=[ranking(), ranking(error="e")])


def test_scoring_changes_neither_run_nor_dataset() -> None:
    run = Run(rankings=[Ranking(query_id="q", chunks=[Chunk(text="a"), Chunk(text="a")])])
    dataset = Dataset([query(relevant=["a"])])
    before = copy.deepcopy((run, dataset))
    score(run, dataset, dedupe=True, exclude_self=True)
    assert (run, dataset) == before
