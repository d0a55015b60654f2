"""A file with many bad rows: one error that names every place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chunkrecall import DatasetError, load_dataset

BAD = (
    ('{"query_id": "x", "text": 5, "relevant": ["a"]}', "text"),
    ('{"query_id": 5, "text": "t", "relevant": ["a"]}', "query_id"),
    ('{"query_id": "", "text": "t", "relevant": ["a"]}', "query_id"),
    ('{"query_id": "x", "relevant": ["a"]}', "text"),
    ('{"query_id": "x", "text": "t", "relevant": "a"}', "relevant"),
    ('{"query_id": "x", "text": "t", "relevant": NaN}', None),
    ('{"query_id": "x", "text": "t", "relevant": [" "]}', None),
    ('{"query_id": "x", "text": "t", "relevant": [5]}', "relevant"),
    ('{"query_id": "x", "text": "t", "relevent": ["a"]}', None),
    ('{"query_id": "x", "text": "t", "text": "u", "relevant": ["a"]}', None),
    ('{"query_id": "x", "text": "t", "tags": "a"}', "tags"),
    ("not json", None),
)


def test_two_hundred_bad_rows_of_twelve_kinds_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = []
    for number in range(200):
        lines.append(BAD[number % len(BAD)][0])
        lines.append(json.dumps({"query_id": f"good {number}", "text": "t", "relevant": ["a"]}))
    path.write_text("\n".join(lines))
    with pytest.raises(DatasetError) as caught:
        load_dataset(path)
    problems = caught.value.problems
    assert [problem.row for problem in problems] == list(range(1, 400, 2))
    assert all(problem.file == str(path) for problem in problems)
    for index, (_, column) in enumerate(BAD):
        assert problems[index].column == column, problems[index]
    assert len({problem.message for problem in problems}) >= len(BAD)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("columns", ["[null, []]", "[1, 2]", "[true, null]"])
def test_columns_that_are_no_names_are_refused(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(f'{{"query": null, "columns": {columns}, "data": [[null, null]]}}')
    for name in ("json", "langsmith", "ragas"):
        with pytest.raises(DatasetError, match="columns"):
            load_dataset(path, format=name)
