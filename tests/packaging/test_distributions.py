"""The wheel and the source distribution hold what they should, and all versions agree."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import chunkrecall

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted((ROOT / "src" / "chunkrecall").rglob("*.py"))


def test_the_wheel_holds_every_module(archives: Any) -> None:
    expected = {str(path.relative_to(ROOT / "src").as_posix()) for path in SOURCES}
    assert {name for name in archives.wheel if name.endswith(".py")} == expected


@pytest.mark.parametrize(
    "name",
    ["chunkrecall/py.typed", "chunkrecall/demo/corpus.jsonl", "chunkrecall/demo/queries.jsonl"],
)
def test_the_wheel_holds_the_type_marker_and_the_demo(name: str, archives: Any) -> None:
    assert archives.wheel[name] == (ROOT / "src" / name).read_bytes()


def test_the_wheel_holds_nothing_but_the_package(archives: Any) -> None:
    info = f"chunkrecall-{PROJECT['version']}.dist-info"
    assert {name.split("/")[0] for name in archives.wheel} == {"chunkrecall", info}
    strays = [
        name for name in archives.wheel if re.search(r"__pycache__|\.pyc$|(^|/)tests?/", name)
    ]
    assert strays == []


def test_the_wheel_is_for_any_platform(archives: Any) -> None:
    assert archives.wheel_name == f"chunkrecall-{PROJECT['version']}-py3-none-any.whl"


def test_the_wheel_declares_the_command_both_adapters_and_the_pytest_plugin(archives: Any) -> None:
    text = archives.metadata("entry_points.txt")
    sections = {
        part.partition("]")[0].strip("["): dict(
            line.split(" = ") for line in part.splitlines()[1:] if line
        )
        for part in text.split("\n\n")
    }
    assert sections == {
        "console_scripts": {"chunkrecall": "chunkrecall.cli:main"},
        "chunkrecall.adapters": {
            "langchain_core": "chunkrecall.langchain.adapter",
            "llama_index.core": "chunkrecall.llama_index.adapter",
        },
        "pytest11": {"chunkrecall": "chunkrecall.pytest_plugin"},
    }


def test_every_entry_point_loads() -> None:
    points = metadata.distribution("chunkrecall").entry_points
    assert {(point.group, point.name) for point in points} == {
        ("console_scripts", "chunkrecall"),
        ("chunkrecall.adapters", "langchain_core"),
        ("chunkrecall.adapters", "llama_index.core"),
        ("pytest11", "chunkrecall"),
    }
    for point in points:
        loaded = point.load()
        if point.group == "chunkrecall.adapters":
            assert all(callable(getattr(loaded, n)) for n in ("adapt", "chunks_from", "quiet"))
        elif point.group == "pytest11":
            assert loaded.recall_report is not None
        else:
            assert callable(loaded)


def test_pytest_warns_of_nothing_where_the_installed_package_is_imported_before_it(
    archives: Any, tmp_path: Path
) -> None:
    installed = tmp_path / "site"
    for name, content in archives.wheel.items():
        path = installed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "test_it.py").write_text("def test_it(recall_report): pass\n")
    code = (
        "import sys, chunkrecall, pytest\n"
        "print(chunkrecall.__file__)\n"
        "sys.exit(pytest.main(['-q', '-W', 'error', '-p', 'no:cacheprovider', 'test_it.py']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(str(installed))
    assert "1 passed" in done.stdout


def test_a_wheel_from_the_source_distribution_is_the_same(
    archives: Any, wheel_from_sdist: dict[str, bytes]
) -> None:
    assert wheel_from_sdist == archives.wheel


def test_the_source_distribution_holds_tests_and_documents(archives: Any) -> None:
    documents = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml"}
    here = str(Path(__file__).relative_to(ROOT).as_posix())
    assert documents | {here, "tests/conftest.py"} <= set(archives.sdist)
    modules = {str(path.relative_to(ROOT).as_posix()) for path in SOURCES}
    assert modules <= set(archives.sdist)
    assert [name for name in archives.sdist if "__pycache__" in name] == []


def test_all_versions_agree(archives: Any) -> None:
    fields = Parser().parsestr(archives.metadata("METADATA"))
    assert fields["Version"] == PROJECT["version"] == chunkrecall.__version__
    assert metadata.version("chunkrecall") == chunkrecall.__version__


def test_the_changelog_mentions_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"(?<![\d.]){re.escape(chunkrecall.__version__)}(?![\d]|\.\d)", text)


def test_the_licence_is_there_and_in_both_archives(archives: Any) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    assert b"MIT License" in licence
    assert archives.sdist["LICENSE"] == licence
    assert archives.metadata("licenses/LICENSE").encode() == licence
    assert Parser().parsestr(archives.metadata("METADATA"))["License-Expression"] == "MIT"


def test_the_readme_is_the_page_of_the_package_index(archives: Any) -> None:
    fields = Parser().parsestr(archives.metadata("METADATA"))
    assert fields["Description-Content-Type"] == "text/markdown"
    body = fields.get_payload()
    assert isinstance(body, str)
    assert body.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


# What the declared dependencies bring along and may be imported with them.
BROUGHT = {"pydantic": {"pydantic_core"}, "typer": {"click"}}
MODULES = {"langchain-core": "langchain_core", "llama-index-core": "llama_index"}


def provided(requirements: list[str]) -> set[str]:
    """The modules that these requirements make importable."""
    names = [re.split(r"[\[<>=~! ]", requirement)[0] for requirement in requirements]
    modules = {MODULES.get(name, name.replace("-", "_")) for name in names}
    return modules.union(*(BROUGHT.get(name, set()) for name in names))


def third_party_imports(path: Path) -> Iterator[str]:
    """The roots of all modules that a file imports, anywhere in it, but for typing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [alias.name for alias in node.names]
        for name in [node.module or ""] if isinstance(node, ast.ImportFrom) else names:
            root = name.partition(".")[0]
            if root not in sys.stdlib_module_names and root != "chunkrecall":
                yield root


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=str(path.relative_to(ROOT / "src"))) for path in SOURCES],
)
def test_everything_that_is_imported_is_declared(path: Path) -> None:
    extras = PROJECT["optional-dependencies"]
    allowed = provided(PROJECT["dependencies"])
    part = path.relative_to(ROOT / "src" / "chunkrecall").parts[0]
    for_part = {"langchain": ["langchain"], "llama_index": ["llama-index"]}
    for_part["demo"] = ["demo", "langchain", "llama-index"]
    for_part["report"] = ["pandas"]
    for_part["formats"] = ["scale"]
    for_part["matching"] = ["fuzzy"]
    if part == "pytest_plugin.py":  # loaded by pytest and by nothing else
        allowed |= {"pytest"}
    for extra in for_part.get(part, []):
        allowed |= provided(extras[extra])
    assert set(third_party_imports(path)) <= allowed
