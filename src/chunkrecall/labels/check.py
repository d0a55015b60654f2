"""What is wrong with a labelled set, found before a retriever is asked anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from chunkrecall.adapters import to_chunks
from chunkrecall.metric import Cutoffs, check_ks, cutoff_name
from chunkrecall.records import Dataset, Label, Query, Span, as_dataset
from chunkrecall.render import (
    Column,
    Document,
    Paragraph,
    Table,
    count,
    quoted,
    share,
    to_html,
    to_markdown,
    to_terminal,
)
from chunkrecall.statistics import ExactMean
from chunkrecall.text import NearMisses, near_miss

if TYPE_CHECKING:
    from chunkrecall.records import Chunks, DatasetInput

Severity = Literal["error", "warning"]
_SHOWN = 100
_NO_OFFSETS = "no chunk of the corpus carries offsets"
_NAMED = 5
_CONCENTRATED = 0.2
"""The share of the judged queries from which on one chunk is said to carry a set."""
_FEWEST_CONCENTRATED = 5
_TAG_RULES: Mapping[str, tuple[int, int | None]] = {
    "multihop": (2, None),
    "singlehop": (1, 1),
    "unanswerable": (0, 0),
    "noanswer": (0, 0),
}
"""The fewest and the most labels of a query with this tag, written without hyphens and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a reader of the labels should look at."""

    kind: str
    severity: Severity
    """An error makes a score wrong, or a label impossible to find; a warning may be meant so."""
    message: str
    query_ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "message": self.message,
            "query_ids": list(self.query_ids),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCheck:
    """What `check_dataset` found. `print(check)` is a table."""

    name: str | None
    queries: int
    judged: int
    labels: int
    findings: tuple[Finding, ...]
    best_means: Mapping[str, float | None]
    """The largest mean recall possible at each cutoff, by `recall@k`: labels may outnumber k."""

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "ok": self.ok,
            "queries": self.queries,
            "judged": self.judged,
            "labels": self.labels,
            "best_means": dict(self.best_means),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def document(self) -> Document:
        """Counts, the best possible means and the findings, errors first."""
        name = f"{self.name}: " if self.name else ""
        queries = count(self.queries, "query", "queries")
        labels = count(self.labels, "label", "labels")
        best = ", ".join(
            f"{key} {'no labels' if mean is None else share(mean)}"
            for key, mean in self.best_means.items()
        )
        blocks: list[Table | Paragraph] = [
            Paragraph(f"{name}{queries}, {self.judged} judged, {labels}"),
            Paragraph(f"Best possible mean: {best}"),
        ]
        if self.findings:
            columns = (Column("severity"), Column("kind"), Column("finding", wrap=True))
            rows = tuple((one.severity, one.kind, one.message) for one in self.findings)
            blocks.append(Table(None, columns, rows))
        else:
            blocks.append(Paragraph("Nothing to complain about."))
        return Document(tuple(blocks))

    def __str__(self) -> str:
        return to_terminal(self.document())

    def _repr_html_(self) -> str:
        return to_html(self.document())

    def to_markdown(self) -> str:
        """The tables as GitHub Markdown, every text escaped."""
        return to_markdown(self.document())


def check_dataset(
    dataset: DatasetInput, corpus: object = None, *, k: Cutoffs = (1, 3, 5, 10)
) -> DatasetCheck:
    """Look for labels that cannot be found, stand there twice, or contradict their query's tags.

    Args:
        dataset: The labelled queries.
        corpus: All chunks that are indexed: Chunks, texts, Documents, nodes or dicts. With it,
            labels that are no chunk of it are found, and what their text differs by.
        k: The cutoffs of the best possible means.

    Raises:
        ValueError: An invalid cutoff.
        TypeError: The corpus holds something that is no chunk.
    """
    labelled = as_dataset(dataset)
    findings = [
        *_unjudged(labelled),
        *_repeated_labels(labelled),
        *_repeated_texts(labelled),
        *_contradicted_tags(labelled),
        *_concentrated(labelled),
    ]
    if corpus is not None:
        findings += _outside(labelled, to_chunks(corpus))
    judged = [query.relevant for query in labelled if query.relevant is not None]
    return DatasetCheck(
        name=labelled.name,
        queries=len(labelled),
        judged=len(judged),
        labels=sum(len(_distinct(labels)) for labels in judged),
        findings=tuple(sorted(findings, key=lambda one: one.severity)),
        best_means={
            cutoff_name(one): _best_mean([len(_distinct(labels)) for labels in judged], one)
            for one in check_ks(k)
        },
    )


def _unjudged(dataset: Dataset) -> Iterator[Finding]:
    ids = tuple(query.query_id for query in dataset if query.relevant is None)
    if ids:
        message = f"{count(len(ids), 'query', 'queries')} without labels, left out of every mean"
        yield Finding(kind="unjudged", severity="warning", message=message, query_ids=ids)


def _repeated_labels(dataset: Dataset) -> Iterator[Finding]:
    for query in dataset:
        labels = query.relevant or ()
        repeated = len(labels) - len(_distinct(labels))
        if repeated:
            yield _of_query(
                query,
                "repeated label",
                f"{count(repeated, 'label', 'labels')} repeated; each counts once",
            )
        texts = list(dict.fromkeys(one.text for one in labels if one.text is not None))
        for index, text in enumerate(texts):
            for other in texts[:index]:
                how = near_miss(other, text)
                if how is not None:
                    yield _of_query(
                        query,
                        "near-identical labels",
                        f"{quoted(text, limit=_SHOWN)} and another label are {how}; under exact "
                        "text both count",
                    )


def _repeated_texts(dataset: Dataset) -> Iterator[Finding]:
    ids: dict[str, list[str]] = {}
    for query in dataset:
        ids.setdefault(query.text, []).append(query.query_id)
    for text, sharing in ids.items():
        if len(sharing) > 1:
            message = (
                f"{count(len(sharing), 'query', 'queries')} ask {quoted(text, limit=_SHOWN)} "
                f"({_listed(sharing)}): a recorder cannot tell them apart by their text"
            )
            yield Finding(
                kind="repeated query text",
                severity="warning",
                message=message,
                query_ids=tuple(sharing),
            )


def _contradicted_tags(dataset: Dataset) -> Iterator[Finding]:
    for query in dataset:
        if query.relevant is None:
            continue
        size = len(_distinct(query.relevant))
        for tag in query.tags:
            rule = _TAG_RULES.get("".join(filter(str.isalnum, tag.lower())))
            if rule is None:
                continue
            fewest, most = rule
            if size < fewest or (most is not None and size > most):
                wanted = f"exactly {fewest}" if fewest == most else f"at least {fewest}"
                message = f"tagged {tag!r:.80}, which means {wanted} labels, and has {size}"
                yield _of_query(query, "contradicted tag", message, severity="error")


def _concentrated(dataset: Dataset) -> Iterator[Finding]:
    judged = [query for query in dataset if query.relevant]
    holders: dict[tuple[str | None, str | None, Span | None], list[str]] = {}
    for query in judged:
        for identity in {one.identity for label in query.relevant or () for one in label.members}:
            holders.setdefault(identity, []).append(query.query_id)
    for (text, chunk_id, span), ids in holders.items():
        if len(ids) >= _FEWEST_CONCENTRATED and len(ids) >= _CONCENTRATED * len(judged):
            shown = quoted(
                str(span if chunk_id is None else chunk_id) if text is None else text, limit=_SHOWN
            )
            part = f"{len(ids)} of {len(judged)} ({share(len(ids) / len(judged))})"
            message = f"labels are concentrated: {part} judged queries want {shown}"
            yield Finding(
                kind="concentrated labels",
                severity="warning",
                message=message,
                query_ids=tuple(ids),
            )


def _outside(dataset: Dataset, corpus: Chunks) -> Iterator[Finding]:
    texts = set(corpus.texts)
    ids = {chunk_id for chunk_id in corpus.chunk_ids or () if chunk_id is not None}
    near = NearMisses(corpus.texts)
    spans: dict[str, list[Span]] = {}
    for span in filter(None, map(corpus.span_at, range(len(corpus)))):
        spans.setdefault(span.doc_id, []).append(span)
    often = {text for text, times in Counter(corpus.texts).items() if times > 1}
    for query in dataset:
        for label in query.relevant or ():
            if any(_is_in(member, texts, ids) or _is_at(member, spans) for member in label.members):
                if label.chunk_id is None and label.text in often:
                    message = (
                        f"{quoted(label.text or '', limit=_SHOWN)} is the text of several chunks"
                    )
                    yield _of_query(query, "ambiguous label", message)
                continue
            for member in label.members:
                kind, message = _absence(member, near, corpus, has_spans=bool(spans))
                yield _of_query(query, kind, message, severity="error")


def _absence(label: Label, near: NearMisses, corpus: Chunks, *, has_spans: bool) -> tuple[str, str]:
    """Kind and message of a label that is no chunk of the corpus."""
    span = label.source_span
    if span is not None and label.text is None:
        why = "no chunk of the corpus overlaps" if has_spans else _NO_OFFSETS + ", so none overlaps"
        return "dangling label", f"{why} {quoted(str(span), limit=_SHOWN)}"
    if label.text is None:
        return "dangling label", f"no chunk of the corpus has the id {label.chunk_id!r:.80}"
    shown = quoted(label.text, limit=_SHOWN)
    found = near.find(label.text)
    if found is not None:
        rank, how = found
        chunk_id = None if corpus.chunk_ids is None else corpus.chunk_ids[rank - 1]
        named = f"chunk {rank}" if chunk_id is None else f"chunk {chunk_id!r:.80}"
        return "label text differs", f"{shown} is no chunk of the corpus; {named} is {how}"
    return "label not in corpus", f"{shown} is no chunk of the corpus"


def _is_in(label: Label, texts: set[str], ids: set[Any]) -> bool:
    if label.text is not None:
        return label.text in texts
    return label.chunk_id in ids


def _is_at(label: Label, spans: Mapping[str, list[Span]]) -> bool:
    wanted = label.source_span
    return wanted is not None and any(map(wanted.overlap, spans.get(wanted.doc_id, ())))


def _of_query(query: Query, kind: str, message: str, *, severity: Severity = "warning") -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=f"query {query.query_id!r:.80}: {message}",
        query_ids=(query.query_id,),
    )


def _distinct(labels: Iterable[Label]) -> set[object]:
    """The labels as a set, a group by its members."""
    return {frozenset(one.identity for one in label.members) for label in labels}


def _best_mean(sizes: list[int], k: int | None) -> float | None:
    mean = ExactMean()
    for size in sizes:
        if size:
            mean.add(size if k is None else min(k, size), size)
    exact = mean.mean()
    return None if exact is None else float(exact)


def _listed(ids: list[str]) -> str:
    shown = ", ".join(f"{one!r:.80}" for one in ids[:_NAMED])
    return shown + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
