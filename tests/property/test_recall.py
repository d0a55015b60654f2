"""Properties of recall that hold for any lists."""

from __future__ import annotations

from typing import Any

import ir_measures
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import R

from chunkrecall import (
    ChunkId,
    Dataset,
    ExactText,
    NormalizedText,
    Query,
    Ranking,
    Run,
    recall_at_k,
    recall_at_ks,
    score,
)
from chunkrecall.records import Chunk

words = st.sampled_from([f"chunk {letter}" for letter in "abcdefghij"])
ranked = st.lists(words, max_size=15)
wanted = st.lists(words, min_size=1, max_size=6)
cutoffs = st.one_of(st.none(), st.integers(min_value=1, max_value=20))


@given(ranked, wanted, cutoffs)
def test_recall_lies_within_0_and_1(retrieved: list[str], relevant: list[str], k: Any) -> None:
    recall = recall_at_k(retrieved, relevant, k)
    assert recall is not None
    assert 0 <= recall <= 1


@given(ranked, wanted)
def test_recall_never_falls_as_k_grows(retrieved: list[str], relevant: list[str]) -> None:
    values = [recall_at_k(retrieved, relevant, k) for k in (*range(1, 20), None)]
    assert values == sorted(values)


@given(ranked, wanted, cutoffs)
def test_recall_is_the_set_formula(retrieved: list[str], relevant: list[str], k: Any) -> None:
    top = retrieved if k is None else retrieved[:k]
    assert recall_at_k(retrieved, relevant, k) == len(set(top) & set(relevant)) / len(set(relevant))


@given(ranked.filter(bool), wanted, cutoffs, st.data())
def test_a_copy_appended_at_the_end_changes_nothing(
    retrieved: list[str], relevant: list[str], k: Any, data: st.DataObject
) -> None:
    copy = data.draw(st.sampled_from(retrieved))
    assert recall_at_k([*retrieved, copy], relevant, k) == recall_at_k(retrieved, relevant, k)


@given(ranked.filter(bool), wanted, cutoffs, st.data())
def test_a_copy_inserted_after_its_original_never_raises_recall(
    retrieved: list[str], relevant: list[str], k: Any, data: st.DataObject
) -> None:
    original = data.draw(st.integers(0, len(retrieved) - 1))
    place = data.draw(st.integers(original + 1, len(retrieved)))
    longer = [*retrieved[:place], retrieved[original], *retrieved[place:]]
    assert recall_at_k(longer, relevant, k) <= recall_at_k(retrieved, relevant, k)  # type: ignore[operator]


@given(ranked, wanted, cutoffs)
def test_a_repeated_label_changes_nothing(
    retrieved: list[str], relevant: list[str], k: Any
) -> None:
    repeated = recall_at_k(retrieved, [*relevant, *relevant], k)
    assert repeated == recall_at_k(retrieved, relevant, k)


def _score(rows: list[tuple[list[str], list[str]]], order: list[int], k: Any) -> Any:
    dataset = Dataset(
        [Query(query_id=str(i), text=f"question {i}", relevant=rows[i][1]) for i in order]
    )
    run = Run(
        rankings=[
            Ranking(query_id=str(i), chunks=[Chunk(text=text) for text in rows[i][0]])
            for i in reversed(order)
        ]
    )
    return score(run, dataset, k=(k, None))


@given(st.lists(st.tuples(ranked, wanted), min_size=1, max_size=6), cutoffs, st.data())
def test_permuting_the_queries_changes_no_number(rows: Any, k: Any, data: st.DataObject) -> None:
    straight = list(range(len(rows)))
    mixed = data.draw(st.permutations(straight))
    one, other = _score(rows, straight, k), _score(rows, mixed, k)
    assert one.summary == other.summary
    assert one.dataset_fingerprint == other.dataset_fingerprint
    assert {q.query_id: q.recall for q in one.queries} == {
        q.query_id: q.recall for q in other.queries
    }


@given(st.lists(st.tuples(ranked, wanted), min_size=1, max_size=6), cutoffs)
def test_scoring_the_batch_kernel_and_the_single_kernel_agree(rows: Any, k: Any) -> None:
    retrieved, relevant = [row[0] for row in rows], [row[1] for row in rows]
    batch = recall_at_ks(retrieved, relevant, [k, None])
    report = _score(rows, list(range(len(rows))), k)
    name = f"recall@{'all' if k is None else k}"
    assert batch[k] == [query.recall[name] for query in report.queries]
    assert batch[k] == [recall_at_k(*row, k) for row in rows]


@given(
    st.lists(
        st.tuples(
            st.lists(words, max_size=10, unique=True), st.lists(words, min_size=1, max_size=5)
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 12),
)
def test_recall_is_trec_evals_on_runs_without_ties(rows: Any, k: int) -> None:
    ids = {f"chunk {letter}": letter for letter in "abcdefghij"}
    qrels = {str(i): {ids[t]: 1 for t in relevant} for i, (_, relevant) in enumerate(rows)}
    run = {
        str(i): {ids[t]: float(-rank) for rank, t in enumerate(retrieved)}
        for i, (retrieved, _) in enumerate(rows)
    }
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([R @ k], qrels, run)}
    report = _score(rows, list(range(len(rows))), k)
    for query in report.queries:
        assert query.recall[f"recall@{k}"] == theirs.get(query.query_id, 0.0)


texts = st.text(alphabet="aA éé .\n\u00ad한글", min_size=1, max_size=6)
matchers = st.sampled_from(
    [
        ExactText(),
        NormalizedText(),
        NormalizedText(unicode="NFKD", casefold=True, strip_accents=True, strip_invisible=True),
        NormalizedText(unicode=None, collapse_whitespace=False, unescape_html=True),
    ]
)


@given(st.lists(texts, max_size=8), texts.filter(lambda t: bool(t.strip(" \n\u00ad."))), matchers)
def test_a_label_always_finds_its_own_text(retrieved: list[str], label: str, matcher: Any) -> None:
    chunks = [Chunk(text=text) for text in [*retrieved, label]]
    labels = Query(query_id="q", text="q", relevant=[label]).relevant or ()
    (rank,) = matcher.first_ranks(labels, chunks)
    assert rank is not None
    assert rank <= len(chunks)


@given(st.lists(texts, max_size=8), matchers)
def test_normalising_twice_is_normalising_once(retrieved: list[str], matcher: Any) -> None:
    if isinstance(matcher, NormalizedText) and not matcher.unescape_html:
        for text in retrieved:
            once = matcher.normalize(text)
            assert matcher.normalize(once) == once


def test_an_id_that_is_missing_never_equals_a_missing_id() -> None:
    labels = Query(query_id="q", text="q", relevant_ids=["x"]).relevant or ()
    assert ChunkId().first_ranks(labels, [Chunk(text="x"), Chunk(text="x")]) == (None,)
