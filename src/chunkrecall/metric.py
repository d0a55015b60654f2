"""Recall@K on plain lists: the rank kernel that all scoring goes through.

Recall at cutoff k is |labels found in the first k| / |labels|: set recall cut at k, as in
trec_eval's `recall_k` (Buckley and Voorhees, TREC 2005). Everything here follows from one thing,
the first rank of each label, so recall never falls as k grows and a repeated chunk counts once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress, count
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

Cutoff: TypeAlias = "int | None"
Cutoffs: TypeAlias = "SupportsIndex | None | Iterable[SupportsIndex | None]"


def check_k(k: SupportsIndex | None) -> Cutoff:
    """The cutoff as an int, or None for the whole list.

    Raises:
        ValueError: k is neither None nor an integer of at least 1 (a bool is no integer here).
    """
    if k is None:
        return None
    if not isinstance(k, (bool, str, bytes)) and hasattr(k, "__index__"):
        try:
            cutoff = as_index(k)
        except TypeError:  # numpy's bool and arrays have __index__ and refuse to be one
            cutoff = 0
        if cutoff >= 1:
            return cutoff
    message = f"k must be an integer of at least 1, or None for the whole list; got {k!r}"
    raise ValueError(message)


def check_ks(k: Cutoffs) -> tuple[Cutoff, ...]:
    """The distinct cutoffs in ascending order, None (the whole list) last.

    Raises:
        ValueError: one of them is no valid cutoff, or there is none.
    """
    is_one = isinstance(k, (str, bytes, bytearray)) or getattr(k, "ndim", None) == 0
    if isinstance(k, Iterable) and not is_one:  # numpy's scalar array has __iter__ and refuses it
        cutoffs = {check_k(one) for one in k}
        if not cutoffs:
            message = f"k must name at least one cutoff; got {k!r}"
            raise ValueError(message)
        return tuple(sorted(cutoffs, key=depth_of))
    return (check_k(k),)  # type: ignore[arg-type]  # a text is refused there


def depth_of(k: Cutoff) -> float:
    """How deep a cutoff reaches: itself, or infinity for the whole list."""
    return float("inf") if k is None else k


def cutoff_name(k: Cutoff, measure: str = "recall") -> str:
    """How a measure at a cutoff is written: `recall@5`, `recall@all`."""
    return f"{measure}@{'all' if k is None else k}"


def hit_positions(wanted: AbstractSet[Hashable], retrieved: Sequence[Hashable]) -> list[int]:
    """Ascending 1-based ranks at which a wanted item stands for the first time.

    `wanted` is a set or a dict's keys; one membership test per retrieved item, all in C.
    """
    positions = list(compress(count(1), map(wanted.__contains__, retrieved)))
    if len(positions) > 1:
        firsts = {retrieved[rank - 1]: rank for rank in reversed(positions)}
        if len(firsts) != len(positions):
            positions = sorted(firsts.values())
    return positions


def found_at(ranks: Sequence[int], k: Cutoff) -> int:
    """How many of the ascending 1-based ranks lie within the first k."""
    return len(ranks) if k is None else bisect_right(ranks, k)


def recall_at_k(
    retrieved: Sequence[str], relevant: Iterable[str], k: SupportsIndex | None = None
) -> float | None:
    """Share of the distinct relevant texts that the first k retrieved ones contain, in [0, 1].

    Equality is exact. The list is cut as it stands, so a repeat occupies its slot and counts once.

    Args:
        retrieved: Chunk texts (or ids) in ranked order.
        relevant: Texts (or ids) that should have been found; repeats count once.
        k: The cutoff, None for the whole list.

    Returns:
        None when nothing is relevant: recall is then undefined, neither 0 nor 1.

    Raises:
        TypeError: A bare string where a list belongs, or an element that is no string.
        ValueError: An invalid k, or a blank relevant text.
    """
    cutoff = check_k(k)
    items = _ranked(retrieved, "retrieved")
    for position, item in enumerate(items):
        if not isinstance(item, str):
            raise _not_a_string("retrieved", position, item)
    wanted = _wanted(relevant, "relevant")
    if not wanted:
        return None
    top = items if cutoff is None else items[:cutoff]
    return len(hit_positions(wanted, top)) / len(wanted)


def recall_at_ks(
    retrieved_lists: Iterable[Sequence[str]],
    relevant_lists: Iterable[Iterable[str]],
    ks: Cutoffs,
) -> dict[Cutoff, list[float | None]]:
    """Recall of many queries at several cutoffs, in one pass over each list.

    Args:
        retrieved_lists: For each query, chunk texts (or ids) in ranked order.
        relevant_lists: For each query, in the same order, what should have been found.
        ks: One cutoff or several; None is the whole list.

    Returns:
        For each cutoff, ascending and None last, one value per query in order; None where nothing
        is relevant.

    Raises:
        TypeError: A bare string where a list belongs, or a list that does not hold strings.
        ValueError: An invalid k, a blank relevant text, or different numbers of queries.
    """
    cutoffs = check_ks(ks)
    bounds = [k for k in cutoffs if k is not None]
    whole = None in cutoffs
    deepest = None if whole else bounds[-1]
    columns: list[list[float | None]] = [[] for _ in cutoffs]
    numbered = list(zip(columns, bounds, strict=False))  # the whole list, if any, comes after them
    retrieved_rows = _ranked(retrieved_lists, "retrieved_lists")
    relevant_rows = _ranked(relevant_lists, "relevant_lists")
    if len(retrieved_rows) != len(relevant_rows):
        message = (
            f"retrieved_lists has {len(retrieved_rows)} queries and relevant_lists has "
            f"{len(relevant_rows)}: give one list of each for every query"
        )
        raise ValueError(message)
    for row, (retrieved, relevant) in enumerate(zip(retrieved_rows, relevant_rows, strict=True)):
        top = (
            retrieved if type(retrieved) is list else _ranked(retrieved, f"retrieved_lists[{row}]")
        )
        if deepest is not None and len(top) > deepest:
            top = top[:deepest]
        try:
            # Refuses what is no string, all in C; stops early, and is true, at an empty one.
            if "".startswith(tuple(top)):  # type: ignore[arg-type]
                _strings(top, f"retrieved_lists[{row}]")
            wanted = (
                set(relevant)
                if type(relevant) is list
                else _wanted(relevant, f"relevant_lists[{row}]")
            )
            if any(map(str.isspace, wanted)) or "" in wanted:
                raise ValueError  # noqa: TRY301 - worked out below, off the fast path
            ranks = hit_positions(wanted, top)
        except (TypeError, ValueError):
            _wanted(relevant, f"relevant_lists[{row}]")
            _strings(top, f"retrieved_lists[{row}]")
            raise
        size = len(wanted)
        if not size:
            for column in columns:
                column.append(None)
            continue
        for column, k in numbered:
            column.append(bisect_right(ranks, k) / size)
        if whole:
            columns[-1].append(len(ranks) / size)
    return dict(zip(cutoffs, columns, strict=True))


def check_label_text(text: str, place: str) -> None:
    """Refuse a label that every chunk, or no chunk, would satisfy.

    Raises:
        ValueError: The text is empty or only whitespace.
    """
    if not text or text.isspace():
        message = f"{place}: a relevant text must not be blank, got {text!r} — remove it"
        raise ValueError(message)


def _ranked(values: object, place: str) -> list[object]:
    """A list in ranked order, or a TypeError that names the place."""
    if isinstance(values, (str, bytes, bytearray)):
        message = (
            f"{place} must be a list, got the bare {type(values).__name__} {values!r:.80} — "
            "put it in a list"
        )
        raise TypeError(message)
    is_table = hasattr(values, "columns")  # going through one gives the columns' names
    if isinstance(values, (AbstractSet, dict)) or not isinstance(values, Iterable) or is_table:
        order = "" if "relevant" in place else " in ranked order"
        message = f"{place} must be a list of strings{order}, got {type(values).__name__}"
        raise TypeError(message)
    return list(values)


def _strings(items: Iterable[object], place: str) -> None:
    for position, item in enumerate(items):
        if not isinstance(item, str):
            raise _not_a_string(place, position, item)


def _wanted(relevant: object, place: str) -> set[str]:
    """The distinct relevant texts, each checked."""
    items = relevant if isinstance(relevant, AbstractSet) else _ranked(relevant, place)
    _strings(items, place)
    texts = {item for item in items if isinstance(item, str)}
    for text in texts:
        check_label_text(text, place)
    return texts


def _not_a_string(place: str, position: int, item: object) -> TypeError:
    return TypeError(
        f"{place}[{position}] must be a string, got {type(item).__name__} {item!r:.80}"
    )
