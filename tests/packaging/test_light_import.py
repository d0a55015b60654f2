"""Importing the package costs little and drags nothing along."""

from __future__ import annotations

from collections.abc import Callable

import pytest

HEAVY = (
    "langchain", "langchain_core", "langchain_community", "langchain_classic", "langgraph",
    "langsmith", "llama_index", "llama_index_instrumentation", "rich", "typer", "click", "numpy",
    "pandas", "scipy", "tenacity", "asyncio",
)  # fmt: skip
# What the names themselves need; evaluating loads the retry library, and nothing else of these.
ALLOWED_ON_USE = {"tenacity", "asyncio"}

_LOADED = """
loaded = {{name.partition(".")[0] for name in sys.modules}}
print(*sorted(loaded & set({heavy!r})))
"""
RunPython = Callable[..., list[str]]


def test_importing_the_package_loads_no_framework_and_nothing_slow(run_python: RunPython) -> None:
    (loaded,) = run_python("import chunkrecall\n" + _LOADED.format(heavy=HEAVY))
    assert loaded.split() == []


def test_importing_the_package_warns_of_nothing(run_python: RunPython) -> None:
    code = "import warnings\nwarnings.simplefilter('error')\nimport chunkrecall\n"
    code += "[getattr(chunkrecall, name) for name in chunkrecall.__all__]"
    assert run_python(code) == []


def test_using_every_public_name_loads_no_framework(run_python: RunPython) -> None:
    code = "import chunkrecall\n[getattr(chunkrecall, name) for name in chunkrecall.__all__]\n"
    (loaded,) = run_python(code + _LOADED.format(heavy=HEAVY))
    assert set(loaded.split()) <= ALLOWED_ON_USE


@pytest.mark.parametrize(
    "use",
    [
        "chunkrecall.recall_at_k(['a'], ['a'])",
        "chunkrecall.evaluate('recall_at_k', hypothesis='[\"a\"]', reference='[\"b\"]').reason",
        "str(chunkrecall.evaluate_retriever(lambda text: ['a'], {'q': ['a']}, progress=False))",
    ],
    ids=["kernel", "template", "plain function"],
)
def test_working_without_a_framework_loads_none(use: str, run_python: RunPython) -> None:
    frameworks = tuple(name for name in HEAVY if name.startswith(("lang", "llama", "numpy", "pan")))
    (loaded,) = run_python(f"import chunkrecall\n{use}\n" + _LOADED.format(heavy=frameworks))
    assert loaded.split() == []


def test_the_package_works_without_any_extra(run_python: RunPython) -> None:
    extras = ("langchain", "langchain_core", "langsmith", "llama_index", "numpy", "pandas")
    code = """
        from chunkrecall import evaluate_retriever
        report = evaluate_retriever(lambda text: ["a", "b"], {"q": ["b"]}, k=(1, 2))
        print(report.mean(1), report.mean(2))
    """
    assert run_python(code, absent=extras) == ["0.0 1.0"]
