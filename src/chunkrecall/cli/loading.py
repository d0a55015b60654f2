"""From `MODULE:RETRIEVER` to a retriever."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from chunkrecall.cli.exits import CannotLoadError
from chunkrecall.retrieval import Attempt, describe_error, exit_refused


def load_retriever(target: str) -> object:
    """The object that `package.module:name`, or `path/to/file.py:name`, means.

    The name may be dotted, and `name()` calls a function without arguments that makes it.

    Raises:
        CannotLoadError: The module fails to import, or has no such name.
    """
    module_name, colon, path = target.rpartition(":")
    if not colon or not module_name or not path:
        raise CannotLoadError(
            f"{target!r}: write MODULE:RETRIEVER, such as app.search:retriever, "
            "app.search:make_retriever() or search.py:retriever"
        )
    with Attempt() as attempt, exit_refused():  # the user's module may fail in any way
        attempt.value = _resolve(_module(module_name), path, target)
    if attempt.error is not None:
        if isinstance(attempt.error, CannotLoadError):
            raise attempt.error
        raise CannotLoadError(f"{target!r}: {describe_error(attempt.error)}") from attempt.error
    loaded: object = attempt.value
    return loaded


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name)
    is_taken = path.stem in sys.modules  # a json.py must not replace the json of everyone else
    alias = f"{path.stem} of {path.resolve()}" if is_taken else path.stem
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CannotLoadError(f"{name!r}: no such file")
    sys.path.insert(0, str(path.parent.resolve()))  # as `python path/to/file.py` does
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _resolve(module: ModuleType, path: str, target: str) -> object:
    value: object = module
    for part in path.split("."):
        name = part.removesuffix("()")
        if not hasattr(value, name):
            names = sorted(name for name in vars(module) if not name.startswith("_"))
            raise CannotLoadError(f"{target!r}: there is no {name!r}; the module has {names}")
        value = getattr(value, name)
        if part.endswith("()"):
            if not callable(value):
                raise CannotLoadError(
                    f"{target!r}: {name!r} is a {type(value).__name__}, no function"
                )
            value = value()
    return value
