"""One reason behind many misses: what a single change of the rules would make hits of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from chunkrecall.diagnosis.case import Case
from chunkrecall.diagnosis.causes import CAUSES, Finding
from chunkrecall.diagnosis.passages import plain_id
from chunkrecall.matching import Coverage, NormalizedText
from chunkrecall.records import Chunks, Label

if TYPE_CHECKING:
    from chunkrecall.diagnosis.result import Miss

Key: TypeAlias = "tuple[str, str]"
"""A query and one of its labels."""

_MOST_OF_THEM = 0.5
_COVERAGE = "coverage matching"


@dataclass(frozen=True, slots=True)
class Rule:
    """A change of the comparison, and the misses that it makes hits."""

    name: str
    """As it follows "become hits under"."""
    action: str
    recovers: frozenset[Key]


def normalizers() -> Mapping[str, NormalizedText]:
    """The normalisations that are tried, each alone and then all at once."""
    alone = {"unicode": None, "collapse_whitespace": False}
    return {
        "whitespace normalisation": NormalizedText(unicode=None),
        "case folding": NormalizedText(**alone, casefold=True),  # type: ignore[arg-type]
        "Unicode normalisation (NFC)": NormalizedText(unicode="NFC", collapse_whitespace=False),
        "Unicode normalisation (NFKC)": NormalizedText(unicode="NFKC", collapse_whitespace=False),
        "removing invisible characters": NormalizedText(**alone, strip_invisible=True),  # type: ignore[arg-type]
        "HTML unescaping": NormalizedText(**alone, unescape_html=True),  # type: ignore[arg-type]
        "removing accents": NormalizedText(**alone, strip_accents=True),  # type: ignore[arg-type]
        "all text normalisations together": NormalizedText(
            unicode="NFKC",
            casefold=True,
            strip_invisible=True,
            unescape_html=True,
            strip_accents=True,
        ),
    }


def rules_that_help(cases: Sequence[tuple[Case, Sequence[Finding]]]) -> list[Rule]:
    """Every change of the comparison that makes hits of any of the misses, in a fixed order."""
    rules = [
        *_normalisations(cases),
        _rule(
            cases,
            "removing the metadata prefix",
            "compare chunk texts without the metadata in front",
            lambda case, one: one.details.get("how") == "metadata prefix" and _is_in_top(case, one),
        ),
        _rule(
            cases,
            "comparing ids as text",
            "store ids as strings, written alike",
            lambda case, one: _has_id(case, one, ("id type", "id form")),
        ),
        _by_key(cases, "parent id", "matching by parent document id"),
        _by_key(cases, "metadata key", "matching by a metadata key"),
        _coverage(cases),
    ]
    return [rule for rule in rules if rule.recovers]


def headline(misses: Sequence[Miss], rules: Sequence[Rule], found: int) -> str:
    """The one sentence that is said first.

    Args:
        misses: All of them.
        rules: The changes of the comparison that help.
        found: How many labels were found.
    """
    total = len(misses)
    if not total:
        return "nothing was missed"
    boundaries = frozenset(
        (miss.query_id, miss.label) for miss in misses if miss.cause in _BOUNDARIES
    )
    best = max(rules, key=lambda rule: _weight(rule, boundaries), default=None)
    if best is not None and len(best.recovers) >= _MOST_OF_THEM * total:
        number = len(best.recovers)
        become = "becomes a hit" if number == 1 else "become hits"
        why = _boundaries(misses) if best.name == _COVERAGE else _elsewhere(misses, number)
        return f"{_part(number, total)} {become} under {best.name}{why}"
    counts = Counter(miss.cause for miss in misses)
    cause = max(CAUSES, key=lambda one: counts[one])
    number = counts[cause]
    if cause == "not_indexed" and number >= _MOST_OF_THEM * total:
        if number == total and not found:
            labels = "the one label is" if total == 1 else f"all {total} labels are"
            return (
                f"{labels} unknown to this index, so this recall is no measure of the retriever: "
                "label what is indexed, by text or by ids derived from the content"
            )
        return (
            f"{_part(number, total)} {_is(number)} unknown to this index: no chunk of the corpus "
            "is the label"
        )
    if cause == "lost_at_stage":
        stages = Counter(_stage(miss) for miss in misses if miss.cause == cause)
        stage, times = stages.most_common(1)[0]
        if times >= _MOST_OF_THEM * total:
            return f"{_part(times, total)} {'was' if times == 1 else 'were'} lost at {stage}"
    if cause == "unknown":
        return f"{_part(number, total)} {_is(number)} unexplained: {_what_to_pass(misses)}"
    return f"{_part(number, total)}: {CAUSES[cause]} ({cause})"


def _coverage(cases: Sequence[tuple[Case, Sequence[Finding]]]) -> Rule:
    """Matching by coverage, where any label was returned within other boundaries."""
    matcher = Coverage()
    asked = [case for case, _ in cases if case.wanted.texts and not case.reads_ids]
    hits = [case for case in asked if _is_covered(case, matcher)]
    has_boundaries = any(one.cause in _BOUNDARIES for _, found in cases for one in found)
    return Rule(
        _COVERAGE,
        "count a label whose text was returned, whatever the boundaries: match with Coverage()",
        frozenset(map(_key, hits)) if has_boundaries else frozenset(),
    )


def _is_covered(case: Case, matcher: Coverage) -> bool:
    labels = [Label(text=text) for text in case.wanted.texts]
    top = Chunks(case.lists.top)
    return any(rank is not None for rank in matcher.first_ranks(labels, top))


def _weight(rule: Rule, boundaries: frozenset[Key]) -> int:
    """For how many misses the rule is what they need: coverage hides what a lesser change mends."""
    return len(rule.recovers & boundaries if rule.name == _COVERAGE else rule.recovers)


def _normalisations(cases: Sequence[tuple[Case, Sequence[Finding]]]) -> list[Rule]:
    near = [
        case
        for case, findings in cases
        if any(one.cause == "text_differs" and _is_in_top(case, one) for one in findings)
    ]
    rules = [
        Rule(name, f"match with {_written(matcher)}", frozenset(map(_key, _hits(near, matcher))))
        for name, matcher in normalizers().items()
    ]
    together = rules.pop()
    if any(rule.recovers == together.recovers for rule in rules):
        return rules
    return [*rules, together]


def _hits(cases: Sequence[Case], matcher: NormalizedText) -> list[Case]:
    hits = []
    for case in cases:
        wanted = set(map(matcher.normalize, case.wanted.texts)) - {""}
        if any(matcher.normalize(text) in wanted for text in case.lists.top):
            hits.append(case)
    return hits


def _written(matcher: NormalizedText) -> str:
    defaults = NormalizedText()
    names = (
        "unicode", "collapse_whitespace", "casefold", "strip_invisible", "unescape_html",
        "strip_accents",
    )  # fmt: skip
    changed = [
        f"{name}={getattr(matcher, name)!r}"
        for name in names
        if getattr(matcher, name) != getattr(defaults, name)
    ]
    return f"NormalizedText({', '.join(changed)})"


def _rule(
    cases: Sequence[tuple[Case, Sequence[Finding]]],
    name: str,
    action: str,
    holds: Callable[[Case, Finding], bool],
) -> Rule:
    keys = [_key(case) for case, findings in cases if any(holds(case, one) for one in findings)]
    return Rule(name, action, frozenset(keys))


def _by_key(cases: Sequence[tuple[Case, Sequence[Finding]]], kind: str, name: str) -> Rule:
    """The rule that reads ids from the metadata key that most of the misses stand under."""
    keys = Counter(
        str(one.details["key"])
        for case, findings in cases
        for one in findings
        if _has_id(case, one, (kind,))
    )
    key = keys.most_common(1)[0][0] if keys else ""
    return _rule(
        cases,
        name,
        f"match with ChunkId({key!r})",
        lambda case, one: _has_id(case, one, (kind,)) and one.details.get("key") == key,
    )


def _has_id(case: Case, finding: Finding, kinds: tuple[str, ...]) -> bool:
    if finding.cause != "id_differs" or finding.details.get("kind") not in kinds:
        return False
    key = finding.details.get("key")
    wanted = set(case.wanted.ids)
    reach = min(len(case.lists.chunks), len(case.lists.top))
    chunks = case.lists.chunks
    if key is None:
        from_list = [chunks[index].chunk_id for index in range(reach)]
        plain = {plain_id(one) for one in wanted}
        return any(one is not None and plain_id(one) in plain for one in from_list)
    return any(str(chunks.metadata_at(index).get(key)) in wanted for index in range(reach))


def _is_in_top(case: Case, finding: Finding) -> bool:
    rank = finding.details.get("rank")
    return isinstance(rank, int) and case.is_within(rank)


def _key(case: Case) -> Key:
    return case.lists.query.query_id, case.wanted.name


def _elsewhere(misses: Sequence[Miss], hits: int) -> str:
    """How many more labels are found in another form alone, further down or not returned."""
    number = sum(miss.cause == "text_differs" for miss in misses)
    if number <= hits:
        return ""
    return f"; {number} labels are not in the index as they are written, but in another form"


def _boundaries(misses: Sequence[Miss]) -> str:
    counts = Counter(miss.cause for miss in misses if miss.cause in _BOUNDARIES)
    if not counts:
        return ""
    return f": {_BOUNDARIES[counts.most_common(1)[0][0]]}"


_BOUNDARIES = {
    "split": "the labels are split across chunks",
    "merged": "the index is split coarser, and the labels stand inside larger chunks",
    "neighbour_window": "neighbouring windows were returned",
}


def _part(number: int, total: int) -> str:
    if total == 1:
        return "the one miss"
    return f"all {total} misses" if number == total else f"{number} of {total} misses"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _stage(miss: Miss) -> str:
    return next(
        (str(one.details.get("stage")) for one in miss.findings if one.cause == "lost_at_stage"), ""
    )


def _what_to_pass(misses: Sequence[Miss]) -> str:
    first = Counter(miss.remedy for miss in misses if miss.cause == "unknown")
    return first.most_common(1)[0][0]
