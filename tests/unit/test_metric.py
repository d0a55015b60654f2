"""The kernel on plain lists: what it refuses, and what it never mistakes for a miss."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from chunkrecall import recall_at_k, recall_at_ks
from chunkrecall.metric import check_k, check_ks, cutoff_name, found_at, hit_positions
from chunkrecall.statistics import ExactMean

NO_CUTOFF = [
    0, -1, True, False, 2.5, 2.0, "5", b"5", bytearray(b"5"), "", float("nan"), int, 1j,
    np.bool_(True), np.float32(2), np.int64(0), np.array(2.0),
]  # fmt: skip


@pytest.mark.parametrize("k", NO_CUTOFF, ids=repr)
def test_what_is_no_cutoff_is_a_value_error_naming_k_everywhere(k: Any) -> None:
    for call in (
        lambda: check_k(k),
        lambda: check_ks(k),
        lambda: check_ks([3, k]),
        lambda: recall_at_k(["a"], ["a"], k),
        lambda: recall_at_ks([["a"]], [["a"]], k),
        lambda: recall_at_ks([], [], (k,)),
    ):
        with pytest.raises(ValueError, match="k must be an integer of at least 1"):
            call()


@pytest.mark.parametrize("k", [[], (), set(), iter(()), np.array([], dtype=int)])
def test_no_cutoff_at_all_is_a_value_error(k: Any) -> None:
    with pytest.raises(ValueError, match="k must"):
        check_ks(k)


class Five:
    def __index__(self) -> int:
        return 5


@pytest.mark.parametrize("k", [5, np.int8(5), np.uint64(5), np.array(5), Five()])
def test_whatever_is_an_integer_is_a_cutoff(k: Any) -> None:
    assert check_k(k) == 5
    assert type(check_k(k)) is int
    assert check_ks(k) == check_ks([k]) == check_ks(x for x in (k, 5)) == (5,)


def test_cutoffs_come_sorted_distinct_and_the_whole_list_last() -> None:
    assert check_ks([None, 10**400, 3, np.int64(3), 1]) == (1, 3, 10**400, None)
    assert check_ks(np.array([3, 1])) == check_ks(frozenset({1, 3})) == check_ks(range(1, 4, 2))
    assert list(recall_at_ks([["a"]], [["a"]], [None, 2, 1])) == [1, 2, None]
    assert [cutoff_name(None), cutoff_name(3, "hit")] == ["recall@all", "hit@3"]
    with pytest.raises(ValueError, match="k must"):
        recall_at_k(["a"], ["a"], [1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [5, None, b"x", 1.5, True, ["a"], {"a"}, {"a": 1}, ("a",)], ids=repr
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_is_no_string_among_the_retrieved_is_never_a_silent_miss(
    bad: Any, position: int
) -> None:
    for rest in (["x", "y"], ["", "y"]):
        retrieved = [*rest[:position], bad, *rest[position:]]
        with pytest.raises(TypeError, match=rf"retrieved\[{position}\] must be a string"):
            recall_at_k(retrieved, ["a"])
        with pytest.raises(TypeError, match=rf"retrieved_lists\[1\]\[{position}\] must be a str"):
            recall_at_ks([[], retrieved], [["a"], ["a"]], (3, None))
        with pytest.raises(TypeError, match=rf"lists\[0\]\[{position}\]"):
            recall_at_ks([tuple(retrieved)], [["a"]], None)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, dict.fromkeys])
@pytest.mark.parametrize("bad", ["", " ", "\u2003\n", 7, None])
def test_a_bad_label_is_named_with_its_row_whatever_holds_it(kind: Any, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^relevant_lists\[1\]"):
        recall_at_ks([["a"], ["a"]], [["a"], kind(["a", bad])], 1)
    with pytest.raises((TypeError, ValueError), match=r"^relevant"):
        recall_at_k(["a"], kind(["a", bad]))


@pytest.mark.parametrize("bare", ["abc", b"abc", bytearray(b"abc"), "", None, 7])
def test_a_bare_text_is_no_list_at_any_level(bare: Any) -> None:
    for call in (
        lambda: recall_at_k(bare, ["a"]),
        lambda: recall_at_k(["a"], bare),
        lambda: recall_at_ks(bare, [["a"]], 1),
        lambda: recall_at_ks([["a"]], bare, 1),
        lambda: recall_at_ks([bare], [["a"]], 1),
        lambda: recall_at_ks([["a"]], [bare], 1),
    ):
        with pytest.raises(TypeError, match="must be a list"):
            call()


@pytest.mark.parametrize("unordered", [{"a"}, frozenset("a"), {"a": 1}, {"a": 1}.keys()])
def test_what_has_no_order_is_no_ranked_list(unordered: Any) -> None:
    with pytest.raises(TypeError, match="in ranked order"):
        recall_at_k(unordered, ["a"])
    with pytest.raises(TypeError, match="in ranked order"):
        recall_at_ks([unordered], [["a"]], 1)
    if not isinstance(unordered, dict):
        assert recall_at_k(["a"], unordered) == 1.0


def test_any_iterable_is_read_once_and_nothing_is_changed() -> None:
    retrieved, relevant = ["b", "a", "b"], ["a", "a"]
    assert recall_at_k((x for x in retrieved), (x for x in relevant), 2) == 1.0  # type: ignore[arg-type]
    lists = recall_at_ks(
        (iter(x) for x in [retrieved]),  # type: ignore[misc]
        (iter(x) for x in [relevant]),
        iter((1, 2)),
    )
    assert lists == {1: [0.0], 2: [1.0]}
    assert (retrieved, relevant) == (["b", "a", "b"], ["a", "a"])
    with pytest.raises(ValueError, match="1 queries and relevant_lists has 2"):
        recall_at_ks([["a"]], iter([["a"], ["a"]]), 1)


def test_nothing_relevant_is_undefined_even_where_nothing_was_retrieved() -> None:
    assert recall_at_k([], [], 3) is None
    assert recall_at_ks([[], ["a"]], [[], ()], (1, None)) == {1: [None] * 2, None: [None] * 2}
    assert recall_at_ks([], [], (1, None)) == {1: [], None: []}
    assert recall_at_k([], ["a"], 10**30) == 0.0


def test_texts_are_equal_only_code_point_by_code_point() -> None:
    assert recall_at_k(["e\u0301", "a ", "A", "\ufeffa"], ["\u00e9", "a"]) == 0.0
    assert recall_at_k(["\ud800", "\0"], ["\ud800", "\0"]) == 1.0


def test_the_ranks_of_first_appearances_ascend() -> None:
    assert hit_positions({"a", "b"}, ["x", "b", "a", "b", "a"]) == [2, 3]
    assert hit_positions({"a"}, ["a", "a"]) == [1]
    assert [found_at([2, 3], k) for k in (1, 2, 3, None)] == [0, 1, 2, 2]


def test_a_mean_is_exact_whatever_the_denominators() -> None:
    draw = random.Random(7)
    for _ in range(300):
        pairs = [(draw.randint(0, n), n) for n in draw.choices(range(1, 40), k=draw.randint(1, 60))]
        mean = ExactMean()
        for found, total in pairs:
            mean.add(found, total)
        wanted = sum((Fraction(*pair) for pair in pairs), Fraction(0))
        assert (mean.sum(), mean.count) == (wanted, len(pairs))
        assert mean.mean() == wanted / len(pairs)
        assert mean.mean(extra=2, extra_count=3) == (wanted + 2) / (len(pairs) + 3)
    assert ExactMean().mean() is None
    assert ExactMean().mean(extra=1, extra_count=1) == 1
