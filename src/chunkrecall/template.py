"""The template call: `evaluate("recall_at_k", hypothesis=…, reference=…)` on serialised lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Never, NoReturn, TypeAlias

import pydantic_core

from chunkrecall.metric import Cutoff, check_k, check_label_text, hit_positions
from chunkrecall.report import recall_reason

Serialized: TypeAlias = "str | Sequence[str] | Sequence[Sequence[str]]"

_TEMPLATES = ("recall_at_k",)
_CONFIG_KEYS = ("k", "threshold")
_DEFAULT_THRESHOLD = 0.5
_RETRIEVER_METHODS = ("invoke", "retrieve", "as_retriever", "aretrieve", "similarity_search")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """The outcome of one row of the template call."""

    eval_name: str
    score: float | None
    """Recall in [0, 1], not rounded; None when nothing is relevant."""
    reason: str
    """One sentence such as `Recall@3: 0.667 (2/3 relevant chunks in the top 3); missing: …`."""
    passed: bool | None
    """Whether the score reaches the threshold; None when there is no score."""
    status: Literal["completed", "undefined"]
    k: Cutoff
    found: int
    """How many distinct relevant chunks the first k contain."""
    relevant: int
    """How many distinct relevant chunks there are."""
    missing: tuple[str, ...]
    """The relevant chunks not found, in the order of the reference."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """`row` (from 0), `retrieved` (how many chunks the hypothesis has) and `threshold`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "missing": list(self.missing)}


def evaluate(
    eval_name: str,
    *,
    hypothesis: Serialized,
    reference: Serialized,
    eval_config: Mapping[str, Any] | None = None,
    **unknown: Never,
) -> EvalResult | list[EvalResult]:
    """Recall@K of ranked lists that come as JSON text.

    Args:
        eval_name: "recall_at_k".
        hypothesis: The retrieved chunks in ranked order, as a JSON array of strings. A list of such
            texts, or a list of lists of strings, is a batch.
        reference: The relevant chunks in the same form, one row for each row of the hypothesis.
        eval_config: `k` (the cutoff; without it the whole list) and `threshold` (the score from
            which on a row passes, 0.5 by default).
        **unknown: Any other keyword is refused, with the nearest known one.

    Returns:
        One result, or for a batch a list of results in order.

    Raises:
        ValueError: An unknown template or configuration key, a bad k or threshold, a row that is
            not a JSON array, a blank relevant chunk, or a batch with rows missing on one side.
            Rows are numbered from 0.
        TypeError: An element that is no string, a retriever, or an unknown argument.
    """
    for name in unknown:
        _refuse_keyword(name)
    if eval_name not in _TEMPLATES:
        _unknown("template", eval_name, _TEMPLATES)
    k, threshold = _config(eval_config)
    sides = {"hypothesis": hypothesis, "reference": reference}
    for name, value in sides.items():
        _check_side(name, value)
    if isinstance(hypothesis, str) and isinstance(reference, str):
        return _result(
            eval_name,
            0,
            _decoded(hypothesis, "hypothesis row 0"),
            _decoded(reference, "reference row 0"),
            k,
            threshold,
        )
    if isinstance(hypothesis, str) or isinstance(reference, str):
        _refuse_mixture(sides)
    if len(hypothesis) != len(reference):
        _refuse_bad_rows(sides)
        raise ValueError(
            f"hypothesis has {len(hypothesis)} rows and reference has {len(reference)}: a batch "
            "needs one of each for every query"
        )
    return [
        _result(
            eval_name,
            row,
            _row(retrieved, "hypothesis", row),
            _row(relevant, "reference", row),
            k,
            threshold,
        )
        for row, (retrieved, relevant) in enumerate(zip(hypothesis, reference, strict=True))
    ]


def _result(
    eval_name: str,
    row: int,
    retrieved: Sequence[str],
    relevant: Sequence[str],
    k: Cutoff,
    threshold: float,
) -> EvalResult:
    wanted = dict.fromkeys(relevant)
    if "" in wanted or any(map(str.isspace, wanted)):
        for text in wanted:
            check_label_text(text, f"reference row {row}")
    top = retrieved if k is None or len(retrieved) <= k else retrieved[:k]
    found = {top[rank - 1] for rank in hit_positions(wanted.keys(), top)}
    metadata = {"row": row, "retrieved": len(retrieved), "threshold": threshold}
    if not wanted:
        return EvalResult(
            eval_name=eval_name,
            score=None,
            reason="no score: the reference is empty, so recall is undefined",
            passed=None,
            status="undefined",
            k=k,
            found=0,
            relevant=0,
            missing=(),
            metadata=metadata,
        )
    missing = tuple([text for text in wanted if text not in found])
    score = len(found) / len(wanted)
    return EvalResult(
        eval_name=eval_name,
        score=score,
        # Now, not when it is read: a batch must not keep every retrieved text alive.
        reason=recall_reason(
            k,
            found=len(found),
            relevant=len(wanted),
            retrieved=top,
            retrieved_count=len(retrieved),
            missing=missing,
        ),
        passed=score >= threshold,
        status="completed",
        k=k,
        found=len(found),
        relevant=len(wanted),
        missing=missing,
        metadata=metadata,
    )


def _check_side(name: str, value: object) -> None:
    """Tell a batch from the mistakes that look like one."""
    if isinstance(value, str):
        return
    if isinstance(value, (list, tuple)):
        return
    if callable(value) or any(hasattr(value, method) for method in _RETRIEVER_METHODS):
        raise TypeError(
            f"{name} is a retriever ({type(value).__name__}): call evaluate_retriever(retriever, "
            "dataset), which runs it and scores what it returns"
        )
    raise ValueError(
        f"{name} must be a JSON array of strings as text, or a list of them; got "
        f"{type(value).__name__} {value!r:.80} — use json.dumps([...])"
    )


def _refuse_mixture(sides: Mapping[str, Serialized]) -> NoReturn:
    """One JSON text beside a batch."""
    _refuse_bad_rows(sides)
    single, batch = sorted(sides, key=lambda name: not isinstance(sides[name], str))
    raise ValueError(
        f"{single} is one JSON text and {batch} is a batch of {len(sides[batch])} rows: give "
        "both as one text, or both as lists of the same length"
    )


def _refuse_bad_rows(sides: Mapping[str, Serialized]) -> None:
    """Name plain chunks where JSON was meant, the usual reason why two sides do not fit."""
    for name, value in sides.items():
        for row, item in enumerate(() if isinstance(value, str) else value):
            _row(item, name, row)


def _row(value: object, name: str, row: int) -> Sequence[str]:
    """One row of a batch: JSON text, or a list of strings."""
    place = f"{name} row {row}"
    if isinstance(value, str):
        return _decoded(value, place, in_batch=True)
    if isinstance(value, (list, tuple)):
        _check_strings(value, place)
        return value
    raise ValueError(
        f"{place} must be a JSON array of strings as text, or a list of strings; got "
        f"{type(value).__name__} {value!r:.80}"
    )


def _decoded(text: str, place: str, *, in_batch: bool = False) -> list[str]:
    try:
        value = pydantic_core.from_json(text, cache_strings="none")
    except ValueError:
        value = _decoded_slowly(text, place, in_batch=in_batch)
    if not isinstance(value, list):
        raise ValueError(
            f"{place} must be a JSON array of strings, got {_json_kind(value)} {text!r:.80}"
            + _hint(in_batch)
        )
    _check_strings(value, place)
    return value


def _decoded_slowly(text: str, place: str, *, in_batch: bool) -> object:
    """What the fast decoder refuses and the standard one takes (lone surrogates), or the error."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place} is not JSON ({error.msg} at character {error.pos}): {text!r:.80}"
            + _hint(in_batch)
        ) from None
    except RecursionError:
        raise ValueError(f"{place} is nested too deeply to be an array of strings") from None


def _check_strings(items: Sequence[object], place: str) -> None:
    try:
        # The fastest check of a whole list; it stops early, and is true, at an empty text.
        if not "".startswith(tuple(items)):  # type: ignore[arg-type]
            return
    except TypeError:
        pass  # which one it is, below
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(
                f"{place}: element {index} must be a string, got {_json_kind(item)} {item!r:.80}"
            )


def _hint(in_batch: bool) -> str:  # noqa: FBT001 - a private one-liner
    if in_batch:
        return (
            " — a list of plain chunks is no batch: pass json.dumps([...]) for one query, or call "
            "recall_at_k(retrieved, relevant, k)"
        )
    return " — use json.dumps([...])"


def _json_kind(value: object) -> str:
    names = {
        dict: "an object",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
        list: "an array",
    }
    if type(value) in names:
        return names[type(value)]
    return "a number" if isinstance(value, (int, float)) else type(value).__name__


def _config(eval_config: Mapping[str, Any] | None) -> tuple[Cutoff, float]:
    if eval_config is None:
        return None, _DEFAULT_THRESHOLD
    if not isinstance(eval_config, Mapping):
        raise TypeError(f"eval_config must be a dict, got {type(eval_config).__name__}")
    for key in eval_config:
        if key not in _CONFIG_KEYS:
            _unknown("eval_config key", key, _CONFIG_KEYS)
    threshold = eval_config.get("threshold", _DEFAULT_THRESHOLD)
    if (
        isinstance(threshold, bool)
        or not isinstance(threshold, (int, float))
        or not 0 <= threshold <= 1
    ):
        raise ValueError(f"eval_config: threshold must be a number from 0 to 1, got {threshold!r}")
    return check_k(eval_config.get("k")), threshold


def _refuse_keyword(name: str) -> NoReturn:
    if name in _CONFIG_KEYS:
        hint = f"write eval_config={{{name!r}: …}}"
    else:
        near = get_close_matches(name, ("hypothesis", "reference", "eval_config"), n=1)
        known = "hypothesis (retrieved), reference (relevant), eval_config"
        hint = f"did you mean {near[0]!r}?" if near else f"known: {known}"
    raise TypeError(f"evaluate() has no argument {name!r}; {hint}")


def _unknown(what: str, name: object, known: Sequence[str]) -> NoReturn:
    near = get_close_matches(str(name).lower().replace("@", "_at_"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(map(repr, known))}"
    raise ValueError(f"unknown {what} {name!r}; {hint}")
