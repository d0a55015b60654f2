"""Numbers as a reader sees them: rounded, but never to a 0 or a whole that is not exact."""

from __future__ import annotations

from math import copysign

NO_VALUE = "\u2013"
"""An en dash, shown where there is no number, so that it is not taken for 0."""

_MS_IN_A_SECOND = 1000
_USUAL_DIGITS = 3
_SUSPECT = frozenset({"0.000", "-0.000", "1.000", "-1.000"})
"""What a share may only be shown as if it is exactly that."""


def share(value: float | None, *, digits: int = 3) -> str:
    """A share of 1 like `0.667`; `0.000` and `1.000` only if exact.

    Raises:
        ValueError: digits is below 1; with none there is only 0 and 1.
    """
    if digits < 1:
        raise ValueError(f"digits must be at least 1, got {digits}")
    if value is None:
        return NO_VALUE
    shown = f"{value:.{digits}f}"
    return _rounded(value, 1, digits) if shown in _SUSPECT or digits != _USUAL_DIGITS else shown


def percent(value: float | None, *, digits: int = 0) -> str:
    """A share of 1 like `67 %`; `0 %` and `100 %` only if exact."""
    return NO_VALUE if value is None else f"{_rounded(value, 100, digits)} %"


def seconds(value: float | None) -> str:
    """A duration like `12 ms` or `1.3 s`."""
    if value is None:
        return NO_VALUE
    milliseconds = round(value * _MS_IN_A_SECOND)
    if milliseconds >= _MS_IN_A_SECOND:
        return f"{value:.1f} s"
    return "<1 ms" if milliseconds == 0 and value > 0 else f"{milliseconds} ms"


def count(number: int, singular: str, plural: str) -> str:
    """A number with its noun, like `1 query` or `3 queries`."""
    return f"{number} {singular if number == 1 else plural}"


def _rounded(value: float, whole: int, digits: int) -> str:
    nearest = round(value * whole, digits)
    if abs(nearest) in (0, whole) and value * whole != nearest:
        nearest += copysign(10.0**-digits, value * whole - nearest)
    # Adding 0 turns the negative zero into the other one.
    return f"{nearest + 0.0:.{digits}f}"
