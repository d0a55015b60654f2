"""Reciprocal-rank fusion and unions, with the arithmetic beside them."""

from __future__ import annotations

import pytest

from chunkrecall import Chunk, Ranking, Report, Run, score
from chunkrecall.fusion import reciprocal_rank_fusion, union_report


def run_of(name: str, **lists: str) -> Run:
    return Run(
        name=name,
        rankings=[
            Ranking(query_id=query, chunks=[Chunk(text=word) for word in texts.split()])
            for query, texts in lists.items()
        ],
    )


def fused(*runs: Run, **options: object) -> dict[str, tuple[str, ...]]:
    run = reciprocal_rank_fusion(list(runs), **options)  # type: ignore[arg-type]
    return {one.query_id: one.texts for one in run.rankings}


def test_a_chunk_gets_the_sum_of_its_reciprocal_ranks() -> None:
    run = reciprocal_rank_fusion([run_of("x", q="a b c"), run_of("y", q="c b d")])
    (ranking,) = run.rankings
    # a 1/61; b 1/62 + 1/62; c 1/63 + 1/61; d 1/63
    assert ranking.texts == ("c", "b", "a", "d")
    scores = [chunk.score for chunk in ranking.chunks]
    assert scores == [pytest.approx(1 / 63 + 1 / 61), pytest.approx(2 / 62), 1 / 61, 1 / 63]


def test_the_constant_decides_how_much_the_first_ranks_count() -> None:
    runs = run_of("x", q="a b"), run_of("y", q="c b"), run_of("z", q="d e f g b")
    # With 0: a 1, b 1/2 + 1/2 + 1/5. With 1: a 1/2, b 1/3 + 1/3 + 1/6.
    assert fused(*runs, constant=0)["q"][0] == "b"
    runs = run_of("x", q="a x y b"), run_of("y", q="c x y b")
    # With 0: x 1/2 + 1/2 = a = 1, and a stands first; with 60: x 2/62 before a 1/61.
    assert fused(*runs, constant=0)["q"][:2] == ("a", "x")
    assert fused(*runs)["q"][0] == "x"


def test_ties_go_to_the_earlier_source_and_a_repeat_counts_at_its_first_rank() -> None:
    assert fused(run_of("x", q="a a b"), run_of("y", q="c"))["q"] == ("a", "c", "b")


def test_chunks_are_equal_by_text_or_by_id() -> None:
    one = Run(name="x", rankings=[Ranking(query_id="q", chunks=[Chunk(text="t", chunk_id="1")])])
    two = Run(name="y", rankings=[Ranking(query_id="q", chunks=[Chunk(text="t", chunk_id="2")])])
    assert fused(one, two)["q"] == ("t",)
    assert fused(one, two, by="id")["q"] == ("t", "t")


def test_a_query_that_one_source_lacks_is_fused_from_the_others() -> None:
    failed = Run(name="y", rankings=[Ranking(query_id="q", error="down")])
    assert fused(run_of("x", q="a b", p="c"), failed) == {"q": ("a", "b"), "p": ("c",)}


def test_the_depth_cuts_the_fused_list() -> None:
    assert fused(run_of("x", q="a b c"), depth=2)["q"] == ("a", "b")


@pytest.mark.parametrize(
    ("sources", "options"),
    [([], {}), ([Run()], {"constant": -1}), ([Run()], {"by": "rank"}), ([Run()], {"depth": 0})],
)
def test_what_cannot_be_fused_is_refused(sources: list[Run], options: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        reciprocal_rank_fusion(sources, **options)  # type: ignore[arg-type]


def reports() -> list[Report]:
    labels = {"q": ["a", "b", "c"], "p": ["d"]}
    runs = run_of("x", q="a x c", p="x"), run_of("y", q="x b c", p="d")
    return [score(run, labels, k=(1, 2, 3)) for run in runs]


def test_a_label_stands_in_the_union_at_the_best_of_its_ranks() -> None:
    union = union_report(reports())
    assert union.queries[0].ranks == {"a": 1, "b": 2, "c": 3}
    # q 1/3 and p 1; q 2/3 and p 1; q 1 and p 1
    assert [union.mean(k) for k in (1, 2, 3)] == [pytest.approx(2 / 3), pytest.approx(5 / 6), 1.0]


def test_a_query_that_only_one_answered_is_scored_by_that_one() -> None:
    labels = {"q": ["a"]}
    failed = score(Run(name="y", rankings=[Ranking(query_id="q", error="down")]), labels, k=1)
    found = score(run_of("x", q="a"), labels, k=1)
    assert union_report([failed, found]).mean(1) == 1.0
    assert union_report([failed]).queries[0].status == "errored"


def test_reports_of_different_queries_or_labels_have_no_union() -> None:
    one = score(run_of("x", q="a"), {"q": ["a"]}, k=1)
    for labels in ({"p": ["a"]}, {"q": ["b"]}):
        other = score(run_of("y", q="a"), labels, k=1)
        with pytest.raises(ValueError, match="different"):
            union_report([one, other])


def test_a_report_without_texts_cannot_be_fused() -> None:
    report = score(run_of("x", q="a"), {"q": ["a"]}, k=1, keep_texts=False)
    with pytest.raises(ValueError, match="keep_texts"):
        reciprocal_rank_fusion([report])
