"""TREC's qrels, topics and run files, and BEIR folders: ids, not texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.formats.decoding import lines_of
from chunkrecall.formats.tables import rows_of
from chunkrecall.records import Chunk, Dataset, Label, Query, Ranking, Run

Order = Literal["rank", "score", "trec_eval"]
ORDERS = ("rank", "score", "trec_eval")


@dataclass(slots=True)
class _Judged:
    """The labels of one query while its lines are read."""

    grades: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_qrels(path: Path, topics: Path | None, encoding: str) -> Dataset:
    """The dataset of a qrels file: `query 0 document grade`, all of it ids.

    Without topics a query's text is its id. Topics are lines `id<TAB>text`.

    Raises:
        DatasetError: Every bad line, and queries that the topics lack.
    """
    problems: list[Problem] = []
    judged: dict[str, _Judged] = {}
    repeated = 0
    for number, line in lines_of(path, problems, encoding):
        parts = line.split()
        if len(parts) != 4:
            _add(problems, path, number, f"expected `query 0 document grade`, got {line!r:.80}")
            continue
        query_id, _, chunk_id, written = parts
        grade = _integer(written)
        if grade is None:
            _add(problems, path, number, f"the grade must be an integer, got {written!r:.80}")
            continue
        repeated += _judge(judged, query_id, chunk_id, grade, number, path, problems)
    texts = _topics(topics, encoding, problems) if topics is not None else {}
    if topics is not None:
        problems.extend(
            Problem(f"{path}: query {query_id!r}", f"{topics} has no text for it", file=str(path))
            for query_id in judged
            if query_id not in texts
        )
    if problems:
        raise DatasetError(problems)
    notes = [f"{repeated} judgements stand twice with one grade and count once"] if repeated else []
    return Dataset(_queries(judged, texts), name=path.stem, notes=notes)


def read_run(path: Path, order: Order, encoding: str) -> Run:
    """The run of a file of lines `query Q0 document rank score tag`.

    Args:
        path: The file.
        order: "rank": by the rank column; "score": by descending score, where equal ones keep the
            order of their ranks; "trec_eval": by descending score, equal ones by descending id.
        encoding: The file's encoding.

    Raises:
        DatasetError: Every bad line.
    """
    problems: list[Problem] = []
    found: dict[str, list[tuple[int, float, str]]] = {}
    seen: dict[tuple[str, str], int] = {}
    names: dict[str, None] = {}
    for number, line in lines_of(path, problems, encoding):
        parts = line.split()
        rank = _integer(parts[3]) if len(parts) == 6 else None
        score = _number(parts[4]) if len(parts) == 6 else None
        if rank is None or score is None:
            expected = "expected `query Q0 document rank score tag`"
            _add(problems, path, number, f"{expected}, got {line!r:.80}")
            continue
        key = (parts[0], parts[2])
        earlier = seen.setdefault(key, number)
        if earlier != number:
            message = f"document {parts[2]!r} of query {parts[0]!r} stands in line {earlier} too"
            _add(problems, path, number, message)
            continue
        found.setdefault(parts[0], []).append((rank, score, parts[2]))
        names.setdefault(parts[5])
    if problems:
        raise DatasetError(problems)
    name = next(iter(names)) if len(names) == 1 else path.stem
    rankings = [
        Ranking(
            query_id=query_id,
            chunks=[Chunk(text="", chunk_id=one[2], score=one[1]) for one in _sorted(lines, order)],
        )
        for query_id, lines in found.items()
    ]
    return Run(name=name, rankings=rankings, notes=tuple(_run_notes(found, order)))


def write_qrels(dataset: Dataset, path: Path) -> None:
    """One line a label, its id and grade; texts, tags and metadata are lost.

    Raises:
        DatasetError: Every label without an id, group of alternatives, or id with a space in it.
    """
    lines, problems = [], []
    for query in dataset:
        place = f"query {query.query_id!r:.80}"
        for label in query.relevant or ():
            if label.chunk_id is None:
                problems.append(Problem(place, f"label {str(label)!r:.80} has no single chunk_id"))
            elif problem := _spaced(query.query_id, label.chunk_id):
                problems.append(Problem(place, problem))
            else:
                lines.append(f"{query.query_id} 0 {label.chunk_id} {label.grade}\n")
    if problems:
        raise DatasetError(problems)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def write_run(run: Run, path: Path) -> None:
    """One line a chunk, its id and rank; scores fall with the rank, texts are lost.

    Raises:
        DatasetError: Every chunk without an id, or with a space in it.
    """
    lines, problems = [], []
    tag = "_".join(run.name.split()) or "run"
    for ranking in run.rankings:
        chunks = ranking.chunks
        for index, chunk_id in enumerate(chunks.chunk_ids or (None,) * len(chunks)):
            place = f"query {ranking.query_id!r:.80}, rank {index + 1}"
            if not isinstance(chunk_id, str):
                problems.append(Problem(place, "the chunk has no chunk_id, and TREC has no texts"))
            elif problem := _spaced(ranking.query_id, chunk_id):
                problems.append(Problem(place, problem))
            else:
                # Not the retriever's scores: they need not fall, and tools sort by them.
                fields = (ranking.query_id, "Q0", chunk_id, index + 1, len(chunks) - index, tag)
                lines.append(" ".join(map(str, fields)) + "\n")
    if problems:
        raise DatasetError(problems)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_beir(folder: Path, split: str, encoding: str) -> Dataset:
    """The dataset of a BEIR folder: `queries.jsonl`, `qrels/SPLIT.tsv`, `corpus.jsonl` if there.

    Labels have the corpus' own `text` beside their id, without the title.

    Raises:
        DatasetError: Every bad line.
        FileNotFoundError: A file is missing.
    """
    problems: list[Problem] = []
    texts = _beir_texts(folder / "queries.jsonl", problems, encoding)
    corpus_file = folder / "corpus.jsonl"
    corpus = _beir_texts(corpus_file, problems, encoding) if corpus_file.exists() else {}
    judged: dict[str, _Judged] = {}
    qrels = folder / "qrels" / f"{split}.tsv"
    for number, line in lines_of(qrels, problems, encoding):
        parts = line.split("\t")
        if number == 1 and parts[0] in ("query-id", "query_id"):
            continue
        grade = _integer(parts[2]) if len(parts) == 3 else None
        if grade is None:
            expected = "expected `query-id<TAB>corpus-id<TAB>score`"
            _add(problems, qrels, number, f"{expected}, got {line!r:.80}")
        elif parts[0] not in texts:
            _add(problems, qrels, number, f"queries.jsonl has no query {parts[0]!r:.80}")
        else:
            _judge(judged, parts[0], parts[1], grade, number, qrels, problems)
    if problems:
        raise DatasetError(problems)
    return Dataset(_queries(judged, texts, corpus), name=folder.name)


def _beir_texts(path: Path, problems: list[Problem], encoding: str) -> dict[str, str]:
    texts = {}
    for number, row in rows_of(path, "jsonl", encoding, problems):
        fields = row if isinstance(row, dict) else {}
        key, text = fields.get("_id", fields.get("id")), fields.get("text")
        if isinstance(key, str) and isinstance(text, str):
            texts[key] = text
        else:
            _add(problems, path, number, f'expected "_id" and "text", got {row!r:.80}')
    return texts


def _judge(
    judged: dict[str, _Judged],
    query_id: str,
    chunk_id: str,
    grade: int,
    number: int,
    path: Path,
    problems: list[Problem],
) -> int:
    """Keep one judgement; 1 where it was there already."""
    one = judged.setdefault(query_id, _Judged())
    if chunk_id not in one.grades:
        one.grades[chunk_id] = grade
        one.lines[chunk_id] = number
        return 0
    if one.grades[chunk_id] == grade:
        return 1
    message = (
        f"document {chunk_id!r} of query {query_id!r} has the grade {grade} here and "
        f"{one.grades[chunk_id]} in line {one.lines[chunk_id]} — keep one of them"
    )
    _add(problems, path, number, message)
    return 0


def _queries(
    judged: dict[str, _Judged], texts: dict[str, str], corpus: dict[str, str] | None = None
) -> Iterator[Query]:
    known = corpus or {}
    for query_id, one in judged.items():
        labels = []
        for chunk_id, grade in one.grades.items():
            text = known.get(chunk_id)
            labels.append(
                Label(text=text if text and text.strip() else None, chunk_id=chunk_id, grade=grade)
            )
        yield Query(query_id=query_id, text=texts.get(query_id, query_id), relevant=labels)


def _topics(path: Path, encoding: str, problems: list[Problem]) -> dict[str, str]:
    texts = {}
    for number, line in lines_of(path, problems, encoding):
        query_id, tab, text = line.partition("\t")
        if not tab:
            _add(problems, path, number, f"expected `id<TAB>text`, got {line!r:.80}")
        elif query_id in texts:
            _add(problems, path, number, f"query {query_id!r:.80} stands here a second time")
        else:
            texts[query_id] = text
    return texts


def _sorted(lines: list[tuple[int, float, str]], order: Order) -> list[tuple[int, float, str]]:
    by_rank = sorted(lines, key=lambda line: line[0])
    if order == "rank":
        return by_rank
    if order == "score":
        return sorted(by_rank, key=lambda line: -line[1])
    by_id = sorted(lines, key=lambda line: line[2], reverse=True)
    return sorted(by_id, key=lambda line: -line[1])


def _run_notes(found: dict[str, list[tuple[int, float, str]]], order: Order) -> list[str]:
    notes = []
    differ = sum(
        [one[2] for one in _sorted(lines, "rank")] != [one[2] for one in _sorted(lines, "score")]
        for lines in found.values()
    )
    if differ:
        notes.append(
            f"ranks and scores disagree for {differ} of {len(found)} queries; the order is by "
            f"{order!r} (order= takes 'rank', 'score' or 'trec_eval')"
        )
    tied = sum(len({line[1] for line in lines}) < len(lines) for lines in found.values())
    if tied:
        rule = {
            "rank": "ranks decide",
            "score": "ranks decide between them",
            "trec_eval": "the larger document id comes first",
        }[order]
        notes.append(f"{tied} of {len(found)} queries have equal scores; {rule}")
    return notes


def _spaced(*ids: str) -> str | None:
    for one in ids:
        if not one or one.split() != [one]:
            return f"the id {one!r:.80} has a space in it, which TREC's format cannot hold"
    return None


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


def _add(problems: list[Problem], path: Path, number: int, message: str) -> None:
    problems.append(Problem(f"{path} line {number}", message, file=str(path), row=number))
