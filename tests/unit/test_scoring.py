"""Scoring: one status each, exact means and bounds under every policy, notes said once."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from chunkrecall import Chunk, ChunkId, Dataset, ExactText, Label, Query, Ranking, Run, score

HIGH, LOW = Label(text="high", grade=2), Label(text="low")
DATASET = Dataset(
    [
        Query(query_id="full", text="t", relevant=["a"], tags=["x"]),
        Query(query_id="half", text="t", relevant=["a", "b"], tags=["x", "y"]),
        Query(query_id="broken", text="t", relevant=["a"]),
        Query(query_id="nothing", text="t", relevant=[]),
        Query(query_id="nothing-broken", text="t", relevant=[]),
        Query(query_id="unjudged", text="t", tags=["z"]),
        Query(query_id="gone", text="t", relevant=["a"]),
        Query(query_id="gone-nothing", text="t", relevant=[]),
    ]
)


def ranking(query_id: str, *texts: str, error: str | None = None) -> Ranking:
    return Ranking(query_id=query_id, chunks=[Chunk(text=t) for t in texts], error=error)


def run(*, complete: bool = True) -> Run:
    return Run(
        complete=complete,
        rankings=[
            ranking("full", "a"),
            ranking("half", "x", "b"),
            ranking("broken", error="E: x"),
            ranking("nothing", "x"),
            ranking("nothing-broken", error="E: x"),
            ranking("unjudged", "x"),
            ranking("foreign", "x"),
            ranking("stranger"),
        ],
    )


@pytest.mark.parametrize("complete", [True, False])
def test_each_query_has_one_status_and_they_sum_to_the_total(complete: bool) -> None:
    report = score(run(complete=complete), DATASET, k=(1, 2))
    gone = "scored" if complete else "not_run"
    assert [query.status for query in report.queries] == [
        "scored", "scored", "errored", "undefined", "undefined", "undefined", gone, "undefined",
    ]  # fmt: skip
    for one in report.summary.values():
        assert one.scored + one.undefined + one.errored + one.not_run + one.unlabelled == one.total
        assert (one.unlabelled, one.total) == (2, 10)
    assert report.absent == complete
    for query in report.queries:
        for values in (query.recall, query.hit, query.complete):
            assert all((value is None) == (query.status != "scored") for value in values.values())
        assert query.reason.startswith("Recall@2" if query.status == "scored" else "no score: ")
    # "nothing" returned something; "gone-nothing" returned nothing where the run is complete
    assert (report.rejected, report.rejectable) == ((1, 2) if complete else (0, 1))


@pytest.mark.parametrize("on_error", ["record", "zero"])
@pytest.mark.parametrize("no_relevant", ["exclude", "zero", "one", "mlflow"])
@pytest.mark.parametrize("complete", [True, False])
def test_a_policy_assigns_values_and_changes_no_status(
    on_error: Any, no_relevant: Any, complete: bool
) -> None:
    plain = score(run(complete=complete), DATASET, k=2)
    report = score(run(complete=complete), DATASET, k=2, on_error=on_error, no_relevant=no_relevant)
    assert [q.status for q in report.queries] == [q.status for q in plain.queries]
    got = [Fraction(1), Fraction(1, 2)] + [Fraction(0)] * complete
    value = {"zero": 0, "one": 1}.get(no_relevant)
    if value is not None:
        got += [Fraction(value)] * 3
    if no_relevant == "mlflow":  # an answer that nobody got is not judged
        got += [Fraction(0)] + [Fraction(1)] * complete
    with_errors = got + [Fraction(0)] * (on_error == "zero")
    one = report.summary["recall@2"]
    assert one.averaged_over == len(with_errors)
    assert one.mean == float(sum(with_errors) / len(with_errors))
    assert one.bound_low == float(sum(got) / (len(got) + 1))
    assert one.bound_high == float((sum(got) + 1) / (len(got) + 1))
    assert one.pooled == plain.summary["recall@2"].pooled == (2 / 4 if complete else 2 / 3)
    assert (report.rules["on_error"], report.rules["no_relevant"]) == (on_error, no_relevant)


def test_without_errors_the_bounds_are_the_mean_and_without_scores_there_is_none() -> None:
    one = score(run(), DATASET, k=1).by_tag()["y"]["recall@1"]
    assert one.mean == one.bound_low == one.bound_high == 0.0
    none = score(run(), DATASET, k=1).by_tag()["z"]["recall@1"]
    assert (none.mean, none.bound_low, none.bound_high, none.pooled) == (None,) * 4
    assert list(score(run(), DATASET, k=1).by_tag()) == ["x", "y", "z"]


def test_means_pooled_shares_and_ceilings_are_exact() -> None:
    draw = random.Random(3)
    for _ in range(40):
        sizes = [draw.randint(1, 9) for _ in range(draw.randint(1, 25))]
        found = [draw.randint(0, size) for size in sizes]
        dataset = {str(i): [f"l{n}" for n in range(size)] for i, size in enumerate(sizes)}
        rankings = [ranking(str(i), *[f"l{n}" for n in range(f)]) for i, f in enumerate(found)]
        report = score(Run(rankings=rankings), dataset, k=(2, None))
        for k, name in ((2, "2"), (99, "all")):
            pairs = [(min(k, f), size) for f, size in zip(found, sizes, strict=True)]
            one = report.summary[f"recall@{name}"]
            assert one.mean == float(sum(Fraction(*pair) for pair in pairs) / len(pairs))
            assert one.pooled == sum(f for f, _ in pairs) / sum(sizes)
            most = sum(Fraction(min(k, size), size) for size in sizes) / len(sizes)
            assert one.ceiling == (float(most) if most < 1 else None)
            assert one.mean <= (1.0 if one.ceiling is None else one.ceiling)
            hits = report.summary[f"hit@{name}"]
            assert hits.mean == float(Fraction(sum(f > 0 for f, _ in pairs), len(pairs)))
            assert hits.ceiling is hits.pooled is None


@pytest.mark.parametrize("no_relevant", ["zero", "one", "mlflow"])
def test_a_mean_with_assigned_values_is_never_above_its_ceiling(no_relevant: Any) -> None:
    dataset = {"q": ["a", "b"], "n": []}
    perfect = Run(rankings=[ranking("q", "a", "b"), ranking("n")])
    one = score(perfect, dataset, k=1, no_relevant=no_relevant).summary["recall@1"]
    assert one.ceiling == one.mean
    assert one.ceiling == (0.25 if no_relevant == "zero" else 0.75)


def test_a_ceiling_stands_only_where_labels_outnumber_k_and_none_is_a_group() -> None:
    def ceiling(relevant: Any, **options: Any) -> float | None:
        dataset = Dataset([Query(query_id="q", text="t", relevant=relevant)])
        return score(Run(), dataset, k=1, **options).summary["recall@1"].ceiling

    assert ceiling(["a", "b"]) == 0.5
    assert ceiling(["a", "a"]) is None
    assert ceiling(["a", "b", ["c", "d"]]) is None
    assert ceiling(["a", "b", ["c", "c"]]) == pytest.approx(1 / 3)
    group = [HIGH, LOW]
    assert ceiling([group, Label(text="more", grade=2)], relevance_level=2) == 0.5


def test_the_relevance_level_empties_groups_and_merges_equal_ones() -> None:
    def labels(*relevant: Any, level: int) -> tuple[str, ...]:
        dataset = Dataset([Query(query_id="q", text="t", relevant=list(relevant))])
        return score(Run(), dataset, k=1, relevance_level=level).queries[0].labels

    also = Label(text="also", grade=2)
    assert labels([HIGH, LOW], [HIGH, also], LOW, level=1) == ("high | low", "high | also", "low")
    assert labels([HIGH, LOW], HIGH, [LOW], level=2) == ("high",)
    assert labels([HIGH, also, LOW], [also, HIGH], level=2) == ("high | also",)
    assert labels([LOW], Label(text="zero", grade=0), level=2) == ()


def test_names_of_labels_that_read_alike_stay_apart() -> None:
    dataset = {"q": ["a | b", ["a", "b"]]}
    (query,) = score(Run(rankings=[ranking("q", "b")]), dataset, k=1).queries
    assert query.ranks == {"a | b": None, "a | b #2": 1}
    assert query.recall == {"recall@1": 0.5}


def test_dedupe_removes_repeats_by_what_is_matched_and_keeps_what_has_none() -> None:
    chunks = [
        Chunk(text="a", chunk_id="1"),
        Chunk(text="a", chunk_id="2"),
        Chunk(text="", chunk_id="1"),
        Chunk(text=""),
        Chunk(text=""),
        Chunk(text="b", chunk_id="3"),
    ]
    query = Query(query_id="q", text="t", relevant=[Label(text="b", chunk_id="3")])
    ranked = Run(rankings=[Ranking(query_id="q", chunks=chunks)])
    for matcher, plain, deduped in ((ExactText(), 6, 5), (ChunkId(), 6, 5)):
        for dedupe, rank in ((False, plain), (True, deduped)):
            (row,) = score(ranked, [query], k=6, matcher=matcher, dedupe=dedupe).queries
            assert row.label_ranks == (rank,)
            assert row.retrieved_count == rank == len(row.retrieved) == len(row.retrieved_ids)


@pytest.mark.parametrize("key", [None, "doc"])
def test_exclude_self_removes_the_querys_own_id_wherever_it_is_matched(key: str | None) -> None:
    def chunk(one: str | None) -> Chunk:
        fields: dict[str, Any] = {"chunk_id": one} if key is None else {"metadata": {key: one}}
        return Chunk(text="t", **fields)

    query = Query(query_id="q", text="t", relevant_ids=["w"])
    ranked = Run(rankings=[Ranking(query_id="q", chunks=[chunk(i) for i in ("q", None, "q", "w")])])
    kept = score(ranked, [query], k=4, matcher=ChunkId(key))
    assert kept.queries[0].ranks == {"w": 4}
    assert sum("exclude_self=True removes it" in note for note in kept.notes) == 1
    removed = score(ranked, [query], k=4, matcher=ChunkId(key), exclude_self=True)
    assert removed.queries[0].ranks == {"w": 2}


def test_exclude_self_and_dedupe_bear_lists_without_ids_or_texts() -> None:
    report = score(
        Run(rankings=[ranking("q", "", "a"), ranking("r")]),
        {"q": ["a"], "r": ["b"]},
        k=1,
        dedupe=True,
        exclude_self=True,
    )
    assert [query.ranks for query in report.queries] == [{"a": 2}, {"b": None}]


def test_each_note_stands_once_and_only_where_it_holds() -> None:
    assert score(Run(rankings=[ranking("q", "a")]), {"q": ["a"]}, k=1).notes == ()
    queries = [Query(query_id=q, text=q, relevant=["a", "a", HIGH]) for q in "qr"]
    report = score(
        Run(rankings=[ranking(q, "", "a") for q in "qrs"], notes=("own note",)),
        queries,
        k=(1, 3, 9),
        relevance_level=2,
        dedupe=True,
        exclude_self=True,
        no_relevant="zero",
        on_error="zero",
    )
    assert len(set(report.notes)) == len(report.notes)
    for phrase in (
        "own note", "from grade 2", "dedupe=True", "exclude_self=True", "no_relevant='zero'",
        "on_error='zero'", "recall@3, recall@9 were measured on lists of at most 2 chunks",
        "2 retrieved chunks have no text", "1 retrievals belong to no",
    ):  # fmt: skip
        assert sum(phrase in note for note in report.notes) == 1, phrase


def test_missing_ids_are_explained_and_missing_texts_are_not_taken_for_them() -> None:
    def notes(matcher: Any, chunk: Chunk) -> str:
        query = Query(query_id="q", text="t", relevant=[Label(text="a", chunk_id="1")])
        ranked = Run(rankings=[Ranking(query_id="q", chunks=[chunk])])
        return "\n".join(score(ranked, [query], k=1, matcher=matcher).notes)

    assert "Document(id=…)" in notes(ChunkId(), Chunk(text="a"))
    assert "metadata 'k'" in notes(ChunkId("k"), Chunk(text="a", chunk_id="1"))
    assert "ids" not in notes(ExactText(), Chunk(text=""))
    assert "have no text" in notes(ExactText(), Chunk(text=""))
    assert "texts that the labels carry were not compared" in notes(ChunkId(), Chunk(text="a"))


def test_without_texts_only_texts_are_missing() -> None:
    kept = score(run(), DATASET, k=(1, None))
    bare = score(run(), DATASET, k=(1, None), keep_texts=False)
    assert bare.summary == kept.summary
    assert bare.run is None
    for one, other in zip(bare.queries, kept.queries, strict=True):
        assert (one.retrieved, one.retrieved_ids) == ((), ())
        assert one.retrieved_count == other.retrieved_count
        assert (one.ranks, one.recall) == (other.ranks, other.recall)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_error": "raise"}, ValueError),
        ({"on_error": None}, ValueError),
        ({"no_relevant": None}, ValueError),
        ({"relevance_level": 1.0}, TypeError),
        ({"relevance_level": -1}, ValueError),
        ({"k": 0}, ValueError),
        ({"k": ()}, ValueError),
        ({"k": "5"}, ValueError),
    ],
)
def test_a_rule_that_scoring_cannot_follow_is_refused(options: Any, error: Any) -> None:
    with pytest.raises(error):
        score(run(), DATASET, **options)
