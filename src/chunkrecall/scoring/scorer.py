"""Scores one query after another, and remembers what a reader of the means should know."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, Any

from chunkrecall.matching import ChunkId, ExactText, MeasuringMatcher, NormalizedText
from chunkrecall.metric import cutoff_name, hit_positions
from chunkrecall.records import DOCUMENT_KEYS, Chunks, Ranking
from chunkrecall.report import QueryScore
from chunkrecall.scoring.labels import ActiveLabels, first_ranks_in

if TYPE_CHECKING:
    from chunkrecall.records import Query, Run
    from chunkrecall.scoring.plan import ScoringPlan

_SELF_HITS_SHARE = 0.1
_NO_OFFSETS = (
    "no retrieved chunk says where in its document it stands, so no span was found: split with "
    "add_start_index=True (LangChain) or a node parser (LlamaIndex), and keep the document's name "
    'in the metadata ("doc_id" or "source")'
)


class Scorer:
    """One run under one plan."""

    def __init__(self, plan: ScoringPlan, *, is_complete: bool) -> None:
        self._plan = plan
        self._matcher = plan.labels.matcher
        self._keyed = plan.labels.keyed
        self.has_keys = callable(getattr(self._matcher, "key", None))
        self._reads_texts = isinstance(self._matcher, (ExactText, NormalizedText))
        self._measuring = self._matcher if isinstance(self._matcher, MeasuringMatcher) else None
        self._spanless, self._span_lists = True, 0
        self._is_complete = is_complete
        self.absent = self.rejected = self.rejectable = 0
        self._answered = self._longest = self._removed = 0
        self._self_hits = self._textless = self._keyless = self._chunks = 0
        self._odd_kinds: set[str] = set()
        self._id_hits = 0

    def score(self, query: Query, labels: ActiveLabels, ranking: Ranking | None) -> QueryScore:
        """The query's score; no ranking means that the run does not mention it."""
        chunks = self._answer(ranking)
        common: dict[str, Any] = {
            "query_id": query.query_id,
            "text": query.text,
            "cutoffs": self._plan.cutoffs,
            "labels": labels.names,
            "tags": query.tags,
            "latency_s": None if ranking is None else ranking.latency_s,
            "error": None if ranking is None else ranking.error,
            "exception": None if ranking is None else ranking.exception,
        }
        if chunks is None:
            common["label_ranks"] = (None,) * len(labels.names)
        else:
            chunks, keys = self._scored_list(query, chunks)
            common["label_ranks"], common["label_coverage"] = self._found(labels, chunks, keys)
            common["retrieved_count"] = len(chunks)
            if self._plan.keep_texts:
                common["retrieved"] = tuple(chunks.texts)  # the same tuple, where it is one
                common["retrieved_ids"] = (
                    () if chunks.chunk_ids is None else tuple(chunks.chunk_ids)
                )
        if not labels.names:
            assigned = self._without_labels(query, chunks)
            return QueryScore(
                status="undefined",
                assigned=assigned,
                explanation=self._why_undefined(query),
                **common,
            )
        if ranking is not None and ranking.error is not None:
            return QueryScore(
                status="errored",
                assigned=0.0 if self._plan.on_error == "zero" else None,
                explanation=f"the retriever failed: {ranking.error}",
                **common,
            )
        if chunks is None:
            return QueryScore(
                status="not_run", explanation="the run ended before this query", **common
            )
        if ranking is None:
            self.absent += 1
            common["explanation"] = "absent from the run"
        return QueryScore(status="scored", **common)

    def _answer(self, ranking: Ranking | None) -> Chunks | None:
        """What was retrieved; None when there is no answer to score."""
        if ranking is None:
            return Chunks(()) if self._is_complete else None
        if ranking.error is not None:
            return None
        chunks = ranking.chunks
        self._answered += 1
        self._longest = max(self._longest, len(chunks))
        self._chunks += len(chunks)
        if "" in chunks.texts:
            self._textless += chunks.texts.count("")
        return chunks

    def _scored_list(self, query: Query, chunks: Chunks) -> tuple[Chunks, Sequence[Hashable]]:
        """The list that is cut, and its keys, after the removals that the rules ask for."""
        keys = chunks.texts if self._keyed is None else self._keyed.chunk_keys(chunks)
        if len(keys) != len(chunks):
            raise ValueError(
                f"matcher {self._matcher.describe()!r} gave {len(keys)} keys for "
                f"{len(chunks)} chunks"
            )
        own_at = self._own_indexes(query.query_id, chunks, keys)
        self._self_hits += bool(own_at)
        if not self._reads_texts and self._keyed is not None and not any(keys):
            self._keyless += len(chunks)
            if isinstance(self._matcher, ChunkId):
                self._odd_kinds |= self._matcher.odd_kinds(chunks)
        if not (self._plan.dedupe or self._plan.exclude_self):
            return chunks, keys
        kept = []
        seen: set[Hashable] = set()
        for index, key in enumerate(keys):
            if self._plan.exclude_self and index in own_at:
                continue
            # Chunks without text or id are no repeats of each other.
            if self._plan.dedupe and key not in (None, ""):
                if key in seen:
                    continue
                seen.add(key)
            kept.append(index)
        self._removed += len(keys) - len(kept)
        return chunks.take(kept), [keys[index] for index in kept]

    def _own_indexes(self, query_id: str, chunks: Chunks, keys: Sequence[Hashable]) -> set[int]:
        """Where a chunk has the query's own id, be it the framework's or the one matched by."""
        columns = (chunks.chunk_ids or (), keys if isinstance(self._matcher, ChunkId) else ())
        return {
            index
            for column in columns
            if query_id in column
            for index, chunk_id in enumerate(column)
            if chunk_id == query_id
        }

    def _found(
        self, labels: ActiveLabels, chunks: Chunks, keys: Sequence[Hashable]
    ) -> tuple[tuple[int | None, ...], tuple[tuple[float, ...], ...]]:
        """The first rank of each label, and the share of it found by each cutoff if measured."""
        if self._measuring is None or not labels.names:
            return self._ranks(labels, chunks, keys), ()
        flat = [member for members in labels.members for member in members]
        measured = list(self._measuring.measure(flat, chunks, self._plan.cutoffs))
        ranks = self._checked([rank for rank, _ in measured], len(flat), len(chunks))
        if chunks and any(member.text is None for member in flat):
            self._spanless &= all(chunks.span_at(index) is None for index in range(len(chunks)))
            self._span_lists += 1
        rest = iter(zip(ranks, [shares for _, shares in measured], strict=True))
        grouped = [[next(rest) for _ in members] for members in labels.members]
        return (
            tuple(
                min((rank for rank, _ in group if rank is not None), default=None)
                for group in grouped
            ),
            # Of alternatives, the one that is held best counts.
            tuple(
                tuple(map(max, zip(*(shares for _, shares in group), strict=True)))
                for group in grouped
            ),
        )

    def _ranks(
        self, labels: ActiveLabels, chunks: Chunks, keys: Sequence[Hashable]
    ) -> tuple[int | None, ...]:
        if not labels.names:
            return ()
        if self._keyed is not None:
            wanted = {key for one in labels.keys for key in one}
            ranks = {keys[rank - 1]: rank for rank in hit_positions(wanted, keys)}
            self._id_hits += len(ranks)
            return first_ranks_in(ranks, labels.keys)
        flat = [member for members in labels.members for member in members]
        rest = iter(self._checked(self._matcher.first_ranks(flat, chunks), len(flat), len(chunks)))
        return tuple(
            min((rank for rank in [next(rest) for _ in members] if rank is not None), default=None)
            for members in labels.members
        )

    def _checked(self, given: object, labels: int, chunks: int) -> list[int | None]:
        """The ranks that a matcher of the caller's own gave, as plain integers."""
        ranks: list[int | None] = []
        for rank in given if isinstance(given, Iterable) else ():
            try:  # numpy's integers are ranks, but JSON cannot hold them
                ranks.append(None if rank is None else as_index(rank) * (rank is not True))
            except TypeError:
                ranks.append(0)
        if len(ranks) != labels or not all(rank is None or 1 <= rank <= chunks for rank in ranks):
            raise ValueError(
                f"matcher {self._matcher.describe()!r} must give one rank from 1 to {chunks} "
                f"or None for each of {labels} labels, got {given!r:.200}"
            )
        return ranks

    def _without_labels(self, query: Query, chunks: Chunks | None) -> float | None:
        """Counts correct rejections; the value that the policy assigns, if any."""
        if not query.judged:
            return None
        if chunks is not None:
            self.rejectable += 1
            self.rejected += not chunks
        policy = self._plan.no_relevant
        if policy == "mlflow":
            return None if chunks is None else float(not chunks)
        return {"zero": 0.0, "one": 1.0}.get(policy)

    def _why_undefined(self, query: Query) -> str:
        if not query.judged:
            return "nobody judged what is relevant (no labels)"
        if query.relevant:
            return f"no label reaches relevance level {self._plan.relevance_level}"
        return "judged, and nothing is relevant"

    def _why_keyless(self) -> str:
        found = f"no retrieved chunk has a value to match by ({self._matcher.describe()})"
        if isinstance(self._matcher, ChunkId) and self._odd_kinds:
            kinds = ", ".join(sorted(self._odd_kinds))
            key = self._matcher.metadata_key
            return f"{found}: the values under {key!r} are of type {kinds}: store them as strings"
        return (
            f"{found}: give the chunks ids when you index them (Document(id=…), TextNode(id_=…)), "
            "or name the metadata key that holds them with ChunkId(key=…)"
        )

    def _unmatchable(self, run: Run) -> list[str]:
        """Which retrieved chunks could match nothing, whatever the labels are."""
        notes = []
        if self._span_lists and self._spanless:
            notes.append(_NO_OFFSETS)
        elif isinstance(self._matcher, ChunkId) and self._answered and not self._id_hits:
            notes += self._unknown_ids(run, self._matcher)
        if self._textless:
            notes.append(
                f"{self._textless} retrieved chunks have no text; they hold their rank and match "
                "no text"
            )
        return notes

    def _unknown_ids(self, run: Run, matcher: ChunkId) -> list[str]:
        """What to make of a run in which no label's id was returned for any query."""
        wanted = {key for labels in self._plan.labels.queries for one in labels.keys for key in one}
        if not wanted or self._keyless == self._chunks:  # chunks without ids have a note already
            return []
        note = "no label id was ever returned"
        for name in DOCUMENT_KEYS:
            if name == matcher.metadata_key:
                continue
            documents = {
                chunks.metadata_at(index).get(name)
                for chunks in (ranking.chunks for ranking in run.rankings)
                for index in range(len(chunks))
            }
            parents = wanted & {one for one in documents if isinstance(one, str)}
            if parents:
                verb = "equals a parent document id" if len(parents) == 1 else "equal parent ids"
                note += (
                    f"; {len(parents)} of {len(wanted)} labels {verb} — use document-level "
                    f"matching: ChunkId({name!r})"
                )
                return [note]
        note += (
            ": check_dataset(dataset, corpus) says whether the index has them at all; ids made at "
            "random change whenever it is built"
        )
        return [note]

    def _is_cut_by_us(self, run: Run) -> bool:
        """Whether the whole list is only as long as the retriever was made for another cutoff."""
        made_of = run.settings.get("retriever")
        made_depth = made_of.get("made_depth") if isinstance(made_of, Mapping) else None
        return None in self._plan.cutoffs and bool(self._longest) and self._longest == made_depth

    def notes(self, run: Run, unlabelled: int) -> list[str]:
        """What the rankings show that a reader of the means should know."""
        plan = self._plan
        notes = []
        if plan.relevance_level != 1:
            notes.append(f"labels count from grade {plan.relevance_level} on")
        if plan.dedupe:
            notes.append("repeated chunks were removed before the cut (dedupe=True)")
        if plan.exclude_self:
            notes.append("chunks with the query's own id were removed (exclude_self=True)")
        if plan.no_relevant != "exclude":
            notes.append(
                f"queries with nothing relevant got a value by the policy no_relevant="
                f"{plan.no_relevant!r}"
            )
        if plan.on_error == "zero":
            notes.append("errored queries count as 0 in the mean (on_error='zero')")
        deeper = [k for k in plan.cutoffs if k is not None and k > self._longest]
        if self._answered and deeper:
            names = ", ".join(cutoff_name(k) for k in deeper)
            verb = "was" if len(deeper) == 1 else "were"
            notes.append(
                f"{names} {verb} measured on lists of at most {self._longest} chunks: raise the "
                "retriever's own k"
            )
        if self._is_cut_by_us(run):
            notes.append(
                f"recall@all was measured on lists of {self._longest} chunks: the retriever was "
                "made as deep as the largest numbered k — name a larger one, or pass a retriever "
                "of your own"
            )
        if self._chunks and self._keyless == self._chunks:
            notes.append(self._why_keyless())
        notes += self._unmatchable(run)
        if not plan.exclude_self and self._self_hits > self._answered * _SELF_HITS_SHARE:
            notes.append(
                f"in {self._self_hits} of {self._answered} queries a retrieved chunk has the "
                "query's own id: exclude_self=True removes it"
            )
        if unlabelled:
            notes.append(f"{unlabelled} retrievals belong to no labelled query")
        return notes
