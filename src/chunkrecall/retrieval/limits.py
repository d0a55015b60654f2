"""How hard a retriever may be driven: concurrency, time-outs, attempts and calls per period."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from math import isfinite
from threading import TIMEOUT_MAX
from typing import Literal, TypeAlias

OnError: TypeAlias = Literal["record", "zero", "raise"]
RateLimitInput: TypeAlias = "str | tuple[int, float] | None"

MAX_PERMANENT_ERRORS = 5

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(
    r"\s*(?P<calls>[0-9]{1,9})\s*(?:/|per)\s*(?P<times>[0-9]{0,9}(?:\.[0-9]{1,9})?)\s*"
    r"(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?)\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Checked limits of one run."""

    max_concurrency: int
    timeout_s: float | None
    retries: int
    on_error: OnError
    rate: RateLimit | None
    max_permanent_errors: int | None


class RateLimit:
    """At most so many calls start within any period of so many seconds."""

    __slots__ = ("_starts", "calls", "per_s")

    def __init__(self, calls: int, per_s: float) -> None:
        self.calls = calls
        self.per_s = per_s
        self._starts: deque[float] = deque(maxlen=calls)

    def wait_s(self, now: float) -> float:
        """Seconds until the next call may start."""
        if len(self._starts) < self.calls:
            return 0.0
        return max(0.0, self._starts[0] + self.per_s - now)

    def start(self, now: float) -> None:
        """A call starts."""
        self._starts.append(now)

    def __str__(self) -> str:
        return f"{self.calls} calls per {self.per_s:g} s"


def limits_of(
    *,
    max_concurrency: int,
    timeout_s: float | None,
    retries: int,
    on_error: OnError,
    rate_limit: RateLimitInput,
    max_permanent_errors: int | None,
) -> Limits:
    """Check the limits; arguments are those of `retrieve`.

    Raises:
        TypeError: One is of the wrong type.
        ValueError: One is out of its range.
    """
    check_count("max_concurrency", max_concurrency, least=1)
    check_count("retries", retries, least=0)
    if max_permanent_errors is not None:
        check_count("max_permanent_errors", max_permanent_errors, least=1)
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s > 0
    ):
        raise ValueError(
            f"timeout_s must be a positive number of seconds or None, got {timeout_s!r}"
        )
    if on_error not in ("record", "zero", "raise"):
        raise ValueError(f"on_error must be 'record', 'zero' or 'raise', got {on_error!r}")
    if timeout_s is not None and timeout_s >= TIMEOUT_MAX:  # 292 years, which no lock waits for
        timeout_s = None
    return Limits(
        max_concurrency,
        timeout_s,
        retries,
        on_error,
        rate_limit_of(rate_limit),
        max_permanent_errors,
    )


def rate_limit_of(value: RateLimitInput) -> RateLimit | None:
    """The limit that `"100/min"`, `"5/2s"` or `(100, 60.0)` (calls, seconds) means.

    Raises:
        TypeError: It is something else.
        ValueError: No calls, or no time.
    """
    if value is None:
        return None
    if isinstance(value, str):
        parts = _RATE.fullmatch(value)
        if parts is None:
            raise ValueError(
                f"rate_limit must be calls per period such as '10/s' or '100/min', got {value!r}"
            )
        calls = int(parts["calls"])
        per_s = float(parts["times"] or 1) * _SECONDS[parts["unit"][0].lower()]
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        calls, per_s = value
        if isinstance(calls, bool) or not isinstance(calls, int):
            raise TypeError(f"rate_limit: the calls must be an integer, got {calls!r}")
        if isinstance(per_s, bool) or not isinstance(per_s, (int, float)):
            raise TypeError(f"rate_limit: the seconds must be a number, got {per_s!r}")
    else:
        raise TypeError(
            "rate_limit must be a text such as '100/min', a pair (calls, seconds) or None, got "
            f"{value!r:.80}"
        )
    if calls < 1 or not per_s > 0 or not isfinite(per_s):
        raise ValueError(f"rate_limit must allow a call in some period, got {value!r}")
    return RateLimit(calls, float(per_s))


def check_count(name: str, value: object, *, least: int) -> None:
    """Refuse what is no number of times.

    Raises:
        TypeError: It is no integer.
        ValueError: It is below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        bound = "not be negative" if least == 0 else f"be at least {least}"
        raise ValueError(f"{name} must {bound}, got {value}")
