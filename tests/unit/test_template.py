"""The template call: one test for each row of the table of its behaviour."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chunkrecall import EvalResult, evaluate

HYPOTHESIS = json.dumps(
    [
        "The Eiffel Tower is in Paris.",
        "Paris has many museums.",
        "France is in Europe.",
        "The Louvre is in Paris.",
        "Lyon is a city.",
    ]
)
REFERENCE = json.dumps(
    ["The Eiffel Tower is in Paris.", "France is in Europe.", "The Louvre is in Paris."]
)


def one(hypothesis: Any, reference: Any, **config: Any) -> EvalResult:
    result = evaluate(
        "recall_at_k", hypothesis=hypothesis, reference=reference, eval_config=config or None
    )
    assert isinstance(result, EvalResult)
    return result


def many(hypothesis: Any, reference: Any, **config: Any) -> list[EvalResult]:
    results = evaluate(
        "recall_at_k", hypothesis=hypothesis, reference=reference, eval_config=config or None
    )
    assert isinstance(results, list)
    return results


def test_the_documented_example_scores_1_at_5_and_two_thirds_at_3() -> None:
    assert one(HYPOTHESIS, REFERENCE, k=5).score == 1.0
    at_3 = one(HYPOTHESIS, REFERENCE, k=3)
    assert at_3.score == 2 / 3
    assert at_3.reason == (
        "Recall@3: 0.667 (2/3 relevant chunks in the top 3); missing: 'The Louvre is in Paris.'"
    )
    assert (at_3.found, at_3.relevant, at_3.k) == (2, 3, 3)
    assert at_3.missing == ("The Louvre is in Paris.",)
    assert (at_3.eval_name, at_3.status, at_3.passed) == ("recall_at_k", "completed", True)


def test_without_k_the_whole_list_counts() -> None:
    result = one(HYPOTHESIS, REFERENCE)
    assert (result.score, result.k) == (1.0, None)
    assert "all 5 retrieved" in result.reason
    assert one(HYPOTHESIS, REFERENCE, k=None).score == 1.0


def test_a_batch_of_json_texts_gives_results_in_order_at_k_3() -> None:
    retrieved = [["a", "x", "y", "b"], ["c"], ["x", "y", "z", "d"]]
    relevant = [["a", "b"], ["c"], ["d"]]
    results = many([json.dumps(r) for r in retrieved], [json.dumps(r) for r in relevant], k=3)
    assert [r.score for r in results] == [0.5, 1.0, 0.0]
    assert [r.metadata["row"] for r in results] == [0, 1, 2]
    assert all(r.reason.startswith("Recall@3: ") for r in results)
    lists = many(retrieved, relevant, k=3)
    assert [r.score for r in lists] == [0.5, 1.0, 0.0]
    tuples = many([tuple(r) for r in retrieved], tuple(map(tuple, relevant)), k=3)
    assert [r.score for r in tuples] == [0.5, 1.0, 0.0]


def test_a_batch_may_be_long_or_empty() -> None:
    assert len(many(['["a"]'] * 500, ['["a"]'] * 500)) == 500
    assert many([], []) == []


@pytest.mark.parametrize(
    ("hypothesis", "reference", "place"),
    [
        (["one", "two"], ["one", "x"], "hypothesis row 0"),
        (["one", "two"], ["one"], "hypothesis row 0"),
        (["one", "two"], '["one"]', "hypothesis row 0"),
        ('["one"]', ["one", "two"], "reference row 0"),
        (['["one"]', "two"], ['["one"]'], "hypothesis row 1"),
        (['["one"]', '["two"]'], ["one"], "reference row 0"),
    ],
)
def test_plain_chunks_where_json_was_meant_are_refused_with_the_hint(
    hypothesis: Any, reference: Any, place: str
) -> None:
    with pytest.raises(ValueError, match=rf"{place}.*json\.dumps.*recall_at_k\("):
        evaluate("recall_at_k", hypothesis=hypothesis, reference=reference)


@pytest.mark.parametrize(
    ("hypothesis", "reference"),
    [(['["a"]'], ['["a"]', '["b"]']), (['["a"]'], '["a"]'), ('["a"]', ['["a"]'])],
)
def test_sides_of_different_shape_are_refused_naming_both(hypothesis: Any, reference: Any) -> None:
    with pytest.raises(ValueError, match=r"hypothesis.*reference|reference.*hypothesis"):
        evaluate("recall_at_k", hypothesis=hypothesis, reference=reference)


@pytest.mark.parametrize(
    "bad",
    [
        {"a"},
        {"a": 1},
        '{"a": 1}',
        '"a"',
        "5",
        "null",
        "",
        '["a","b"',
        "['a','b']",
        "a, b",
        "not json",
        None,
        5,
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("side", ["hypothesis", "reference"])
def test_anything_but_a_json_array_is_a_value_error_naming_the_argument(
    bad: Any, side: str
) -> None:
    sides = {"hypothesis": '["a"]', "reference": '["a"]', side: bad}
    place = f"{side} row 0" if isinstance(bad, str) else side
    with pytest.raises(ValueError, match=place):
        evaluate("recall_at_k", **sides)


@pytest.mark.parametrize("bad", ['{"a": 1}', "null", "", '["a"', {"a"}, {"a": 1}, None])
def test_a_bad_row_of_a_batch_is_named_by_its_number(bad: Any) -> None:
    with pytest.raises(ValueError, match="reference row 1"):
        evaluate("recall_at_k", hypothesis=['["a"]', '["a"]'], reference=['["a"]', bad])


@pytest.mark.parametrize("element", ["1", "null", "true", "NaN", '{"a": 1}', '["a"]'])
def test_an_element_that_is_no_string_is_a_type_error_with_its_index(element: str) -> None:
    with pytest.raises(TypeError, match="reference row 0: element 1"):
        evaluate("recall_at_k", hypothesis=['["a"]'], reference=[f'["a", {element}]'])
    with pytest.raises(TypeError, match="hypothesis row 0: element 0"):
        evaluate("recall_at_k", hypothesis=f"[{element}]", reference='["1"]')


def test_1_and_the_string_1_are_never_the_same() -> None:
    with pytest.raises(TypeError, match="element 0 must be a string, got a number 1"):
        evaluate("recall_at_k", hypothesis="[1]", reference='["1"]')


def test_an_empty_reference_is_undefined_and_the_rest_is_scored() -> None:
    results = many(['["a"]', '["a"]'], ["[]", '["a"]'])
    first = results[0]
    assert (first.status, first.score, first.passed) == ("undefined", None, None)
    assert "undefined" in first.reason
    assert results[1].score == 1.0
    assert one("[]", "[]").status == "undefined"


def test_an_empty_hypothesis_scores_0() -> None:
    result = one("[]", '["a"]')
    assert (result.score, result.status, result.passed) == (0.0, "completed", False)


@pytest.mark.parametrize("k", [0, -1, True, 2.9, "2", float("inf"), "abc", [1]])
def test_a_bad_k_is_a_value_error_that_names_k(k: Any) -> None:
    with pytest.raises(ValueError, match=r"\bk must be"):
        one(HYPOTHESIS, REFERENCE, k=k)


def test_k_beyond_the_list_scores_what_is_there_and_says_how_many() -> None:
    result = one(HYPOTHESIS, REFERENCE, k=99)
    assert result.score == 1.0
    assert result.reason == "Recall@99: 1.000 (3/3 relevant chunks in the top 99; 5 retrieved)"


def test_unknown_names_are_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'recall_at_k'"):
        evaluate("Recall@K", hypothesis=HYPOTHESIS, reference=REFERENCE)
    with pytest.raises(ValueError, match="recall_at_k"):
        evaluate("ndcg", hypothesis=HYPOTHESIS, reference=REFERENCE)
    with pytest.raises(ValueError, match="'K'.*did you mean 'k'"):
        one(HYPOTHESIS, REFERENCE, K=3)
    with pytest.raises(ValueError, match="threshold"):
        one(HYPOTHESIS, REFERENCE, treshold=0.2)
    with pytest.raises(TypeError, match="did you mean 'eval_config'"):
        evaluate("recall_at_k", hypothesis="[]", reference="[]", evalConfig={})
    with pytest.raises(TypeError, match=r"eval_config=\{'k': …\}"):
        evaluate("recall_at_k", hypothesis="[]", reference="[]", k=3)
    with pytest.raises(TypeError, match="hypothesis"):
        evaluate("recall_at_k", hypothesis="[]", reference="[]", output="[]")


@pytest.mark.parametrize(
    ("retrieved", "relevant", "k", "expected"),
    [
        (["a", "a", "b"], ["a", "b"], 2, 0.5),
        (["a", "a", "a"], ["a", "b"], None, 0.5),
        (["a"], ["a", "a", "b"], None, 0.5),
    ],
)
def test_repeats_occupy_slots_and_count_once(
    retrieved: list[str], relevant: list[str], k: int | None, expected: float
) -> None:
    assert one(json.dumps(retrieved), json.dumps(relevant), k=k).score == expected


@pytest.mark.parametrize(
    ("retrieved", "relevant", "phrase"),
    [
        ("paris", "Paris", "ignoring case"),
        ("Paris ", "Paris", "trimming whitespace"),
        ("e\u0301", "\u00e9", "NFC"),
        ("a\r\nb", "a\nb", "whitespace"),
    ],
)
def test_a_near_miss_scores_0_and_is_named(retrieved: str, relevant: str, phrase: str) -> None:
    result = one(json.dumps([retrieved]), json.dumps([relevant]))
    assert result.score == 0.0
    assert phrase in result.reason


def test_passing_needs_the_threshold() -> None:
    half = one('["a"]', '["a", "b"]')
    assert half.passed is True
    assert one('["a"]', '["a", "b"]', threshold=0.51).passed is False
    assert one('["a"]', '["a", "b"]', threshold=0).passed is True
    for bad in (-0.1, 1.1, "0.5", True, float("nan")):
        with pytest.raises(ValueError, match="threshold"):
            one('["a"]', '["a"]', threshold=bad)


def test_a_retriever_is_sent_to_the_right_call() -> None:
    class Retriever:
        def invoke(self, query: str) -> list[str]:
            return [query]

    for bad in (Retriever(), lambda text: [text]):
        with pytest.raises(TypeError, match="evaluate_retriever"):
            evaluate("recall_at_k", hypothesis=bad, reference='["a"]')  # type: ignore[arg-type]


def test_a_blank_relevant_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="reference row 1.*blank"):
        evaluate("recall_at_k", hypothesis=['["a"]'] * 2, reference=['["a"]', '["a", " "]'])


def test_lone_surrogates_and_hostile_texts_survive() -> None:
    text = "\ud800\x00\x1b[31m"
    result = one(json.dumps(["x"]), json.dumps([text]))
    assert result.missing == (text,)
    assert "\x1b" not in result.reason
    assert one(json.dumps([text]), json.dumps([text])).score == 1.0


def test_a_result_is_plain_json_values() -> None:
    row = json.loads(json.dumps(one(HYPOTHESIS, REFERENCE, k=3).to_dict()))
    assert set(row) == {
        "eval_name",
        "score",
        "passed",
        "status",
        "k",
        "found",
        "relevant",
        "missing",
        "metadata",
        "reason",
    }
