"""Whatever a labelled set or a run holds, a file gives it back; whatever a file holds is refused well."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkrecall import (
    Chunk,
    ChunkRecallError,
    Dataset,
    Label,
    Query,
    Ranking,
    Run,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
)

TABLES = ("set.csv", "set.tsv", "set.parquet")
FILES = ("set.jsonl", "set.json", *TABLES)
_HARD = st.sampled_from(
    [
        "=1+1",
        "'=x",
        "'",
        "-",
        "@a",
        "\t",
        "\r\n",
        "a\rb",
        '"',
        '""',
        "a,b",
        "[",
        "null",
        "007",
        "NA",
    ]
)
# No two surrogates in a row: JSON cannot tell them from the character they make.
readable = _HARD | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
any_text = readable | st.builds(lambda a, b: f"{a}\ud800x{b}", readable, readable)


def labels(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    filled = texts.filter(lambda text: bool(text.strip()))
    one = st.one_of(
        filled,
        st.builds(lambda text, chunk_id: Label(text=text, chunk_id=chunk_id), filled, filled),
        st.builds(
            lambda chunk_id, grade: Label(chunk_id=chunk_id, grade=grade), filled, st.integers(0, 3)
        ),
    )
    return one | st.lists(one, min_size=2, max_size=3)


@st.composite
def datasets(draw: Any, texts: st.SearchStrategy[str]) -> Dataset:
    ids = draw(st.lists(texts.filter(bool), unique=True, max_size=4))
    queries = []
    for query_id in ids:
        relevant = draw(st.none() | st.lists(labels(texts), max_size=3))
        try:
            queries.append(
                Query(
                    query_id=query_id,
                    text=draw(texts),
                    relevant=relevant,
                    tags=draw(st.lists(texts, max_size=2)),
                    metadata=draw(
                        st.dictionaries(texts, st.none() | texts | st.booleans(), max_size=2)
                    ),
                )
            )
        except ChunkRecallError:
            continue  # one label with two grades
    return Dataset(queries, name=draw(st.none() | texts))


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None)
@given(dataset=st.data())
def test_any_labelled_set_comes_back(name: str, dataset: Any) -> None:
    texts = readable if name in TABLES else any_text
    made = dataset.draw(datasets(texts))
    with tempfile.TemporaryDirectory() as folder:
        save_dataset(made, Path(folder) / name)
        again = load_dataset(Path(folder) / name)
    assert again.queries == made.queries
    assert again.fingerprint == made.fingerprint
    assert again.name == ("set" if made.name is None else made.name)


@st.composite
def runs(draw: Any, texts: st.SearchStrategy[str]) -> Run:
    chunks = st.builds(
        lambda text, chunk_id, score, key: Chunk(
            text=text, chunk_id=chunk_id, score=score, metadata={} if key is None else {key: text}
        ),
        texts,
        st.none() | texts,
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | texts,
    )
    rankings = [
        Ranking(
            query_id=query_id,
            chunks=draw(st.lists(chunks, max_size=3)),
            error=draw(st.none() | texts),
            latency_s=draw(st.none() | st.floats(0, 10)),
            query_text=draw(st.none() | texts),
        )
        for query_id in draw(st.lists(texts.filter(bool), unique=True, max_size=3))
    ]
    return Run(
        name=draw(texts),
        rankings=rankings,
        complete=draw(st.booleans()),
        notes=draw(st.tuples(texts)),
    )


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None)
@given(run=st.data())
def test_any_run_comes_back(name: str, run: Any) -> None:
    made = run.draw(runs(readable if name in TABLES else any_text))
    with tempfile.TemporaryDirectory() as folder:
        save_run(made, Path(folder) / name)
        again = load_run(Path(folder) / name)
    assert list(again.rankings) == list(made.rankings)
    assert (again.name, again.complete, again.notes) == (made.name, made.complete, made.notes)


@pytest.mark.parametrize("name", TABLES)
def test_a_lone_surrogate_is_refused_by_tables_with_its_query(tmp_path: Path, name: str) -> None:
    dataset = Dataset([Query(query_id="q7", text="a", relevant=["b\ud800"])])
    with pytest.raises(ChunkRecallError, match="'q7'.*surrogate"):
        save_dataset(dataset, tmp_path / name)
    assert not (tmp_path / name).exists()


_PIECES = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        ",",
        ":",
        "\n",
        "\t",
        " ",
        "query",
        "relevant",
        "text",
        "q1",
        "0",
        "1",
        "NaN",
        "null",
        "...",
        "\\u0000",
        "user_input",
        "chunks",
        "queries",
        "columns",
        "data",
        "examples",
    ]
)
_KEYS = st.sampled_from(
    ["query", "text", "query_id", "id", "relevant", "relevant_ids", "tags", "metadata", "chunks",
     "chunk_id", "grade", "score", "error", "latency_s", "user_input", "reference_contexts",
     "retrieved_contexts", "input", "context", "retrieval_context", "question", "source",
     "retrieved_context", "inputs", "outputs", "documents", "page_content", "pos", "queries",
     "corpus", "relevant_docs", "examples", "reference_contexts", "columns", "data", "rankings",
     "chunkrecall_dataset", "chunkrecall_run", "name", "complete", "settings", "notes", "kwargs"]
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-1, 1) | readable | _KEYS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_KEYS, inside, max_size=4),
    max_leaves=12,
)
_ROWS = st.lists(st.dictionaries(_KEYS, _VALUES, max_size=5), max_size=3)
_BYTES = st.one_of(
    _VALUES.map(lambda value: json.dumps(value).encode()),
    _ROWS.map(lambda rows: json.dumps(rows).encode()),
    _ROWS.map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
    st.binary(max_size=200),
    st.lists(_PIECES, max_size=60).map(lambda pieces: "".join(pieces).encode()),
    st.lists(_PIECES, max_size=30).map(lambda p: ("query,relevant\n" + "".join(p)).encode()),
)
_FORMATS = ("jsonl", "json", "csv", "tsv", "parquet", "trec", "llama-index")
_LAYOUTS = ("langsmith", "ragas", "deepeval", "mlflow", "huggingface")


@pytest.mark.parametrize("format_", [*_FORMATS, *_LAYOUTS])
@settings(max_examples=150, deadline=None)
@given(content=_BYTES)
def test_any_bytes_are_read_or_refused_by_our_own_error(format_: Any, content: bytes) -> None:
    suffix = format_ if format_ in ("jsonl", "json", "csv", "tsv", "parquet") else "json"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"any.{suffix}"
        path.write_bytes(content)
        for load in (load_dataset, load_run):
            if load is load_run and format_ == "llama-index":
                continue
            with contextlib.suppress(ChunkRecallError):
                load(path, format=format_)
