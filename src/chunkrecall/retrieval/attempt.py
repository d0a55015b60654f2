"""One call of the user's retriever, and what its failure means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from tenacity import RetryCallState, wait_exponential, wait_random

if TYPE_CHECKING:
    from types import TracebackType

_TRANSIENT_STATUS = frozenset({408, 429})
_CLIENT_ERROR = range(400, 500)
_SERVER_ERROR = range(500, 600)
_CONNECTION_WORDS = ("Timeout", "TimedOut", "Connection", "ConnectError", "TransportError")
_RIGHTS_WORDS = ("Authentication", "Unauthorized", "Forbidden", "PermissionDenied", "AccessDenied")
_BACKOFF = wait_exponential(multiplier=0.2, max=20) + wait_random(0, 0.2)


class Attempt:
    """Times a block and keeps the exception that ends it; works in `def` and `async def` alike.

    This is the one place where any `Exception` is caught: the user's retriever may raise what it
    likes, and one query's failure is one record. KeyboardInterrupt and the like pass through.
    """

    __slots__ = ("_started", "error", "latency_s", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        self.latency_s = 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.latency_s = perf_counter() - self._started
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


@contextmanager
def exit_refused() -> Iterator[None]:
    """Makes the user's `sys.exit`, which would end the program with a code of its own, an error.

    Raises:
        RuntimeError: The block raised SystemExit.
    """
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from error


def backoff_s(attempts: int) -> float:
    """Seconds to wait after this many failed attempts: exponential with jitter."""
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = attempts
    return _BACKOFF(state)


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: connection and time-out errors, status 408, 429 and 5xx.

    A status decides where there is one. Clients raise classes of their own, so a class counts by
    its name too; an error raised `from` another is judged by both. One that cannot be looked at is
    not tried again.
    """
    with Attempt() as look:  # its attributes are code of the client's
        look.value = _says_transient(error)
    return bool(look.value)


def is_refusal(error: BaseException) -> bool:
    """Whether a server has refused for good: status 4xx other than 408 and 429, or a missing right.

    Errors of the retriever's own code are none: they may concern one query.
    """
    with Attempt() as look:
        look.value = _says_refused(error)
    return bool(look.value)


def _says_refused(error: BaseException) -> bool:
    for cause in _causes(error):
        status = _status(cause)
        if status is not None:
            return status in _CLIENT_ERROR and status not in _TRANSIENT_STATUS
        if any(word in kind.__name__ for kind in type(cause).__mro__ for word in _RIGHTS_WORDS):
            return True
    return False


def _says_transient(error: BaseException) -> bool:
    for cause in _causes(error):
        status = _status(cause)
        if status is not None:
            return status in _TRANSIENT_STATUS or status in _SERVER_ERROR
        if isinstance(cause, (ConnectionError, TimeoutError)) or _is_named_transient(cause):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        reason = getattr(cause, "reason", None)  # urllib's URLError
        cause = cause.__cause__ or (reason if isinstance(reason, BaseException) else None)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    fields = ("status_code", "status", "code")
    values = [getattr(holder, field, None) for holder in (error, response) for field in fields]
    if isinstance(response, Mapping):  # botocore's, of every AWS client
        metadata = response.get("ResponseMetadata")
        values.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
            return value
    return None


def _is_named_transient(error: BaseException) -> bool:
    return any(word in kind.__name__ for kind in type(error).__mro__ for word in _CONNECTION_WORDS)
