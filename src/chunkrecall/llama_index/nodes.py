"""LlamaIndex nodes to chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    TextNode,
)

from chunkrecall.adapters import check_texts, items_of, pair_score, to_chunk
from chunkrecall.records import Chunks

TextFrom: TypeAlias = "str | Callable[[BaseNode], str] | None"


def nodes_to_chunks(nodes: Iterable[object], *, text_from: TextFrom = None) -> Chunks:
    """The chunks of a retriever's nodes, in order; texts and metadata are copied.

    The text is the node's own content without metadata, empty where a node has none (an image).
    The id of the source document is kept under the metadata key "ref_doc_id", a node's offsets in
    it under "start_char_idx" and "end_char_idx".

    Args:
        nodes: NodeWithScore or nodes of any class, and (node, score) pairs.
        text_from: A metadata key, or a function of the node, that gives the chunk's text where the
            content does not hold it, such as "original_text" of a sentence window.

    Raises:
        TypeError: A bare string, an item that holds no chunk text, or a text that is no string,
            with its index.
        ValueError: A node without the metadata key that `text_from` names.
    """
    items = nodes if isinstance(nodes, list) else list(items_of(nodes))
    chunks = chunks_of_nodes(items, text_from)
    if chunks is not None:
        return chunks
    if text_from is not None:
        raise TypeError(
            "text_from needs a list of nodes, got "
            + ", ".join(sorted({type(item).__name__ for item in items}))
        )
    return Chunks.of([to_chunk(item, index) for index, item in enumerate(items)])


def nodes_to_texts(nodes: Iterable[object], *, text_from: TextFrom = None) -> list[str]:
    """The chunk texts of a retriever's nodes, in order; see `nodes_to_chunks`."""
    return list(nodes_to_chunks(nodes, text_from=text_from).texts)


def chunks_of_nodes(items: Sequence[object], text_from: TextFrom = None) -> Chunks | None:
    """The chunks of a list of nodes, None for anything else."""
    nodes: list[Any]
    scores: list[float | None]
    if set(map(type, items)) == {NodeWithScore}:
        nodes = [item.node for item in items]  # type: ignore[attr-defined]
        scores = [item.score for item in items]  # type: ignore[attr-defined]
    else:
        nodes, scores = _taken_apart(items)
    kinds = set(map(type, nodes))
    # Once for each class: isinstance is slow on pydantic classes.
    if not all(issubclass(kind, BaseNode) for kind in kinds):
        return None
    metadatas = [_metadata(node) for node in nodes]
    if text_from is None and kinds == {TextNode}:
        # What get_content(MetadataMode.NONE) returns for this very class, at a tenth of its cost.
        texts = [node.text for node in nodes]
    else:
        texts = [_text(node, text_from) for node in nodes]
    check_texts(texts, "node")
    return Chunks(
        tuple(texts),
        tuple([node.id_ for node in nodes]),
        scores=tuple(scores) if scores.count(None) < len(scores) else None,
        metadatas=tuple(metadatas) if any(metadatas) else None,
    )


def _taken_apart(items: Sequence[object]) -> tuple[list[Any], list[float | None]]:
    """Nodes and scores of a list of any kind."""
    nodes: list[Any] = []
    scores: list[float | None] = []
    for index, item in enumerate(items):
        if isinstance(item, NodeWithScore):
            nodes.append(item.node)
            scores.append(item.score)
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], BaseNode):
            nodes.append(item[0])
            scores.append(pair_score(item, index))
        else:
            nodes.append(item)
            scores.append(None)
    return nodes, scores


def _text(node: BaseNode, text_from: TextFrom) -> str:
    if text_from is None:
        # The abstract default is MetadataMode.ALL, which glues the metadata in front.
        text = node.get_content(metadata_mode=MetadataMode.NONE)
        return text or ""
    if callable(text_from):
        return text_from(node)
    if text_from not in node.metadata:
        raise ValueError(
            f"text_from={text_from!r}: a retrieved node has no such metadata key; it has "
            f"{sorted(map(str, node.metadata))}"
        )
    original: str = node.metadata[text_from]
    return original


def _metadata(node: BaseNode) -> dict[str, Any] | None:
    found = node.metadata
    metadata = found.copy() if found else None
    if node.relationships and NodeRelationship.SOURCE in node.relationships:
        document = node.ref_doc_id
        if document is not None:
            metadata = {} if metadata is None else metadata
            metadata.setdefault("ref_doc_id", document)
    start = getattr(node, "start_char_idx", None)  # only text nodes have offsets
    if start is not None:
        metadata = {} if metadata is None else metadata
        metadata.setdefault("start_char_idx", start)
        metadata.setdefault("end_char_idx", node.end_char_idx)  # type: ignore[attr-defined]
    return metadata
