"""chunkrecall: which relevant chunks a LangChain or LlamaIndex retriever misses.

    from chunkrecall import evaluate_retriever

    report = evaluate_retriever(retriever, {"What is the capital of France?": ["Paris is …"]}, k=5)
    print(report)

The names below are loaded when they are first used, so that importing the package costs little.

PYTEST_DONT_REWRITE: pytest would warn of the package where it is imported before pytest starts, as
in a notebook.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chunkrecall._version import __version__

if TYPE_CHECKING:
    from chunkrecall.adapters import adapt
    from chunkrecall.diagnosis import Diagnosis, diagnose
    from chunkrecall.errors import (
        ChunkRecallError,
        ComparisonError,
        DatasetError,
        GateError,
        MissingExtraError,
        RetrievalError,
        UnsupportedRetrieverError,
    )
    from chunkrecall.evaluation import aevaluate_retriever, evaluate_retriever
    from chunkrecall.formats import load_dataset, load_run, save_dataset, save_run
    from chunkrecall.gate import assert_recall
    from chunkrecall.labels import Overlap, check_dataset, relabel
    from chunkrecall.matching import (
        ChunkId,
        Contains,
        Coverage,
        ExactText,
        Fuzzy,
        Matcher,
        NormalizedText,
    )
    from chunkrecall.metric import recall_at_k, recall_at_ks
    from chunkrecall.records import Chunk, Dataset, Label, Query, Ranking, Run
    from chunkrecall.report import QueryScore, Report
    from chunkrecall.retrieval import aretrieve, retrieve
    from chunkrecall.scoring import score
    from chunkrecall.template import EvalResult, evaluate

__all__ = [
    "Chunk",
    "ChunkId",
    "ChunkRecallError",
    "ComparisonError",
    "Contains",
    "Coverage",
    "Dataset",
    "DatasetError",
    "Diagnosis",
    "EvalResult",
    "ExactText",
    "Fuzzy",
    "GateError",
    "Label",
    "Matcher",
    "MissingExtraError",
    "NormalizedText",
    "Overlap",
    "Query",
    "QueryScore",
    "Ranking",
    "Report",
    "RetrievalError",
    "Run",
    "UnsupportedRetrieverError",
    "__version__",
    "adapt",
    "aevaluate_retriever",
    "aretrieve",
    "assert_recall",
    "check_dataset",
    "diagnose",
    "evaluate",
    "evaluate_retriever",
    "load_dataset",
    "load_run",
    "recall_at_k",
    "recall_at_ks",
    "relabel",
    "retrieve",
    "save_dataset",
    "save_run",
    "score",
]

_HOMES = {
    "adapters": ("adapt",),
    "diagnosis": ("Diagnosis", "diagnose"),
    "errors": (
        "ChunkRecallError",
        "ComparisonError",
        "DatasetError",
        "GateError",
        "MissingExtraError",
        "RetrievalError",
        "UnsupportedRetrieverError",
    ),
    "evaluation": ("aevaluate_retriever", "evaluate_retriever"),
    "formats": ("load_dataset", "load_run", "save_dataset", "save_run"),
    "gate": ("assert_recall",),
    "labels": ("Overlap", "check_dataset", "relabel"),
    "matching": (
        "ChunkId",
        "Contains",
        "Coverage",
        "ExactText",
        "Fuzzy",
        "Matcher",
        "NormalizedText",
    ),
    "metric": ("recall_at_k", "recall_at_ks"),
    "records": ("Chunk", "Dataset", "Label", "Query", "Ranking", "Run"),
    "report": ("QueryScore", "Report"),
    "retrieval": ("aretrieve", "retrieve"),
    "scoring": ("score",),
    "template": ("EvalResult", "evaluate"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'chunkrecall' has no attribute {name!r}")
    return getattr(import_module(f"chunkrecall.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
