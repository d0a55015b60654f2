"""The names that the documentation promises are there, documented, and stay what they are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator

import pytest

import chunkrecall

NAMES = [name for name in chunkrecall.__all__ if name != "__version__"]
CONTRACT = {
    "Chunk", "ChunkId", "ChunkRecallError", "Contains", "Coverage", "Dataset", "EvalResult",
    "ExactText", "Fuzzy", "Label", "NormalizedText", "Query", "QueryScore", "Ranking", "Report",
    "Run", "adapt", "aevaluate_retriever", "aretrieve", "assert_recall", "check_dataset",
    "compare", "diagnose", "evaluate", "evaluate_retriever", "load_dataset", "load_run",
    "plot_recall", "recall_at_k", "recall_at_ks", "retrieve", "save_dataset", "save_run", "score",
    "sweep", "write_html",
}  # fmt: skip
# Not written yet. A name that has been written is taken out here.
LATER = {
    "compare",
    "plot_recall", "sweep", "write_html",
}  # fmt: skip
ERRORS = {
    "ComparisonError", "DatasetError", "GateError", "MissingExtraError", "RetrievalError",
    "UnsupportedRetrieverError",
}  # fmt: skip
FRAMEWORK_NAMES = {
    "chunkrecall.langchain": {"LangChainAdapter", "documents_to_chunks", "documents_to_texts"},
    "chunkrecall.llama_index": {"LlamaIndexAdapter", "nodes_to_chunks", "nodes_to_texts"},
}
NATIVE = [(module, name) for module, names in FRAMEWORK_NAMES.items() for name in sorted(names)]
RunPython = Callable[..., list[str]]


def test_every_promised_name_is_exported() -> None:
    assert set(chunkrecall.__all__) >= (CONTRACT - LATER) | ERRORS


def test_no_name_that_exists_is_still_listed_as_missing() -> None:
    assert LATER & set(chunkrecall.__all__) == set()


@pytest.mark.parametrize("name", chunkrecall.__all__)
def test_every_public_name_is_importable_and_listed(name: str) -> None:
    assert getattr(chunkrecall, name) is not None
    assert name in dir(chunkrecall)


def test_the_star_import_gives_exactly_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from chunkrecall import *", namespace)
    del namespace["__builtins__"]
    assert set(namespace) == set(chunkrecall.__all__)


def test_the_list_of_names_is_sorted_and_without_repeats() -> None:
    assert chunkrecall.__all__ == sorted(set(chunkrecall.__all__))


def test_an_unknown_name_is_an_attribute_error_that_quotes_it() -> None:
    with pytest.raises(AttributeError, match="'recall_at_kk'"):
        chunkrecall.recall_at_kk  # noqa: B018 - looking it up is what fails


@pytest.mark.parametrize(("module", "name"), NATIVE)
def test_every_framework_name_is_exported_by_its_module(module: str, name: str) -> None:
    loaded = importlib.import_module(module)
    assert name in loaded.__all__
    assert callable(getattr(loaded, name))


def test_every_error_descends_from_the_root() -> None:
    for name in ERRORS:
        assert issubclass(getattr(chunkrecall, name), chunkrecall.ChunkRecallError), name
    assert issubclass(chunkrecall.MissingExtraError, ImportError)


def documented() -> Iterator[tuple[str, object]]:
    """Each public function and class, and the public methods and properties of the classes."""
    found = [(name, getattr(chunkrecall, name)) for name in NAMES]
    found += [(name, getattr(importlib.import_module(module), name)) for module, name in NATIVE]
    for name, value in found:
        yield name, value
        for member, raw in vars(value).items() if inspect.isclass(value) else ():
            # Slots of a record are described below its fields, which leaves no docstring.
            is_ours = isinstance(raw, (classmethod, property, staticmethod)) or callable(raw)
            if not member.startswith("_") and is_ours and not member.startswith("model_"):
                yield f"{name}.{member}", raw


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in documented()])
def test_every_public_function_class_and_method_has_a_docstring(value: object) -> None:
    doc = value.__doc__
    assert doc
    assert doc.strip()
    # A dataclass without a docstring gets its own signature for one.
    name = getattr(value, "__name__", "")
    assert not doc.startswith(f"{name}(")


def test_no_public_name_becomes_a_module_once_everything_is_imported(
    run_python: RunPython,
) -> None:
    code = """
        import importlib, inspect, pkgutil
        import chunkrecall
        for module in pkgutil.walk_packages(chunkrecall.__path__, "chunkrecall."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        print(*[name for name in chunkrecall.__all__ if inspect.ismodule(getattr(chunkrecall, name))])
        from chunkrecall import adapt
        print(inspect.isfunction(adapt), adapt.__module__)
    """
    assert run_python(code) == ["", "True chunkrecall.adapters"]
