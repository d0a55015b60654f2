"""How a label is compared with chunks.

A matcher turns labels and a ranked list into first ranks: for each label the smallest r such that
the first r chunks satisfy it. Everything that is scored follows from those ranks.
"""

from chunkrecall.matching.contains import Contains, Direction
from chunkrecall.matching.coverage import Coverage, shortest_run
from chunkrecall.matching.fuzzy import Fuzzy
from chunkrecall.matching.keyed import (
    ChunkId,
    ExactText,
    NormalizedText,
    UnicodeForm,
    default_matcher,
    ranks_by_key,
)
from chunkrecall.matching.protocol import (
    KeyedMatcher,
    Matcher,
    MeasuringMatcher,
    check_matcher,
    check_threshold,
)

__all__ = [
    "ChunkId",
    "Contains",
    "Coverage",
    "Direction",
    "ExactText",
    "Fuzzy",
    "KeyedMatcher",
    "Matcher",
    "MeasuringMatcher",
    "NormalizedText",
    "UnicodeForm",
    "check_matcher",
    "check_threshold",
    "default_matcher",
    "ranks_by_key",
    "shortest_run",
]
