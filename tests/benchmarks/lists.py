"""The labelled lists that are scored: 100 retrieved chunks and 10 labels a query.

Half of the labels, on average, are among the retrieved chunks, at random ranks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from random import Random

DEPTH = 100
LABELS = 10
_WORDS = 1_500_000


@dataclass(frozen=True, slots=True)
class Lists:
    """The rows as JSON texts: reading them again gives strings whose hash is not cached."""

    retrieved: list[str]
    relevant: list[str]

    def fresh(self) -> tuple[list[list[str]], list[list[str]]]:
        """The retrieved and the relevant lists, of new strings."""
        return [json.loads(row) for row in self.retrieved], [json.loads(x) for x in self.relevant]


def lists_of(queries: int, characters: int) -> Lists:
    """Rows of distinct texts with so many characters each."""
    random = Random(f"{queries} {characters}")
    prose = _prose()
    retrieved, relevant = [], []
    for _ in range(queries):
        texts = [_text(random, prose, characters) for _ in range(DEPTH + LABELS)]
        found = sum(random.random() < 0.5 for _ in range(LABELS))
        labels = random.sample(texts[:DEPTH], found) + texts[DEPTH : DEPTH + LABELS - found]
        random.shuffle(labels)
        retrieved.append(json.dumps(texts[:DEPTH]))
        relevant.append(json.dumps(labels))
    return Lists(retrieved, relevant)


def _text(random: Random, prose: str, characters: int) -> str:
    start = random.randrange(len(prose) - characters)
    if characters < 50:  # like an id; so short a piece of prose would not be unique
        return f"{random.getrandbits(4 * characters):0{characters}x}"
    # Begins and ends with a letter, as a chunk does.
    return f"C{prose[start : start + characters - 2]}."


@cache
def _prose() -> str:
    random = Random(0)
    words = [
        "".join(random.choices("etaoinshrdlucmfwyp", k=random.randint(2, 10))) for _ in range(5000)
    ]
    return " ".join(random.choices(words, k=_WORDS))
