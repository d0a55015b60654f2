"""Whatever is missed, there is one cause, some evidence, and no change of the score."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chunkrecall import Chunk, Query, Ranking, Run, diagnose, score
from chunkrecall.diagnosis import CAUSES
from chunkrecall.diagnosis.passages import Passages, squeezed

WORDS = st.lists(
    st.sampled_from(
        ["a", "ab", "b.", "B", "é", "e\u0301", "\u200b", "&amp;", "&", "key: b", "12", "1"]
    ),
    min_size=1,
    max_size=6,
)
SPACES = st.sampled_from([" ", "  ", "\n", "\n\n", "", "\u00a0"])
TEXTS = st.builds(lambda words, space: space.join(words), WORDS, SPACES)
LABELS = TEXTS.filter(lambda text: bool(text.strip()))
CHUNKS = st.builds(
    lambda text, n, meta: Chunk(text=text, chunk_id=None if n is None else str(n), metadata=meta),
    TEXTS,
    st.none() | st.integers(0, 5),
    st.dictionaries(st.sampled_from(["key", "doc_id", "version"]), st.sampled_from(["b", "1", 2])),
)


@settings(max_examples=150)
@given(
    labels=st.lists(LABELS, min_size=1, max_size=3),
    retrieved=st.lists(CHUNKS, max_size=6),
    corpus=st.none() | st.lists(CHUNKS, max_size=6),
    by_id=st.booleans(),
    k=st.integers(1, 4),
)
def test_every_miss_has_one_cause_with_its_evidence(
    labels: list[str], retrieved: list[Chunk], corpus: Any, by_id: bool, k: int
) -> None:
    fields = {"relevant_ids": labels} if by_id else {"relevant": labels}
    run = Run(rankings=[Ranking(query_id="q", chunks=retrieved)])
    report = score(run, [Query(query_id="q", text="t", **fields)], k=(1, k))
    before = report.to_json()
    found = diagnose(report, corpus=corpus, others=[report])
    assert report.to_json() == before
    assert [miss.label for miss in found.misses] == list(report.queries[0].missing)
    order = list(CAUSES)
    for miss in found.misses:
        causes = [miss.cause, *miss.secondary]
        assert causes == sorted(set(causes), key=order.index)
        assert [one.cause for one in miss.findings] == causes
        assert all(one.evidence and one.remedy for one in miss.findings)
        if miss.cause == "unknown":
            assert miss.certainty == "hypothesis"
    for remedy in found.remedies:
        assert 0 <= remedy.recall <= 1
        if remedy.kind in ("matching", "depth", "repeats"):
            assert remedy.recall >= remedy.before
    assert json.loads(found.to_json())["counts"] == found.counts
    assert str(found)
    assert found.to_markdown()


@given(TEXTS, st.lists(TEXTS, max_size=5))
def test_pieces_are_parts_of_both_texts(wanted: str, texts: list[str]) -> None:
    pieces, share = Passages(texts).cover(wanted)
    needle = squeezed(wanted)
    assert 0 <= share <= 1
    for piece in pieces:
        assert needle[piece.reaches_back_to : piece.end] in squeezed(texts[piece.index])
        assert piece.fits(len(needle))
