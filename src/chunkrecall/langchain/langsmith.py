"""Datasets as LangSmith examples, and a local evaluation that sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from langsmith import Client, tracing_context
from langsmith.schemas import Example

from chunkrecall.adapters import adapt
from chunkrecall.errors import DatasetError, Problem, UnsupportedRetrieverError
from chunkrecall.records import Dataset, DatasetInput, Query, as_dataset
from chunkrecall.records.rows import RowError, query_from_row, query_to_row

if TYPE_CHECKING:
    from chunkrecall.adapters import Adapter
    from chunkrecall.records import Chunk

_QUERY_KEYS = ("query", "question", "input", "text")


def dataset_to_examples(dataset: DatasetInput) -> list[Example]:
    """LangSmith examples: inputs `{"query"}`, outputs `{"relevant"}`, the rest in the metadata.

    An example's id is made of the query's id and the dataset's fingerprint, the same each time.
    """
    labelled = as_dataset(dataset)
    examples = []
    for query in labelled:
        row = query_to_row(query)
        metadata: dict[str, Any] = {"query_id": query.query_id}
        metadata.update({key: row[key] for key in ("tags", "metadata") if key in row})
        examples.append(
            Example(
                id=uuid5(NAMESPACE_URL, f"chunkrecall:{labelled.fingerprint}:{query.query_id}"),
                inputs={"query": query.text},
                outputs={"relevant": row["relevant"]} if "relevant" in row else {},
                metadata=metadata,
            )
        )
    return examples


def examples_to_dataset(
    examples: Iterable[Example | Mapping[str, Any]],
    *,
    query_key: str | None = None,
    relevant_key: str = "relevant",
    name: str | None = None,
) -> Dataset:
    """The dataset in LangSmith examples: objects, or the dicts of exported JSON.

    Args:
        examples: Each with `inputs`, `outputs` and perhaps `metadata` and `id`.
        query_key: The key of the inputs that holds the question; `query`, `question`, `input` or
            `text` by default.
        relevant_key: The key of the outputs that holds the labels. An answer is never taken for a
            label.
        name: The dataset's name.

    Raises:
        DatasetError: Every example that cannot be read, numbered from 0.
    """
    queries: list[Query] = []
    problems: list[Problem] = []
    for index, example in enumerate(examples):
        try:
            queries.append(_query(example, query_key, relevant_key))
        except RowError as error:
            problems.append(Problem(f"example {index}", str(error)))
    if problems:
        raise DatasetError(problems)
    return Dataset(queries, name=name)


def _query(example: Example | Mapping[str, Any], query_key: str | None, relevant_key: str) -> Query:
    def part(field: str) -> Mapping[str, Any]:
        value = (
            example.get(field) if isinstance(example, Mapping) else getattr(example, field, None)
        )
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise RowError(f'"{field}" must be an object, got {type(value).__name__}')
        return value

    inputs, outputs, metadata = part("inputs"), part("outputs"), part("metadata")
    keys = (query_key,) if query_key else _QUERY_KEYS
    text = next((inputs[key] for key in keys if isinstance(inputs.get(key), str)), None)
    if text is None:
        raise RowError(
            f"the inputs hold no question under {', '.join(map(repr, keys))}; they have "
            f"{sorted(map(str, inputs))} — name the key with query_key=…"
        )
    example_id = example.get("id") if isinstance(example, Mapping) else example.id
    row = {
        "query_id": metadata.get("query_id") or (str(example_id) if example_id else text),
        "text": text,
        "relevant": outputs.get(relevant_key),
        "relevant_ids": outputs.get(f"{relevant_key}_ids"),
        "tags": metadata.get("tags"),
        "metadata": metadata.get("metadata"),
    }
    return query_from_row({key: value for key, value in row.items() if value is not None})


def evaluation_target(
    retriever: object, *, query_key: str = "query", depth: int | None = None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A target for `langsmith.evaluate` that returns `{"documents": […]}` and traces nothing.

    With `upload_results=False` LangSmith still sends what a LangChain retriever inside the target
    is asked and returns; this target switches tracing off around the retriever.

    Args:
        retriever: Whatever `chunkrecall.adapt` takes.
        query_key: The key of an example's inputs that holds the question.
        depth: For a vector store or an index, how many chunks it is asked for: the largest k of the
            evaluators. A retriever keeps its own.

    Raises:
        UnsupportedRetrieverError: The object cannot be asked, or only with await.
        ValueError: A vector store or an index without a depth, which would search as deep as its
            framework's default; a depth that is no integer of at least 1.
    """
    adapter = _at_depth(retriever, depth)
    if not adapter.has_sync:
        raise UnsupportedRetrieverError(
            f"{adapter.name} is async only: give langsmith.aevaluate the target that "
            "async_evaluation_target makes of it"
        )

    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        with tracing_context(enabled=False):
            return {
                "documents": [_document(chunk) for chunk in adapter.retrieve(inputs[query_key])]
            }

    return target


def async_evaluation_target(
    retriever: object, *, query_key: str = "query", depth: int | None = None
) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
    """`evaluation_target` for `langsmith.aevaluate`; a retriever without async runs in a thread."""
    adapter = _at_depth(retriever, depth)

    async def target(inputs: dict[str, Any]) -> dict[str, Any]:
        with tracing_context(enabled=False):
            if adapter.has_async:
                chunks = await adapter.aretrieve(inputs[query_key])
            else:
                chunks = await asyncio.to_thread(adapter.retrieve, inputs[query_key])
        return {"documents": [_document(chunk) for chunk in chunks]}

    return target


def _at_depth(retriever: object, depth: int | None) -> Adapter:
    adapter = adapt(retriever)
    if depth is not None:
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be an integer of at least 1, got {depth!r}")
        return adapter.at_depth(depth)
    if adapter.at_depth(1) is not adapter:
        raise ValueError(
            f"how deep shall {adapter.name} search? Give depth=…, the largest k of your "
            "evaluators, or pass a retriever made of it"
        )
    return adapter


def offline_client() -> Client:
    """A LangSmith client that makes no connection: no version check, no background thread."""
    return Client(
        api_url="http://127.0.0.1:9",  # the discard port: nothing listens, should anything be sent
        api_key="offline",
        info={"version": "0"},
        auto_batch_tracing=False,
        tracing_sampling_rate=0.0,
    )


def _document(chunk: Chunk) -> dict[str, Any]:
    """A chunk as LangSmith shows documents."""
    document = {"page_content": chunk.text, "metadata": dict(chunk.metadata), "type": "Document"}
    return document if chunk.chunk_id is None else {**document, "id": chunk.chunk_id}
