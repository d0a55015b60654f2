"""The shapes of LlamaIndex's former dataset classes, read without the framework.

Core removed the classes in 0.14.21; their objects and JSON files are still around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chunkrecall.errors import DatasetError, Problem
from chunkrecall.records import Dataset, Label, Query


def dataset_from_llama_index(value: object, name: str | None = None) -> Dataset | None:
    """The dataset in an object or decoded JSON of that shape; None for any other value.

    Of an `EmbeddingQAFinetuneDataset` (`queries`, `relevant_docs`, `corpus`) each label has the
    node's id and, where the corpus has it, its text, which stays true when ids change. Of a
    `LabelledRagDataset` (`examples`) the labels are the `reference_contexts`; an example whose
    contexts are None is not judged.

    Raises:
        DatasetError: Every row that cannot be read.
    """
    queries, relevant = _field(value, "queries"), _field(value, "relevant_docs")
    if isinstance(queries, Mapping) and isinstance(relevant, Mapping):
        corpus = _field(value, "corpus")
        return _from_pairs(queries, relevant, corpus if isinstance(corpus, Mapping) else {}, name)
    examples = _field(value, "examples")
    # A mapping of query texts to chunk texts may have a query "examples".
    if isinstance(examples, Sequence) and not any(isinstance(one, str) for one in examples):
        return _from_examples(examples, name)
    return None


def _from_pairs(
    queries: Mapping[str, Any],
    relevant: Mapping[str, Any],
    corpus: Mapping[str, Any],
    name: str | None,
) -> Dataset:
    made: list[Query] = []
    problems: list[Problem] = []
    for query_id, text in queries.items():
        ids = relevant.get(query_id)
        place = f"queries[{query_id!r}]"
        if ids is not None and (isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence)):
            problems.append(
                Problem(
                    f"relevant_docs[{query_id!r}]",
                    f"expected a list of node ids, got {ids!r:.80} — write it as [{ids!r:.80}]",
                )
            )
            continue
        try:
            labels = None if ids is None else [_label(one, corpus.get(one)) for one in ids]
            made.append(Query(query_id=query_id, text=text, relevant=labels))
        except (TypeError, ValueError) as error:
            problems.append(Problem(place, _first_line(error)))
    problems.extend(
        Problem(f"relevant_docs[{query_id!r}]", "no query has this id — add it to queries")
        for query_id in relevant
        if query_id not in queries
    )
    if problems:
        raise DatasetError(problems)
    return Dataset(made, name=name)


def _label(chunk_id: Any, text: Any) -> Label:
    if isinstance(text, str) and text.strip():
        return Label(text=text, chunk_id=chunk_id)
    return Label(chunk_id=chunk_id)


def _from_examples(examples: Sequence[Any], name: str | None) -> Dataset:
    made: list[Query] = []
    problems: list[Problem] = []
    for index, example in enumerate(examples):
        text = _field(example, "query")
        contexts = _field(example, "reference_contexts")
        try:
            made.append(Query(query_id=str(index), text=text, relevant=contexts))  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            problems.append(Problem(f"examples[{index}]", _first_line(error)))
    if problems:
        raise DatasetError(problems)
    return Dataset(made, name=name)


def _field(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
