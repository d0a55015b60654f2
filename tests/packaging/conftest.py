"""A fresh interpreter, since what is imported here cannot be unimported, and the built archives."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

_BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Absent())
"""

RunPython = Callable[..., list[str]]


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Runs code in a fresh interpreter, some packages absent; gives the lines that it prints."""

    def run(code: str, *, absent: tuple[str, ...] = ()) -> list[str]:
        source = _BLOCK.format(names=absent) + dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", source],
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@dataclass(frozen=True)
class Archives:
    """The wheel and the source distribution, as file names and contents."""

    wheel_name: str
    wheel: dict[str, bytes]
    sdist: dict[str, bytes]
    """Without the folder that everything is in."""

    def metadata(self, name: str) -> str:
        """A file of the wheel's dist-info folder."""
        (path,) = [path for path in self.wheel if path.endswith(f".dist-info/{name}")]
        return self.wheel[path].decode("utf-8")


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Both distributions, built offline from the working tree."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "sdist", "wheel")
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Archives(wheel.name, unzipped(wheel), untarred(sdist))


def build(project: Path, into: Path, *targets: str) -> None:
    """Build without isolation: nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    for target in targets:
        command += ["-t", target]
    done = subprocess.run(command, cwd=project, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def unzipped(path: Path) -> dict[str, bytes]:
    """File names and contents."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def untarred(path: Path) -> dict[str, bytes]:
    """File names, below the one folder at the top, and contents."""
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {
            member.name.partition("/")[2]: taken.read()
            for member in files
            if (taken := archive.extractfile(member)) is not None
        }


@pytest.fixture(scope="session")
def wheel_from_sdist(
    archives: Archives, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The wheel that is built from the unpacked source distribution, as installers do."""
    project = tmp_path_factory.mktemp("unpacked")
    for name, content in archives.sdist.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder = tmp_path_factory.mktemp("wheel")
    build(project, folder, "wheel")
    (wheel,) = folder.glob("*.whl")
    return unzipped(wheel)
