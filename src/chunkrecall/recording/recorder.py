"""Scores the retrievals of a live pipeline as they happen.

A framework's handler says when a retrieval starts and ends and which other one encloses it; what
follows is the same everywhere: which labelled query it belongs to, its score, and its stages. What
is kept grows with the dataset, never with the number of retrievals.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any

from chunkrecall.metric import Cutoffs
from chunkrecall.recording.notes import Seen, notes_on
from chunkrecall.recording.scope import scope, scope_of
from chunkrecall.recording.stages import FINAL, LostLabel, Stage, lost_labels, numbered, story
from chunkrecall.recording.state import Call, QueryState, with_calls
from chunkrecall.records import Chunks, DatasetInput, Ranking, Run
from chunkrecall.render import quoted
from chunkrecall.retrieval import Attempt, describe_error
from chunkrecall.scoring import NoRelevant, plan_scoring, score_plan, score_ranking

if TYPE_CHECKING:
    from chunkrecall.matching import Matcher
    from chunkrecall.records import Dataset
    from chunkrecall.report import QueryScore, Report

_LOGGER = logging.getLogger("chunkrecall")
_FEWEST_OPEN = 1_000
_OPEN_A_QUERY = 8  # all queries at once (abatch without a limit), each with retrievers inside
_MOST_ENDED = 1_000
_MOST_WAITING = 500
_MOST_FAULTS = 100


class Recorder:
    """Collects retrievals and scores those of labelled queries.

    Args:
        dataset: The labelled queries.
        k: One cutoff or several.
        matcher: How labels are compared with chunks; as in `evaluate_retriever`.
        relevance_level: The grade from which on a label counts.
        dedupe: Remove repeated chunks before the list is cut.
        no_relevant: What a query gets that was judged to have nothing relevant.
        name: The report's name.
        log: Write one line for each scored retrieval to the logger "chunkrecall", level INFO.
        on_score: Is called with the `QueryScore` of each scored retrieval.
        raise_faults: Whether a fault of the recorder itself is raised by `raise_fault()`.

    Raises:
        ValueError: An invalid argument, or a label that the matcher cannot read.
    """

    def __init__(
        self,
        dataset: DatasetInput,
        k: Cutoffs = 5,
        *,
        matcher: Matcher | None = None,
        relevance_level: int = 1,
        dedupe: bool = False,
        no_relevant: NoRelevant = "exclude",
        name: str = "recorded",
        log: bool = False,
        on_score: Callable[[QueryScore], object] | None = None,
        raise_faults: bool = False,
    ) -> None:
        self._plan = plan_scoring(
            dataset,
            k=k,
            matcher=matcher,
            relevance_level=relevance_level,
            dedupe=dedupe,
            exclude_self=False,
            no_relevant=no_relevant,
            on_error="record",
            keep_texts=True,
        )
        self.name = name
        self._log = log
        self._on_score = on_score
        self._raise_faults = raise_faults
        self._lock = RLock()
        self._open: OrderedDict[Hashable, Call] = OrderedDict()
        self._ended: OrderedDict[Hashable, None] = OrderedDict()
        self._states: dict[str, QueryState] = {}
        self._seen = Seen(len(self._plan.dataset))
        self._most_open = max(_FEWEST_OPEN, _OPEN_A_QUERY * len(self._plan.dataset))
        self._stage_order: dict[str, None] = {}
        self.faults: list[Exception] = []
        """The first exceptions of the recorder or of `on_score`; the pipeline never sees them."""
        self._untold: deque[QueryScore] = deque()
        self._ids_by_text: dict[str, list[str]] = {}
        for query in self._plan.dataset:
            self._ids_by_text.setdefault(query.text, []).append(query.query_id)

    @property
    def dataset(self) -> Dataset:
        """The labelled queries."""
        return self._plan.dataset

    # What a handler calls.

    def start(
        self,
        key: Hashable,
        *,
        name: str,
        query_text: object,
        query_id: object = None,
        enclosing: Call | None = None,
        is_inner: bool = False,
    ) -> Call | None:
        """A retrieval has started; None when this key has started before.

        Args:
            key: Identifies the retrieval, unique among all.
            name: The retriever's name, such as its class's.
            query_text: What it was asked, which may have been rewritten.
            query_id: The labelled query, where the handler knows it.
            enclosing: The open retrieval in whose context it started.
            is_inner: Whether the framework itself says that it belongs to `enclosing`.
        """
        bound = scope_of(self)
        with self._lock:
            if key in self._open or key in self._ended:
                return None
            found = self._named(query_id) if bound is None else bound.query_id
            if found is None:
                found = self._looked_up(query_text)
            if enclosing is not None and not (enclosing.is_open and enclosing.scope is bound):
                enclosing = None
            call = Call(key, name, found, perf_counter(), bound, enclosing, is_inner)
            self._open[key] = call
            while len(self._open) > self._most_open:
                self._abandon(next(iter(self._open.values())))
            return call

    def end(self, key: Hashable, chunks: Chunks) -> str | None:
        """A retrieval has returned; the labelled query it is the outermost retrieval of, if any."""
        with self._lock:
            call = self._close(key)
            if call is None:
                return None
            latency_s = perf_counter() - call.started
            ranking = Ranking(query_id=call.query_id or "", chunks=chunks, latency_s=latency_s)
            if not self._finish(call, ranking):
                return None
        self._tell()
        return call.query_id

    def fail(self, key: Hashable, error: BaseException) -> bool:
        """A retrieval has raised; False when it is not open."""
        with self._lock:
            call = self._close(key)
            if call is None:
                return False
            ranking = Ranking(
                query_id=call.query_id or "",
                error=describe_error(error),
                latency_s=perf_counter() - call.started,
                exception=error if isinstance(error, Exception) else None,
            )
            self._finish(call, ranking)
        self._tell()
        return True

    def forget(self, key: Hashable) -> None:
        """A retrieval will never end: what enclosed it was cancelled."""
        with self._lock:
            call = self._open.get(key)
            if call is not None:
                self._abandon(call)
        self._tell()

    def step(self, query_id: str, name: str, chunks: Chunks) -> None:
        """A later step, such as a reranker, has turned the last retrieval's list into this one."""
        with self._lock:
            state = self._states.get(query_id)
            if state is None:
                return
            self._settle(state)
            if state.stage is None:
                return
            ranking = Ranking(query_id=query_id, chunks=chunks)
            score = self._scored(query_id, ranking)
            if score is None:
                return
            if set(state.rankings) == {FINAL}:
                self._keep(state, state.stage.name, state.rankings[FINAL])
            key = _free_name(name, state.rankings)
            state.stage = Stage(key, score, [state.stage])
            self._keep(state, key, ranking)
            self._keep(state, FINAL, ranking)

    def inner_step(self, call: Call, name: str, chunks: Chunks) -> None:
        """A step inside an open retrieval has turned what was retrieved in it into this list."""
        with self._lock:
            around: Call | None = call
            while around is not None and around.query_id is None:
                around = around.enclosing
            if around is None or around.query_id is None or not call.is_open:
                return
            ranking = Ranking(query_id=around.query_id, chunks=chunks)
            score = self._scored(around.query_id, ranking)
            if score is not None:
                call.inner = [Stage(name, score, call.inner, ranking)]

    def last_chunks(self, query_id: str) -> Chunks | None:
        """What the last step of the query's last retrieval gave; None where there is none."""
        with self._lock:
            state = self._states.get(query_id)
            if state is None or state.last.error is not None:
                return None
            ranking = state.last if state.unscored is not None else state.rankings.get(FINAL)
            return None if ranking is None else ranking.chunks

    def query_of_text(self, query_text: object) -> str | None:
        """The one labelled query that has this text."""
        ids = self._ids_by_text.get(query_text) if isinstance(query_text, str) else None
        return ids[0] if ids is not None and len(ids) == 1 else None

    def count(self, *, elsewhere: int = 0, generated: int = 0) -> None:
        """Count retrievals that are left out, and chunks that a model wrote; both make notes."""
        with self._lock:
            self._seen.elsewhere += elsewhere
            self._seen.generated += generated

    def keep_fault(self, error: Exception) -> None:
        """The handler itself failed; the pipeline goes on."""
        with self._lock:
            self._seen.faults += 1
            if len(self.faults) < _MOST_FAULTS:
                self.faults.append(error)

    def raise_fault(self) -> None:
        """Raise the first fault, if the recorder was asked to."""
        if not self._raise_faults:
            return
        with self._lock:
            self._resolve_open()
        if self.faults:
            raise self.faults[0]

    def bound_query(self) -> str | None:
        """The labelled query that `with recorder.query(…):` around the calling code names."""
        bound = scope_of(self)
        return None if bound is None else bound.query_id

    # What a user calls.

    @contextmanager
    def query(self, query_id: str) -> Iterator[None]:
        """Says which labelled query the code inside works on, whatever the retriever is asked.

        Holds for this recorder, and for any other over an equal dataset that names none itself.

        Raises:
            KeyError: The dataset has no such query.
        """
        if query_id not in self._plan.dataset:
            raise KeyError(f"no query of the dataset has the id {query_id!r}")
        with scope(query_id, self):
            yield

    def report(self) -> Report:
        """The scores so far: of each labelled query its last retrieval.

        Queries that were not retrieved are `not_run`.
        """
        with self._lock:
            self._resolve_open()
            return self._report({q: state.last for q, state in self._states.items()}, self.name)

    @property
    def stages(self) -> dict[str, Report]:
        """A report for each inner retriever and later step, and "final" after the last of them."""
        with self._lock:
            self._resolve_open()
            names = [name for name in self._stage_order if name != FINAL]
            reports = {}
            for name in [*names, FINAL]:
                rankings = {
                    query_id: state.rankings[name]
                    for query_id, state in self._states.items()
                    if name in state.rankings
                }
                reports[name] = self._report(rankings, name, is_stage=True)
            return reports

    @property
    def lost(self) -> tuple[LostLabel, ...]:
        """The labels that a stage had and the last one has not, with the stage that lost them."""
        with self._lock:
            self._resolve_open()
            return tuple(
                lost
                for query in self._plan.dataset
                if (state := self._states.get(query.query_id)) and state.stage
                for lost in lost_labels(state.stage)
            )

    def story(self, query_id: str) -> str:
        """One line: what each stage of the query's last retrieval found, and what it lost.

        Raises:
            KeyError: The query was not retrieved.
        """
        with self._lock:
            self._resolve_open()
            state = self._states[query_id]
            return story(state.stage) if state.stage else f"no stages: {state.last.error}"

    # The rest.

    def _named(self, query_id: object) -> str | None:
        """The query that the handler named; what names none is kept for a note."""
        if isinstance(query_id, str) and query_id in self._plan.dataset:
            return query_id
        if query_id is not None:
            self._seen.name_unknown(query_id)
        return None

    def _scored(self, query_id: str, ranking: Ranking) -> QueryScore | None:
        """The score of one list; None where scoring itself failed, which is kept as a fault."""
        with Attempt() as attempt:
            attempt.value = score_ranking(self._plan, query_id, ranking)
        if attempt.error is not None:
            self.keep_fault(attempt.error)
        score: QueryScore | None = attempt.value
        return score

    def _looked_up(self, query_text: object) -> str | None:
        ids = self._ids_by_text.get(query_text) if isinstance(query_text, str) else None
        if ids is None:
            return None
        if len(ids) > 1:
            self._seen.ambiguous.update(ids)
            return None
        return ids[0]

    def _close(self, key: Hashable) -> Call | None:
        call = self._open.pop(key, None)
        if call is None:  # started before the recorder, or ended twice
            return None
        call.is_open = False
        self._ended[key] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        return call

    def _finish(self, call: Call, ranking: Ranking) -> bool:
        """Whether the retrieval is an outermost one, as far as is known yet."""
        enclosing = call.enclosing
        if enclosing is not None and enclosing.is_open:
            if call.is_inner:
                self._add_inner(enclosing, call, ranking)
            else:
                enclosing.waiting.append((call, ranking))
                if len(enclosing.waiting) > _MOST_WAITING:
                    self._abandon(enclosing)  # it must have been cancelled long ago
            return False
        for inner, answer in call.waiting:
            self._add_inner(call, inner, answer)
        call.waiting.clear()
        score = self._record(call, ranking)
        if score is not None:
            self._untold.append(score)
        return True

    def _add_inner(self, outer: Call, inner: Call, ranking: Ranking) -> None:
        query_id = outer.query_id or inner.query_id
        for one, answer in inner.waiting:
            self._add_inner(inner, one, answer)
        inner.waiting.clear()
        if query_id is None or ranking.error is not None:
            outer.inner.extend(inner.inner)
            return
        ranking.query_id = query_id
        score = self._scored(query_id, ranking)
        if score is None:
            outer.inner.extend(inner.inner)
        else:
            outer.inner.append(Stage(inner.name, score, inner.inner, ranking))

    def _record(self, call: Call, ranking: Ranking) -> QueryScore | None:
        """The score of an outermost retrieval, None where it belongs to no labelled query."""
        self._seen.retrievals += 1
        query_id = call.query_id
        if query_id is None:
            self._seen.unlabelled += 1
            return None
        ranking.query_id = query_id
        state = self._states.get(query_id)
        if state is None:
            state = self._states[query_id] = QueryState(ranking)
        else:
            self._settle(state)
        state.last = ranking
        state.stage = None
        state.unscored = call
        if ranking.error is not None:
            self._put_error(state, ranking)
        if not self._log and self._on_score is None:
            return None  # scored when somebody asks
        return self._settle(state) or self._scored(query_id, state.last)

    def _put_error(self, state: QueryState, ranking: Ranking) -> None:
        """The query's last retrieval has no list, and so no stages."""
        state.unscored = None
        state.last = ranking
        state.rankings = {}
        self._keep(state, FINAL, ranking)

    def _settle(self, state: QueryState) -> QueryScore | None:
        """Score the last retrieval of a query, if that has not been done; None if it has."""
        call, state.unscored = state.unscored, None
        if call is None:
            return None
        ranking = state.last
        score = self._scored(ranking.query_id, ranking)
        if score is None:
            error = f"the recorder could not score it: {describe_error(self.faults[-1])}"
            self._put_error(state, Ranking(query_id=ranking.query_id, error=error))
            return None
        state.add_ranks(score.label_ranks)
        state.stage = Stage(call.name, score, call.inner)
        state.rankings = {}
        if call.inner:
            state.stage.ranking = ranking
            stages = state.stage.flat()
            for stage, name in zip(stages, numbered([one.name for one in stages]), strict=True):
                stage.name = name
                if stage.ranking is not None:
                    self._keep(state, name, stage.ranking)
                    stage.ranking = None
        self._keep(state, FINAL, ranking)
        return score

    def _keep(self, state: QueryState, name: str, ranking: Ranking) -> None:
        state.rankings[name] = ranking
        self._stage_order.setdefault(name)

    def _tell(self) -> None:
        """Log the new scores and pass them on, without the lock: `on_score` may take its time."""
        while self._untold:
            with self._lock:
                score = self._untold.popleft() if self._untold else None
            if score is None:
                return  # another thread tells it
            with Attempt() as attempt:
                if self._log and _LOGGER.isEnabledFor(logging.INFO):
                    _LOGGER.info("%s: %s", quoted(score.text, limit=80), score.reason)
                if self._on_score is not None:
                    self._on_score(score)
            if attempt.error is not None:
                self.keep_fault(attempt.error)

    def _abandon(self, call: Call) -> None:
        """A retrieval that never ended encloses nothing: what waited for it was outermost."""
        self._open.pop(call.key, None)
        call.is_open = False
        call.enclosing = None  # dead calls must not hold one another
        self._seen.never_ended += 1
        for inner, ranking in call.waiting:
            inner.enclosing = None
            self._finish(inner, ranking)
        call.waiting.clear()

    def _resolve_open(self) -> None:
        """Settle what waits for a retrieval that has not ended, and score what is not scored."""
        for call in list(self._open.values()):
            if call.waiting:
                self._abandon(call)
        for state in self._states.values():
            self._settle(state)
        self._tell()

    def _report(self, rankings: dict[str, Ranking], name: str, *, is_stage: bool = False) -> Report:
        run = Run(
            name=name,
            rankings=list(rankings.values()),
            complete=False,
            notes=() if is_stage else notes_on(self._seen, self._states, self.faults),
        )
        report = score_plan(run, self._plan, unlabelled=0 if is_stage else self._seen.unlabelled)
        if is_stage:
            return report
        return with_calls(report, self._states)


def _free_name(name: str, taken: dict[str, Any]) -> str:
    number = 2
    free = name
    while free in taken or free == FINAL:
        free = f"{name}#{number}"
        number += 1
    return free
