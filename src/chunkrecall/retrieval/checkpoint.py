"""Rankings on disk as they finish, so that a run that was killed goes on where it stopped.

Each ranking is one line of JSON, written and handed to the operating system before the next query
is asked of its worker: it survives the process. It is forced to the disk once a second and at the
end: a power cut may cost what came within the last second. A line counts once its newline is there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TypeAlias

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records.rows import RowError, problem, ranking_from_row, ranking_to_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from chunkrecall.records import Query, Ranking

Only = Literal["missing", "errored"]
Keep: TypeAlias = "Callable[[Ranking], Ranking]"
"""Takes each ranking as it comes; what it gives, such as one without chunks, is kept."""

CHECKPOINT_HEADER = "chunkrecall_checkpoint"
_SYNC_S = 1.0


class Checkpoint:
    """The file of one run, open for appending.

    Raises:
        DatasetError: The file is of another run, or has a bad line.
        FileNotFoundError: There is no such folder.
    """

    def __init__(
        self, path: str | Path, header: Mapping[str, Any], keep: Keep | None = None
    ) -> None:
        self._path = Path(path)
        self._lock = Lock()
        self.done: dict[str, Ranking] = {}
        """The rankings that are in the file, by query id; of a query's several lines the last."""
        length = 0
        if self._path.exists():
            self.done, length = _read(self._path, header, keep)
        self._file: IO[bytes] = self._path.open("ab")
        self._file.truncate(length)  # a line without its newline was torn
        self._synced = monotonic()
        if not length:
            self._write({CHECKPOINT_HEADER: 1, **header})

    def add(self, ranking: Ranking) -> None:
        """Write one finished ranking."""
        with self._lock:
            if self._file.closed:
                return  # a call that outlived its time-out, and the run
            self._write(ranking_to_row(ranking))
            now = monotonic()
            if now - self._synced > _SYNC_S:
                os.fsync(self._file.fileno())
                self._synced = now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()


def read_checkpoint(path: Path, header: Mapping[str, Any], *, keep: Keep) -> dict[str, Ranking]:
    """The rankings in the file, by query id, each as `keep` gives it; the file is left alone.

    Raises:
        DatasetError: The file is of another run, or has a bad line.
    """
    return _read(path, header, keep)[0]


def _read(
    path: Path, header: Mapping[str, Any], keep: Keep | None
) -> tuple[dict[str, Ranking], int]:
    """What is in the file, and how many bytes of it are whole lines."""
    problems: list[Problem] = []
    done: dict[str, Ranking] = {}
    length = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            length += len(line)
            try:
                row = json.loads(line)
                if number == 1:
                    _check_header(row, header)
                    continue
                ranking = ranking_from_row(row)
            except (ValueError, RecursionError) as error:
                told = error if isinstance(error, RowError) else RowError(f"no JSON: {error}")
                place = f"{path} line {number}"
                problems.append(problem(place, told, file=str(path), row=number))
                continue
            done[ranking.query_id] = ranking if keep is None else keep(ranking)
    if problems:
        raise DatasetError(problems)
    return done, length


def _check_header(row: object, header: Mapping[str, Any]) -> None:
    if not isinstance(row, Mapping) or row.get(CHECKPOINT_HEADER) != 1:
        raise RowError("no checkpoint of a run: choose another file")
    wanted = json.loads(json.dumps(header))
    for key, value in wanted.items():
        if row.get(key) != value:
            raise RowError(
                f"the checkpoint is of another run: its {key} is {row.get(key)!r:.200}, and "
                f"here it is {value!r:.200} — choose another file, or delete this one"
            )


def run_identity(
    queries: Iterable[Query], retriever: Mapping[str, Any], depth: int | None
) -> dict[str, Any]:
    """What must be the same for a run to go on: the queries, the retriever and its depth.

    Labels and the rules of scoring may change: they have no part in what is retrieved. Of the
    retriever only what its adapter describes is kept, never keys or addresses.
    """
    digest = hashlib.sha256()
    for query in queries:
        for text in (query.query_id, query.text):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return {"queries": digest.hexdigest(), "retriever": dict(retriever), "depth": depth}
