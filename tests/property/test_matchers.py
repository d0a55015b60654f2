"""Properties of the matchers that look beyond equality, against their plain definitions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from chunkrecall import Chunk, Contains, Coverage, Fuzzy, Label
from chunkrecall.matching.coverage import shortest_run

few = st.text(alphabet="ab \n\u00e9\u4e2d", max_size=30)
pieces = st.lists(
    st.sampled_from(
        [
            "alpha ",
            "beta-gamma",
            " the quick brown",
            "fox jumps",
            "aaaaaaaa",
            "\u4e2d\u6587\u5b57\u7b26",
            "\n",
        ]
    ),
    max_size=14,
).map("".join)
texts = st.one_of(few, pieces, st.text(max_size=40))
labels = texts.filter(lambda text: bool(text.strip()))
thresholds = st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1])


def chunks_of(found: list[str]) -> list[Chunk]:
    return [Chunk(text=text) for text in found]


def held(label: str, found: list[str]) -> Fraction:
    """Coverage as it is defined: every common substring that is long enough, tried one by one."""
    size, run = len(label), min(len(label), max(3, min(20, len(label) // 3)))
    covered = {
        at
        for start in range(size)
        for end in range(start + run, size + 1)
        if any(label[start:end] in chunk for chunk in found)
        for at in range(start, end)
    }
    solid = {at for at, character in enumerate(label) if not character.isspace()}
    return Fraction(len(solid & covered), len(solid))


@st.composite
def related(draw: Any) -> tuple[str, list[str]]:
    """A label, and chunks that hold parts of it between other texts."""
    label = draw(
        st.one_of(labels, st.lists(pieces, min_size=1, max_size=6).map("".join).filter(str.strip))
    )
    found = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(label)))
        end = draw(st.integers(start, len(label)))
        found.append(draw(texts) + label[start:end] + draw(texts))
    return label, draw(st.permutations([*found, *draw(st.lists(texts, max_size=2))]))


@given(related(), thresholds)
def test_coverage_is_its_definition_within_0_and_1_and_never_falls(
    case: tuple[str, list[str]], threshold: float
) -> None:
    label, found = case
    cutoffs = [*range(1, len(found) + 2), None]
    ((rank, shares),) = Coverage(threshold).measure([Label(text=label)], chunks_of(found), cutoffs)
    expected = [held(label, found[: len(found) if k is None else k]) for k in cutoffs]
    assert shares == tuple(map(float, expected))
    assert all(0 <= share <= 1 for share in shares)
    assert list(shares) == sorted(shares)
    reached = [r for r in range(1, len(found) + 1) if expected[r - 1] >= Fraction(str(threshold))]
    assert rank == min(reached, default=None)
    assert Coverage(threshold).first_ranks([Label(text=label)], chunks_of(found)) == (rank,)


@given(st.integers(1, 200))
def test_the_shortest_run_is_a_third_between_3_and_20_and_never_more_than_the_label(n: int) -> None:
    assert shortest_run(n) == min(n, max(3, min(20, n // 3)))


spans = st.tuples(st.integers(0, 40), st.integers(1, 30)).map(lambda one: (one[0], sum(one)))


@given(spans, st.lists(st.tuples(st.sampled_from("de"), spans), max_size=6), thresholds)
def test_coverage_of_a_span_is_the_share_of_its_positions(
    wanted: tuple[int, int], found: list[tuple[str, tuple[int, int]]], threshold: float
) -> None:
    chunks = [
        Chunk(text="x" * (end - start), metadata={"doc_id": doc, "start_index": start})
        for doc, (start, end) in found
    ]
    cutoffs = range(1, len(found) + 1)
    label = Label.span("d", *wanted)
    ((rank, shares),) = Coverage(threshold).measure([label], chunks, list(cutoffs))
    size = wanted[1] - wanted[0]
    expected = [
        Fraction(
            len({p for d, s in found[:k] if d == "d" for p in range(*s)} & set(range(*wanted))),
            size,
        )
        for k in cutoffs
    ]
    assert shares == tuple(map(float, expected))
    reached = [
        k for k, share in zip(cutoffs, expected, strict=True) if share >= Fraction(str(threshold))
    ]
    assert rank == min(reached, default=None)


@given(st.lists(labels, min_size=1, max_size=3), st.lists(texts, max_size=6))
def test_contains_is_the_in_operator_and_a_blank_chunk_is_in_nothing(
    wanted: list[str], found: list[str]
) -> None:
    asked, chunks = [Label(text=text) for text in wanted], chunks_of(found)
    inside = [next((r for r, text in enumerate(found, 1) if one in text), None) for one in wanted]
    assert Contains().first_ranks(asked, chunks) == tuple(inside)
    around = [
        next((r for r, text in enumerate(found, 1) if text.strip() and text in one), None)
        for one in wanted
    ]
    assert Contains("chunk-in-label").first_ranks(asked, chunks) == tuple(around)


@st.composite
def alike(draw: Any) -> tuple[list[str], list[str]]:
    """Labels, and chunks that are equal to them, edited, or something else."""
    wanted = draw(st.lists(labels, min_size=1, max_size=3))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        text = draw(st.sampled_from(wanted))
        at = draw(st.integers(0, len(text)))
        found.append(
            draw(
                st.sampled_from(
                    [
                        text,
                        text[:at] + "z" + text[at + 1 :],
                        text[:at] + text[at + 2 :],
                        draw(texts),
                    ]
                )
            )
        )
    return wanted, found


@given(alike(), thresholds)
def test_fuzzy_with_its_hashing_and_bounds_is_the_plain_definition(
    case: tuple[list[str], list[str]], threshold: float
) -> None:
    wanted, found = case
    exact = Fraction(str(threshold))

    def similarity(one: str, other: str) -> Fraction:
        longest = max(len(one), len(other))
        return 1 - Fraction(Levenshtein.distance(one, other), longest)

    plain = [
        next((r for r, text in enumerate(found, 1) if similarity(one, text) >= exact), None)
        for one in wanted
    ]
    asked = [Label(text=text) for text in wanted]
    assert Fuzzy(threshold).first_ranks(asked, chunks_of(found)) == tuple(plain)


@pytest.mark.parametrize(
    "matcher", [Contains(), Contains("chunk-in-label"), Coverage(0.5), Fuzzy(0.7)]
)
@given(related())
def test_the_first_rank_of_a_longer_list_is_that_of_the_shorter_one(
    matcher: Any, case: tuple[str, list[str]]
) -> None:
    label, found = case
    (whole,) = matcher.first_ranks([Label(text=label)], chunks_of(found))
    for depth in range(len(found) + 1):
        (rank,) = matcher.first_ranks([Label(text=label)], chunks_of(found[:depth]))
        assert rank == (whole if whole is not None and whole <= depth else None)
