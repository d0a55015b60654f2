"""Matchers: each step of normalising on its own, ids that never equal by accident, custom rules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from chunkrecall import (
    Chunk,
    ChunkId,
    Contains,
    Coverage,
    Dataset,
    DatasetError,
    ExactText,
    Fuzzy,
    Label,
    MissingExtraError,
    NormalizedText,
    Query,
    Ranking,
    Run,
    evaluate_retriever,
    score,
)
from chunkrecall.matching import KeyedMatcher, Matcher, check_matcher, default_matcher
from chunkrecall.records import Chunks

OFF: dict[str, Any] = {"unicode": None, "collapse_whitespace": False}


def chunks_of(*texts: str) -> list[Chunk]:
    return [Chunk(text=text) for text in texts]


def rank(matcher: Matcher, label: Any, *chunks: Chunk) -> int | None:
    (found,) = matcher.first_ranks(
        [label if isinstance(label, Label) else Label(text=label)], chunks
    )
    return found


@pytest.mark.parametrize(
    ("options", "label", "text"),
    [
        ({"unicode": "NFC"}, "e\u0301", "\u00e9"),
        ({"unicode": "NFD"}, "e\u0301", "\u00e9"),
        ({"unicode": "NFKC"}, "\ufb01le", "file"),
        ({"unicode": "NFKD"}, "\uff21\u00e9", "Ae\u0301"),
        ({"collapse_whitespace": True}, " a\u00a0\r\n b\t", "a b"),
        ({"casefold": True}, "STRASSE", "stra\u00dfe"),
        ({"strip_invisible": True}, "a\u200b\ufeff\u00adb", "ab"),
        ({"unescape_html": True}, "a &amp; b &#39;c&#x27;", "a & b 'c'"),
        ({"strip_accents": True, "unicode": "NFC"}, "caf\u00e9", "cafe"),
        ({"strip_accents": True}, "cafe\u0301", "cafe"),
    ],
)
def test_each_step_alone_makes_its_pair_equal_and_no_other_step_does(
    options: dict[str, Any], label: str, text: str
) -> None:
    assert rank(NormalizedText(**{**OFF, **options}), label, *chunks_of("x", text)) == 2
    assert rank(NormalizedText(**OFF), label, *chunks_of("x", text)) is None
    assert rank(ExactText(), label, *chunks_of("x", text)) is None
    assert rank(ExactText(), label, *chunks_of("x", label)) == 2


@pytest.mark.parametrize(
    ("options", "label", "text"),
    [
        # unescape before invisible: the reference becomes a zero-width space, which then goes
        ({"unescape_html": True, "strip_invisible": True}, "a&#8203;b", "ab"),
        # unescape before the Unicode form: the reference becomes a combining mark
        ({"unescape_html": True, "unicode": "NFC"}, "e&#769;", "\u00e9"),
        # unescape before whitespace
        ({"unescape_html": True, "collapse_whitespace": True}, "a&nbsp;&#10;b", "a b"),
        # invisible before the Unicode form: a joiner keeps mark and letter apart
        ({"strip_invisible": True, "unicode": "NFC"}, "e\u200b\u0301", "\u00e9"),
        # form before fold: the ligature is two letters, then small ones
        ({"unicode": "NFKC", "casefold": True}, "\U0001d400\u00df", "ass"),
        # fold, then form again: folding this one undoes composition
        ({"unicode": "NFC", "casefold": True}, "\u01f0", "J\u030c"),
        # fold before accents: the capital dotted I folds to i and a dot above
        ({"unicode": "NFC", "casefold": True, "strip_accents": True}, "\u0130", "i"),
        # compatibility form makes the space that whitespace then trims
        ({"unicode": "NFKC", "collapse_whitespace": True}, "a\u00b4", "a \u0301"),
    ],
)
def test_the_steps_run_in_the_fixed_order(options: dict[str, Any], label: str, text: str) -> None:
    matcher = NormalizedText(**{**OFF, **options})
    assert matcher.normalize(label) == matcher.normalize(text)
    assert rank(matcher, label, *chunks_of(text)) == 1


def test_unescaping_once_is_not_unescaping_twice() -> None:
    assert NormalizedText(unescape_html=True).normalize("&amp;lt;") == "&lt;"


def test_the_description_names_the_steps_that_are_on_and_no_other() -> None:
    assert NormalizedText(**OFF).describe() == "normalised text (no steps)"
    assert NormalizedText().describe() == "normalised text (NFC, whitespace collapsed)"
    everything = NormalizedText(
        unicode="NFKC", casefold=True, strip_invisible=True, unescape_html=True, strip_accents=True
    ).describe()
    assert everything == (
        "normalised text (HTML unescaped, invisible characters removed, NFKC, case folded, "
        "accents removed, whitespace collapsed)"
    )
    assert ChunkId("doc_id").describe() == "chunk id (metadata 'doc_id')"


@pytest.mark.parametrize("bad", ["nfc", "", 3, False, ["NFC"]])
def test_an_unknown_unicode_form_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="unicode must be"):
        NormalizedText(unicode=bad)


@pytest.mark.parametrize("key", ["", 3, True, b"id", ("a",)])
def test_a_metadata_key_is_a_text_or_none(key: Any) -> None:
    with pytest.raises(ValueError, match="key must be"):
        ChunkId(key)


def test_a_chunk_that_is_blank_after_normalising_satisfies_nothing() -> None:
    matcher = NormalizedText(strip_invisible=True)
    assert rank(matcher, "a", *chunks_of("\u200b", " ", "", "\u200ba")) == 4
    for blank in ("\u200b", "\u200b \ufeff"):
        with pytest.raises(ValueError, match="blank after normalising.*remove it"):
            matcher.key(Label(text=blank))


@pytest.mark.parametrize("key", [None, "doc"])
def test_a_missing_id_equals_nothing_and_ids_are_compared_as_they_stand(key: str | None) -> None:
    def chunk(chunk_id: str | None) -> Chunk:
        if key is None:
            return Chunk(text="1", chunk_id=chunk_id)
        return Chunk(text="1", chunk_id="1", metadata={} if chunk_id is None else {key: chunk_id})

    matcher = ChunkId(key)
    label = Label(chunk_id="1", text="other")
    for other in (None, "01", "1 ", "\uff11"):
        assert rank(matcher, label, chunk(None), chunk(other)) is None
        assert rank(matcher, label, chunk(other), chunk("1"), chunk("1")) == 2
    assert rank(matcher, label) is None


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, None, b"1", ["1"], {"1": 1}, {"1"}, ("1", ["x"]), np.array(["1"]), np.int64(1)],
    ids=repr,
)
def test_a_metadata_value_that_is_no_text_equals_no_label_and_breaks_nothing(value: Any) -> None:
    odd = Chunk(text="t", metadata={"id": value})
    assert rank(ChunkId("id"), Label(chunk_id="1"), odd) is None
    run = Run(rankings=[Ranking(query_id="q", chunks=[odd, Chunk(text="u", metadata={"id": "1"})])])
    dataset = Dataset([Query(query_id="q", text="q", relevant_ids=["1"])])
    report = score(run, dataset, k=2, matcher=ChunkId("id"), dedupe=True, exclude_self=True)
    assert report.queries[0].ranks == {"1": 2}


def test_a_group_is_satisfied_by_its_first_member_to_appear() -> None:
    group = Label(alternatives=(Label(text="x"), Label(text="b"), Label(text="a")))
    assert rank(ExactText(), group, *chunks_of("n", "a", "b")) == 2
    assert rank(ExactText(), group, *chunks_of("n")) is None
    mixed = Label(alternatives=(Label(text="x", chunk_id="1"), Label(chunk_id="2")))
    assert rank(ChunkId(), mixed, Chunk(text="x"), Chunk(text="", chunk_id="2")) == 2
    with pytest.raises(ValueError, match="no text"):
        rank(ExactText(), mixed, *chunks_of("x"))


def test_the_built_in_matchers_keep_the_protocols_and_equal_their_kind() -> None:
    for one in (ExactText(), NormalizedText(), ChunkId(), ChunkId("k")):
        assert isinstance(one, KeyedMatcher)
        assert check_matcher(one) is one
        assert one.first_ranks([], Chunks(["a"])) == ()
    assert len({ChunkId(), ChunkId(), ChunkId("k"), ExactText(), ExactText()}) == 3
    assert ChunkId() != "chunk id"
    assert repr(ChunkId()) == "ChunkId()"


def test_the_default_is_ids_only_where_every_label_is_an_id_alone() -> None:
    text, one_id, both = Label(text="a"), Label(chunk_id="1"), Label(text="a", chunk_id="1")
    assert default_matcher([one_id, one_id]) == ChunkId()
    for labels in ([], [text], [both], [one_id, both], [text, one_id]):
        assert default_matcher(labels) == ExactText()
    group = Query(query_id="g", text="g", relevant=[[one_id, Label(chunk_id="2")]])
    dataset = Dataset([group, Query(query_id="n", text="n", relevant=[])])
    assert score(Run(), dataset, k=1).rules["matcher"] == "chunk id"
    assert score(Run(), {"q": []}, k=1).rules["matcher"] == "exact text"


@pytest.mark.parametrize("matcher", [ExactText, NormalizedText, ChunkId])
def test_a_class_where_a_matcher_belongs_is_told_to_be_called(matcher: Any) -> None:
    with pytest.raises(TypeError, match=rf"write {matcher.__name__}\(\)"):
        score(Run(), {"q": ["a"]}, matcher=matcher)


@pytest.mark.parametrize("matcher", ["exact", 5, object(), lambda a, b: True, ["x"]])
def test_what_is_no_matcher_is_a_type_error(matcher: Any) -> None:
    with pytest.raises(TypeError, match=r"describe\(\) and first_ranks"):
        score(Run(), {"q": ["a"]}, matcher=matcher)


@pytest.mark.parametrize(
    ("matcher", "labels", "hint"),
    [
        (None, ["text", Label(chunk_id="1")], "passes|pass a matcher that reads its chunk_id"),
        (NormalizedText(), [Label(chunk_id="1")], "pass a matcher that reads its chunk_id"),
        (ChunkId(), ["text"], "pass a matcher that reads its text"),
        (ChunkId("k"), [["text", Label(chunk_id="1")]], r"Label\(text=…, chunk_id=…\)"),
    ],
)
def test_unreadable_labels_are_refused_with_every_query_named_before_anything_is_retrieved(
    matcher: Any, labels: Any, hint: str
) -> None:
    asked: list[str] = []

    def retriever(text: str) -> list[str]:
        asked.append(text)
        return ["text"]

    dataset = Dataset([Query(query_id=f"q{i}", text=f"{i}", relevant=labels) for i in range(3)])
    with pytest.raises(ValueError, match=hint) as caught:
        evaluate_retriever(retriever, dataset, k=1, matcher=matcher, progress=False)
    assert asked == []
    assert all(f"query 'q{i}'" in str(caught.value) for i in range(3))
    assert not isinstance(caught.value, DatasetError)


class Starts:
    """A rule of the user's own, without keys: the chunk starts with the label."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    def describe(self) -> str:
        return "starts with"

    def first_ranks(self, labels: Sequence[Label], chunks: Sequence[Chunk]) -> Any:
        for label in labels:
            if label.text is None:
                raise ValueError(f"{label!r} has no text")
        if len(chunks) and self.answer is not None:
            return self.answer
        return tuple(
            next((r for r, c in enumerate(chunks, 1) if c.text.startswith(str(label.text))), None)
            for label in labels
        )


def scored(matcher: Any, relevant: Any, *texts: str, **options: Any) -> Any:
    dataset = Dataset([Query(query_id="q", text="t", relevant=relevant)])
    run = Run(rankings=[Ranking(query_id="q", chunks=chunks_of(*texts))])
    return score(run, dataset, k=(1, None), matcher=matcher, **options)


def test_a_matcher_without_keys_merges_labels_by_identical_text_or_id() -> None:
    labels = [Label(text="a", chunk_id="1"), Label(text="a", chunk_id="2"), "a", ["b", "a"]]
    report = scored(Starts(), labels, "x", "ab", "bc")
    assert report.queries[0].ranks == {"a": 2, "b | a": 2}
    assert any("merged" in note and "'q' 4 → 2" in note for note in report.notes)
    assert report.summary["recall@1"].ceiling is None


@pytest.mark.parametrize(
    "answer",
    [(), (1, 1), (0,), (-1,), (3,), (1.0,), (0.5,), ("1",), (True,), ([],), 1, "1", object(), {}],
)
def test_ranks_that_cannot_be_are_a_value_error_naming_the_matcher(answer: Any) -> None:
    with pytest.raises(ValueError, match="'starts with' must give one rank from 1 to 2 or None"):
        scored(Starts(answer), ["a"], "a", "b")


@pytest.mark.parametrize("answer", [[np.int64(2)], np.array([2]), iter([2]), (2,), [None]])
def test_ranks_of_any_integer_kind_become_plain_integers(answer: Any) -> None:
    report = scored(Starts(answer), ["a"], "a", "b")
    assert report.queries[0].label_ranks in ((2,), (None,))
    assert type(report.queries[0].label_ranks[0]) in (int, type(None))
    assert '"ranks": {"a": ' in report.to_json()


def test_a_matcher_without_keys_refuses_every_unreadable_label_at_once() -> None:
    queries = [Query(query_id=f"q{i}", text="t", relevant_ids=["1"]) for i in range(2)]
    with pytest.raises(ValueError, match=r"query 'q0': [\s\S]*query 'q1': "):
        score(Run(), Dataset(queries), matcher=Starts())


class Lengths(Starts):
    """Keys of its own: labels of equal length are one label."""

    def key(self, label: Label) -> int:
        return len(label.text or "")


def test_a_matcher_with_keys_merges_by_them_and_has_a_ceiling() -> None:
    report = scored(Lengths(), ["aa", "bb", "c"], "bb", "c")
    assert report.queries[0].labels == ("aa", "c")
    assert report.summary["recall@1"].ceiling == 0.5
    with pytest.raises(DatasetError, match="grades 1 and 2"):
        scored(Lengths(), ["aa", Label(text="bb", grade=2)], "bb")


class Short(ExactText):
    def chunk_keys(self, chunks: Chunks) -> Any:
        return chunks.texts[:-1]


def test_a_wrong_number_of_chunk_keys_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="gave 1 keys for 2 chunks"):
        scored(Short(), ["a"], "a", "b")


@pytest.mark.parametrize("threshold", [0, -0.1, 1.01, True, "0.9", None, float("nan"), [0.5]])
@pytest.mark.parametrize("kind", [Coverage, Fuzzy])
def test_a_threshold_that_is_none_is_refused(kind: Any, threshold: Any) -> None:
    with pytest.raises(ValueError, match="threshold must be above 0 and at most 1"):
        kind(threshold)


def test_the_further_matchers_say_what_they_do_and_equal_their_kind() -> None:
    names = {
        Contains(): "label inside the chunk",
        Contains("chunk-in-label"): "chunk inside the label",
        Coverage(0.75): "coverage (at least 0.75 of the label)",
        Fuzzy(): "fuzzy text (similarity of at least 0.9)",
    }
    for matcher, name in names.items():
        assert matcher.describe() == name
        assert scored(matcher, ["a"], "a").rules["matcher"] == name
    assert Coverage() == Coverage(0.9) != Coverage(0.8)
    assert repr(Fuzzy(0.5)) == "Fuzzy(threshold=0.5)"
    with pytest.raises(ValueError, match="direction must be"):
        Contains("label_in_chunk")  # type: ignore[arg-type]


def test_fuzzy_without_rapidfuzz_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    with pytest.raises(MissingExtraError, match=r'pip install "chunkrecall\[fuzzy\]"'):
        Fuzzy()
