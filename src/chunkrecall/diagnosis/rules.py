"""How a report was scored, so that other lists can be scored in the same way."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkrecall.diagnosis.case import Wanted
from chunkrecall.diagnosis.corpus import Corpus
from chunkrecall.errors import MissingExtraError
from chunkrecall.matching import (
    ChunkId,
    Contains,
    Coverage,
    ExactText,
    Fuzzy,
    KeyedMatcher,
    Matcher,
    NormalizedText,
)
from chunkrecall.metric import Cutoff
from chunkrecall.records import Dataset, DatasetInput, Label, Query, as_dataset
from chunkrecall.report import QueryScore, Report

_NORMALISED = re.compile(r"normalised text \((.*)\)")
_THRESHOLD = re.compile(r"at least ([0-9.]+)")
_PLACE = re.compile(r"(.+)\[([0-9]{1,18}):([0-9]{1,18})\]", re.DOTALL)
_BY_KEY = re.compile(r"chunk id \(metadata (['\"].*['\"])\)", re.DOTALL)


@dataclass(frozen=True)
class Rules:
    """The matcher, the rules and the labels behind a report."""

    report: Report
    dataset: Dataset
    has_dataset: bool
    """Whether it is the labelled set itself, with texts beside ids, tags and metadata."""
    matcher: Matcher
    is_matcher_known: bool
    k: Cutoff

    @property
    def reads_ids(self) -> bool:
        """Whether labels are compared by id."""
        return isinstance(self.matcher, ChunkId)

    @property
    def compared(self) -> str:
        """How a label is looked up in a corpus."""
        if self.reads_ids:
            return "exact lookup of the id"
        if isinstance(self.matcher, ExactText):
            return "exact lookup of the text"
        return f"lookup by {self.matcher.describe()}"

    @property
    def depth(self) -> int | None:
        """The depth that an index or a vector store is asked for: the largest numbered cutoff."""
        numbers = [k for k in self.report.cutoffs if k is not None]
        return max(numbers) if numbers else None

    @property
    def scoring(self) -> dict[str, Any]:
        """The arguments of `score`, but for k."""
        rules = self.report.rules
        return {
            "matcher": self.matcher,
            "relevance_level": rules.get("relevance_level", 1),
            "dedupe": rules.get("dedupe", False),
            "exclude_self": rules.get("exclude_self", False),
        }

    def labels_of(self, query_id: str, name: str) -> list[Any]:
        """The labels of the dataset behind one label of the report, as one."""
        members = self._members(query_id, name)
        return [list(members)] if len(members) > 1 else list(members)

    def wanted(self, query: QueryScore, name: str) -> Wanted:
        """What would satisfy the label."""
        members = self._members(query.query_id, name)
        return Wanted(
            name,
            tuple(dict.fromkeys(one.text for one in members if one.text is not None)),
            tuple(dict.fromkeys(one.chunk_id for one in members if one.chunk_id is not None)),
            members,
        )

    def indexed(self, wanted: Wanted, corpus: Corpus | None) -> tuple[int, ...]:
        """Where in the corpus the label stands, as the matcher compares it; ascending."""
        if corpus is None:
            return ()
        if self.reads_ids:
            labels = [Label(chunk_id=one) for one in wanted.ids]
        elif isinstance(self.matcher, Coverage):
            labels = list(wanted.members)
        else:
            labels = [Label(text=one) for one in wanted.texts]
        if isinstance(self.matcher, KeyedMatcher):
            found = corpus.by_key(self.matcher)
            keys = [self.matcher.key(label) for label in labels]
            return tuple(sorted({index for key in keys for index in found.get(key, ())}))
        ranks = self.matcher.first_ranks(labels, corpus.chunks)
        return tuple(sorted({rank - 1 for rank in ranks if rank is not None}))

    def _members(self, query_id: str, name: str) -> tuple[Label, ...]:
        if query_id in self.dataset:
            level = self.scoring["relevance_level"]
            for label in self.dataset[query_id].relevant or ():
                members = tuple([one for one in label.members if one.grade >= level])
                if members and self._named(members) == name:
                    return members
        return (_plain(name, self.matcher),)

    def _named(self, members: Sequence[Label]) -> str:
        if self.reads_ids:
            names = [one.chunk_id if one.chunk_id is not None else str(one) for one in members]
        else:
            names = [str(one) for one in members]
        return " | ".join(dict.fromkeys(names))


def rules_of(
    report: Report, dataset: DatasetInput | None, matcher: Matcher | None, k: Cutoff
) -> Rules:
    """The rules of a report; the labels come from the dataset, or else from the report's rows."""
    found, is_known = (matcher, True) if matcher is not None else _matcher(report)
    labelled = report.fingerprint_of if dataset is None else as_dataset(dataset)
    if isinstance(labelled, Dataset):
        return Rules(
            report, labelled, has_dataset=True, matcher=found, is_matcher_known=is_known, k=k
        )
    rows = Dataset(
        [
            Query(
                query_id=row.query_id,
                text=row.text,
                relevant=[_plain(name, found) for name in row.labels] or None,
                tags=row.tags,
            )
            for row in report.queries
        ],
        name=report.dataset_name,
    )
    return Rules(report, rows, has_dataset=False, matcher=found, is_matcher_known=is_known, k=k)


def _plain(name: str, matcher: Matcher) -> Label:
    """The label that a report calls so, where nothing but its name is left."""
    if isinstance(matcher, ChunkId):
        return Label(chunk_id=name)
    place = _PLACE.fullmatch(name) if isinstance(matcher, Coverage) else None
    if place is not None and int(place[2]) < int(place[3]):
        return Label.span(place[1], int(place[2]), int(place[3]))
    return Label(text=name)


def _matcher(report: Report) -> tuple[Matcher, bool]:
    """The report's matcher, or the one that describes itself so; exact text if neither is known."""
    if isinstance(report.matcher, Matcher):
        return report.matcher, True
    said = str(report.rules.get("matcher", ""))
    by_key = _BY_KEY.fullmatch(said)
    if by_key:
        return ChunkId(literal_eval(by_key[1])), True
    if said == ChunkId().describe():
        return ChunkId(), True
    normalised = _NORMALISED.fullmatch(said)
    if normalised:
        steps = normalised[1]
        form = next((form for form in ("NFKC", "NFKD", "NFC", "NFD") if form in steps), None)
        made = NormalizedText(
            unicode=form,  # type: ignore[arg-type]  # one of the four
            collapse_whitespace="whitespace collapsed" in steps,
            casefold="case folded" in steps,
            strip_invisible="invisible characters removed" in steps,
            unescape_html="HTML unescaped" in steps,
            strip_accents="accents removed" in steps,
        )
        return made, made.describe() == said
    for other in _others(said):
        if other.describe() == said:
            return other, True
    return ExactText(), said == ExactText().describe()


def _others(said: str) -> Iterator[Matcher]:
    """The matchers that such a name may be of, and that are installed."""
    yield Contains("label-in-chunk")
    yield Contains("chunk-in-label")
    threshold = _THRESHOLD.search(said)
    if threshold is None:
        return
    yield Coverage(float(threshold[1]))
    with suppress(MissingExtraError):
        yield Fuzzy(float(threshold[1]))
