"""The labels of each query under the active matcher, settled before anything is retrieved."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.matching import KeyedMatcher, Matcher, check_matcher, default_matcher

if TYPE_CHECKING:
    from chunkrecall.records import Dataset, Label, Query

_NAMED = 5


@dataclass(frozen=True, slots=True)
class ActiveLabels:
    """The distinct labels of one query that count."""

    names: tuple[str, ...] = ()
    """How each is called in the report; distinct."""
    keys: tuple[tuple[Hashable, ...], ...] = ()
    """For each label the keys of the alternatives that satisfy it; one where it is no group."""
    members: tuple[tuple[Label, ...], ...] = ()
    """The alternatives themselves, for a matcher without keys; empty for one that has them."""


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """A dataset's labels as one matcher sees them."""

    matcher: Matcher
    keyed: KeyedMatcher | None
    """The matcher, if it is equality of keys."""
    queries: tuple[ActiveLabels, ...]
    has_groups: bool
    notes: tuple[str, ...]


def plan_labels(dataset: Dataset, matcher: Matcher | None, relevance_level: int) -> LabelPlan:
    """Merge each query's labels by the matcher's key, after those below the level are removed.

    Raises:
        ValueError: A label that the matcher cannot read.
        DatasetError: One label, as the matcher sees it, with different grades.
    """
    everything = [
        member
        for query in dataset.queries
        for label in query.relevant or ()
        for member in label.members
    ]
    chosen = default_matcher(everything) if matcher is None else check_matcher(matcher)
    keyed = chosen if isinstance(chosen, KeyedMatcher) else None  # a slow question, asked once
    by_keys = keyed is not None
    if not by_keys:
        _refuse_unreadable(dataset, chosen)
    planned: list[ActiveLabels] = []
    merged: list[tuple[str, int, int]] = []
    problems: list[Problem] = []
    unreadable: list[str] = []
    for query in dataset.queries:
        try:
            labels, listed = _active(query, chosen, relevance_level, problems, by_keys=by_keys)
        except ValueError as error:
            unreadable.append(f"query {query.query_id!r}: {error}")
            continue
        if listed != len(labels.names):
            merged.append((query.query_id, listed, len(labels.names)))
        planned.append(labels)
    if unreadable:
        raise ValueError(_listed(unreadable))
    if problems:
        raise DatasetError(problems)
    has_groups = any(len(keys) > 1 for labels in planned for keys in labels.keys)
    return LabelPlan(
        matcher=chosen,
        keyed=keyed,
        queries=tuple(planned),
        has_groups=has_groups,
        notes=_notes(chosen, merged, everything),
    )


def _active(
    query: Query, matcher: Matcher, relevance_level: int, problems: list[Problem], *, by_keys: bool
) -> tuple[ActiveLabels, int]:
    """The query's labels, and how many were listed at this level."""
    if not query.relevant:
        return ActiveLabels(), 0
    if len(query.relevant) == 1 and not query.relevant[0].alternatives:
        return _single(query.relevant[0], matcher, relevance_level, by_keys=by_keys)
    grades: dict[Hashable, int] = {}
    distinct: dict[frozenset[Hashable], dict[Hashable, Label]] = {}
    listed = 0
    for label in query.relevant:
        members: dict[Hashable, Label] = {}
        for member in label.members:
            key = label_key(matcher, member)
            grade = grades.setdefault(key, member.grade)
            if grade != member.grade:
                problems.append(
                    Problem(
                        f"query {query.query_id!r}",
                        f"under {matcher.describe()} the label {str(member)!r:.120} has the grades "
                        f"{grade} and {member.grade} — keep one of them",
                    )
                )
            if member.grade >= relevance_level:
                members.setdefault(key, member)
        if members:
            listed += 1
            distinct.setdefault(frozenset(members), members)
    names: dict[str, None] = {}
    for members in distinct.values():
        name = " | ".join(_name(key, member) for key, member in members.items())
        number = 2
        while name in names:  # two labels that read alike under a matcher of the caller's own
            name = f"{name} #{number}"
            number += 1
        names[name] = None
    keys = tuple([tuple(members) for members in distinct.values()])
    kept = () if by_keys else distinct.values()
    return (
        ActiveLabels(tuple(names), keys, tuple([tuple(members.values()) for members in kept])),
        listed,
    )


def _single(
    label: Label, matcher: Matcher, relevance_level: int, *, by_keys: bool
) -> tuple[ActiveLabels, int]:
    """The usual case of one plain label, which nothing can merge with."""
    key = label_key(matcher, label)
    if label.grade < relevance_level:
        return ActiveLabels(), 0
    members = () if by_keys else ((label,),)
    return ActiveLabels((_name(key, label),), ((key,),), members), 1


def label_key(matcher: Matcher, label: Label) -> Hashable:
    """What a label merges by: the matcher's key, else its span, else its text, else its id."""
    key = getattr(matcher, "key", None)
    if callable(key):
        made: Hashable = key(label)
        return made
    if label.doc_id is not None:  # equal passages at two places are two labels
        return ("span", label.source_span)
    return ("text", label.text) if label.text is not None else ("id", label.chunk_id)


def _name(key: Hashable, label: Label) -> str:
    return (
        key if key == label.chunk_id and isinstance(key, str) and key != label.text else str(label)
    )


def _refuse_unreadable(dataset: Dataset, matcher: Matcher) -> None:
    """Let a matcher without keys look at every label, against no chunks, and refuse some."""
    problems = []
    for query in dataset.queries:
        for label in query.relevant or ():
            try:
                matcher.first_ranks(label.members, ())
            except ValueError as error:
                problems.append(f"query {query.query_id!r}: {error}")
    if problems:
        raise ValueError(_listed(problems))


def _listed(problems: Sequence[str]) -> str:
    rest = len(problems) - _NAMED
    return "\n".join(problems[:_NAMED]) + (f"\n… and {rest} more" if rest > 0 else "")


def _notes(
    matcher: Matcher, merged: Sequence[tuple[str, int, int]], labels: Sequence[Label]
) -> tuple[str, ...]:
    notes = []
    if merged:
        named = ", ".join(
            f"{query!r} {before} → {after}" for query, before, after in merged[:_NAMED]
        )
        rest = len(merged) - _NAMED
        notes.append(
            f"labels that are one label under {matcher.describe()} were merged and count once: "
            + named
            + (f" and {rest} more queries" if rest > 0 else "")
        )
    if any(label.text is not None for label in labels) and _reads_ids(matcher, labels):
        notes.append(
            f"matched by {matcher.describe()}: the texts that the labels carry were not compared"
        )
    return tuple(notes)


def _reads_ids(matcher: Matcher, labels: Sequence[Label]) -> bool:
    return all(
        label.chunk_id is not None
        and label.chunk_id != label.text
        and label_key(matcher, label) == label.chunk_id
        for label in labels
    )


def first_ranks_in(
    ranks: Mapping[Hashable, int], keys: Sequence[Sequence[Hashable]]
) -> tuple[int | None, ...]:
    """For each label, of the given keys, the smallest rank that any of its keys has."""
    return tuple(
        [
            ranks.get(one[0])
            if len(one) == 1
            else min([ranks[key] for key in one if key in ranks], default=None)
            for one in keys
        ]
    )
