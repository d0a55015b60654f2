"""The sentence that says how a score came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkrecall.metric import cutoff_name
from chunkrecall.render import quoted, share
from chunkrecall.text import NearMisses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chunkrecall.metric import Cutoff

_LISTED = 3
_SHOWN_CHARACTERS = 100


def recall_reason(
    k: Cutoff,
    *,
    found: int,
    relevant: int,
    retrieved: Sequence[str],
    retrieved_count: int,
    missing: Sequence[str],
    ranks: Mapping[str, int | None] | None = None,
) -> str:
    """Like `Recall@3: 0.667 (2/3 relevant chunks in the top 3); missing: 'The Louvre …'`.

    Args:
        k: The cutoff.
        found: How many labels the first k chunks satisfy.
        relevant: How many labels there are, at least 1.
        retrieved: The texts among which a near miss is looked for; may be empty.
        retrieved_count: How many chunks were retrieved.
        missing: The labels not among the first k.
        ranks: The rank of a label that was retrieved below k.
    """
    name = cutoff_name(k, "Recall")
    if k is None:
        scope = f"all {retrieved_count} retrieved"
    elif retrieved_count < k:
        scope = f"the top {k}; {retrieved_count} retrieved"
    else:
        scope = f"the top {k}"
    text = f"{name}: {share(found / relevant)} ({found}/{relevant} relevant chunks in {scope})"
    if not missing:
        return text
    near_misses = NearMisses(retrieved)
    listed = [_missing(label, near_misses, ranks or {}) for label in missing[:_LISTED]]
    if len(missing) > _LISTED:
        listed.append(f"and {len(missing) - _LISTED} more")
    return f"{text}; missing: {', '.join(listed)}"


def _missing(label: str, near_misses: NearMisses, ranks: Mapping[str, int | None]) -> str:
    shown = quoted(label, limit=_SHOWN_CHARACTERS)
    rank = ranks.get(label)
    if rank is not None:
        return f"{shown} (at rank {rank})"
    near = near_misses.find(label)
    return shown if near is None else f"{shown} (the chunk at rank {near[0]} is {near[1]})"
