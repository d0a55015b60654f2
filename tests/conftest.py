"""Where the real labelled sets are, for the tests that use them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


def _data_folder() -> Path | None:
    named = os.environ.get("CHUNKRECALL_DATA")
    candidates = [Path(named)] if named else []
    candidates.append(Path(__file__).resolve().parents[2] / "shared" / "data")
    return next((folder for folder in candidates if folder.is_dir()), None)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real labelled sets; skips where there is none."""
    folder = _data_folder()
    if folder is None:
        pytest.skip("no real labelled sets: set CHUNKRECALL_DATA to their folder")
    return folder
