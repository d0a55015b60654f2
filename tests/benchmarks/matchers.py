"""The matchers that look beyond equality against exact text, on chunks of 4 kB."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Candidate, Figure, Settings, Timings, in_turns

from chunkrecall import (
    Chunk,
    Contains,
    Coverage,
    Dataset,
    ExactText,
    Fuzzy,
    Label,
    Query,
    Ranking,
    Run,
    score,
)

if TYPE_CHECKING:
    from chunkrecall import Matcher

CHARACTERS = 4_096
CHUNKS = 100
NOT_EXACT = 20
"""One label in so many equals no chunk; every other one of those is a chunk with an edit."""
AT_MOST = 20.0
REPEATS = 100_000


RANKED = "equal ones ranked"
"""The equal chunk is at rank r with a chance that falls as 1/r, as after retrieval."""
ANYWHERE = "equal ones anywhere"
MATCHERS: dict[str, Matcher] = {
    "ExactText": ExactText(),
    "Contains": Contains(),
    "Coverage": Coverage(),
    "Fuzzy": Fuzzy(),
}


@dataclass(frozen=True, slots=True)
class Case:
    """Texts that are made anew for each round: a str computes its hash only once."""

    lists: list[list[str]]
    labels: list[str]

    def fresh(self) -> tuple[Run, Dataset]:
        """A run and a dataset whose texts nobody has hashed yet, as a store returns them."""
        rankings = [
            Ranking(query_id=str(number), chunks=[Chunk(text=_copy(text)) for text in texts])
            for number, texts in enumerate(self.lists)
        ]
        queries = [
            Query(query_id=str(number), text="?", relevant=[_copy(text)])
            for number, text in enumerate(self.labels)
        ]
        return Run(rankings=rankings), Dataset(queries)


def figures(settings: Settings) -> Iterator[Figure]:
    """A label a query, many labels in one list, and texts that repeat one character."""
    queries = min(settings.slow_queries, 500)
    for where, at_most in ((RANKED, AT_MOST), (ANYWHERE, None)):
        yield from _of_lists(_case(queries, where), settings, where, at_most)
    yield from _of_one_list(settings)
    yield from _repeats()


def _of_lists(
    case: Case, settings: Settings, where: str, at_most: float | None
) -> Iterator[Figure]:
    timings = in_turns(
        {
            name: Candidate(case.fresh, partial(_scored, matcher))
            for name, matcher in MATCHERS.items()
        },
        rounds=min(3, settings.rounds),
        agreeing=(),
    )
    for name in list(MATCHERS)[1:]:
        ratio = 1 / timings.times_faster(name, "ExactText")
        measure = f"{name}, {len(case.labels)} labels of {CHUNKS} chunks, {where}"
        yield _figure(measure, timings, name, ratio, at_most)


def _of_one_list(settings: Settings) -> Iterator[Figure]:
    chunks, labels = _one_list()
    timings = in_turns(
        {
            name: Candidate(lambda: None, partial(_ranked, matcher, labels, chunks))
            for name, matcher in MATCHERS.items()
        },
        rounds=min(3, settings.rounds),
        agreeing=(),
    )
    for name in list(MATCHERS)[1:]:
        ratio = 1 / timings.times_faster(name, "ExactText")
        yield _figure(f"{name}, 2,000 labels in one list", timings, name, ratio, None)


def _repeats() -> Iterator[Figure]:
    """Twice the length must take about twice the time."""
    for name in ("Coverage", "Fuzzy"):
        timings = in_turns(
            {
                str(size): Candidate(lambda: None, partial(_repeated, MATCHERS[name], size))
                for size in (REPEATS, 2 * REPEATS)
            },
            rounds=3,
            agreeing=(),
        )
        ratio = timings.times_faster(str(REPEATS), str(2 * REPEATS))
        yield Figure(
            measure=f"{name}, 'a' x {2 * REPEATS:,} against half of it",
            ours=f"{timings.median_s(str(2 * REPEATS)) * 1e3:.1f} ms",
            peer=f"{timings.median_s(str(REPEATS)) * 1e3:.1f} ms",
            ratio=ratio,
            target="<= 3",
            met=ratio <= 3,
        )


def _figure(
    measure: str, timings: Timings, name: str, ratio: float, at_most: float | None
) -> Figure:
    seconds = timings.median_s
    return Figure(
        measure=measure,
        ours=f"{seconds(name) * 1e3:.0f} ms",
        peer=f"{seconds('ExactText') * 1e3:.0f} ms ExactText",
        ratio=ratio,
        target="" if at_most is None else f"<= {at_most:g}",
        met=None if at_most is None else ratio <= at_most,
    )


def _scored(matcher: Matcher, inputs: tuple[Run, Dataset]) -> object:
    run, dataset = inputs
    return score(run, dataset, k=(1, 10, 100), matcher=matcher, keep_texts=False).mean(10)


def _ranked(matcher: Matcher, labels: list[Label], chunks: list[Chunk], _: object) -> object:
    return matcher.first_ranks(labels, chunks)


def _repeated(matcher: Matcher, size: int, _: object) -> object:
    chunks = [Chunk(text="a" * (size - 1) + "b"), Chunk(text="b" + "a" * (size // 2))]
    return matcher.first_ranks([Label(text="a" * size)], chunks)


def _case(queries: int, where: str) -> Case:
    numbers = random.Random(7)
    words = _words(numbers)
    corpus = [_text(numbers, words) for _ in range(500)]
    lists = [numbers.sample(corpus, CHUNKS) for _ in range(queries)]
    weights = [1 / rank if where == RANKED else 1 for rank in range(1, CHUNKS + 1)]
    labels = [_label(numbers, words, one, i, weights) for i, one in enumerate(lists)]
    return Case(lists, labels)


def _one_list() -> tuple[list[Chunk], list[Label]]:
    numbers = random.Random(8)
    words = _words(numbers)
    texts = [_text(numbers, words) for _ in range(CHUNKS)]
    labels = [
        Label(text=_label(numbers, words, texts, index, [1] * CHUNKS)) for index in range(2_000)
    ]
    return [Chunk(text=text) for text in texts], labels


def _label(
    numbers: random.Random,
    words: list[str],
    texts: list[str],
    index: int,
    weights: Sequence[float],
) -> str:
    (text,) = numbers.choices(texts, weights)
    if index % NOT_EXACT:
        return text
    return text[:-9] + "#" if index % (2 * NOT_EXACT) else _text(numbers, words)


def _words(numbers: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgk"
    return ["".join(numbers.choices(letters, k=numbers.randint(2, 10))) for _ in range(5_000)]


def _text(numbers: random.Random, words: list[str]) -> str:
    return " ".join(numbers.choices(words, k=CHARACTERS // 4))[:CHARACTERS]


def _copy(text: str) -> str:
    return "".join([text[:1], text[1:]])
