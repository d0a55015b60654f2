"""Which stage of a pipeline lost a label, from a recorder or from reports of the stages."""

from __future__ import annotations

from collections.abc import Mapping

from chunkrecall.diagnosis.case import StageLoss
from chunkrecall.recording import FINAL, LostLabel, fate_of
from chunkrecall.report import QueryScore, Report


class StageLosses:
    """Looks up the stage that lost a label.

    Args:
        stages: A recorder, or the reports by stage in their order; None for those in the report.
        report: The report that is diagnosed.

    Raises:
        TypeError: Neither.
    """

    def __init__(self, stages: object, report: Report) -> None:
        self._lost: dict[tuple[str, str], LostLabel] = {}
        if stages is None:
            stages = report.stages
        reports = stages if isinstance(stages, Mapping) else getattr(stages, "stages", None)
        if not isinstance(reports, Mapping) or not all(
            isinstance(one, Report) for one in reports.values()
        ):
            raise TypeError(
                "stages must be a recorder, or a mapping from stage names to reports "
                f"(recorder.stages, report.stages), got {type(stages).__name__}"
            )
        for one in getattr(stages, "lost", ()):
            self._lost[(one.query_id, one.label)] = one
        self._rows: dict[str, dict[str, QueryScore]] = {
            str(name): {row.query_id: row for row in one.queries} for name, one in reports.items()
        }

    def __bool__(self) -> bool:
        return bool(self._rows)

    def of(self, query: QueryScore, label: str) -> StageLoss | None:
        """The loss of a label that a stage had and the scored list has not; None without one."""
        if query.ranks.get(label) is not None:
            return None
        rows = [
            (name, rows[query.query_id])
            for name, rows in self._rows.items()
            if query.query_id in rows
        ]
        holders = [index for index, (_, row) in enumerate(rows) if row.ranks.get(label) is not None]
        if not holders:
            return None
        at = holders[-1]
        holder_name, holder = rows[at]
        loser_name, loser = self._after(rows[at + 1 :], holder, query)
        known = self._lost.get((query.query_id, label))
        how = known.how if known is not None else fate_of(label, holder, loser)
        stage = known.stage if known is not None else loser_name
        return StageLoss(stage, holder_name, holder.ranks[label], how)

    @staticmethod
    def _after(
        later: list[tuple[str, QueryScore]], holder: QueryScore, query: QueryScore
    ) -> tuple[str, QueryScore]:
        """The first later stage that works on the holder's list, not beside it."""
        for name, row in later:
            if name != FINAL and (not row.retrieved or set(row.retrieved) & set(holder.retrieved)):
                return name, row
        return later[0] if len(later) == 1 else (FINAL, query)
