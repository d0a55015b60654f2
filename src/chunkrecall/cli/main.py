"""Runs the command and turns what can go wrong into exit codes.

0  done
1  a gate was missed
2  bad arguments or input
3  the retriever could not be loaded, or is none
4  nothing could be measured
"""

from __future__ import annotations

import json
import sys
from traceback import format_exception
from typing import Any, NoReturn

import typer

from chunkrecall.cli.app import app
from chunkrecall.cli.exits import (
    BAD_INPUT,
    CANNOT_LOAD,
    INTERRUPTED,
    NOT_MEASURED,
    CannotLoadError,
    Exit,
    Failure,
)
from chunkrecall.errors import (
    ChunkRecallError,
    DatasetError,
    RetrievalError,
    UnsupportedRetrieverError,
)
from chunkrecall.render import printable
from chunkrecall.retrieval import Attempt

# typer carries its own copy of click from 0.27 on and uses the installed one before.
_ClickException: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that lacks a character gets its escape instead
            reconfigure(errors="backslashreplace")
    with Attempt() as attempt:
        attempt.value = _code(arguments)
    if attempt.error is not None:  # a defect; Python's own code for it would say "gate missed"
        _say("".join(format_exception(attempt.error)).rstrip())
        attempt.value = NOT_MEASURED
    sys.exit(attempt.value)


def _code(arguments: list[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = _takes_json_errors(given)
    try:
        code = app(given, prog_name="chunkrecall", standalone_mode=False)
    except _ClickException as error:
        error.show()
        return BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except Exit as error:
        return error.code
    except Failure as error:
        _say(str(error))
        return error.code
    except (CannotLoadError, UnsupportedRetrieverError) as error:
        _say(str(error))
        return CANNOT_LOAD
    except RetrievalError as error:
        _say(str(error))
        return NOT_MEASURED
    except DatasetError as error:
        if as_json:
            problems = [problem.to_dict() for problem in error.problems]
            sys.stderr.write(json.dumps({"error": str(error), "problems": problems}) + "\n")
        else:
            _say(str(error))
        return BAD_INPUT
    except (ChunkRecallError, OSError, TypeError, ValueError) as error:
        _say(str(error))
        return BAD_INPUT
    return code if isinstance(code, int) else 0


def _takes_json_errors(arguments: list[str]) -> bool:
    """Whether `--errors json` is among the arguments, which it is taken out of.

    It may stand anywhere: it is about the command line, not about one command.
    """
    for index, argument in enumerate(arguments):
        if argument == "--errors" and index + 1 < len(arguments):
            form, size = arguments[index + 1], 2
        elif argument.startswith("--errors="):
            form, size = argument.removeprefix("--errors="), 1
        else:
            continue
        if form not in ("text", "json"):
            continue  # refused by the command as what it is
        del arguments[index : index + size]
        return form == "json"
    return False


def _say(message: str) -> None:
    for line in message.split("\n"):
        sys.stderr.write(f"chunkrecall: {printable(line)}\n")
