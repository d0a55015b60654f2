"""Forms of a text, and in what a text that was nearly found differs from the one that was wanted.

Whitespace is everywhere what `str.split` splits at: Unicode whitespace, no-break spaces included.
"""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias
from unicodedata import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]

INVISIBLE: tuple[tuple[int, int], ...] = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""First and last code points of Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties)."""

_INVISIBLE = re.compile(f"[{''.join(f'{chr(a)}-{chr(b)}' for a, b in INVISIBLE)}]")

_MARKS = (
    r"\u0300-\u036f\u0483-\u0487\u1ab0-\u1abd\u1abf-\u1ace\u1dc0-\u1dff\u20d0-\u20dc\u20e1"
    r"\u20e5-\u20f0\u2de0-\u2dff\ua66f\ua674-\ua67d\ua69e\ua69f\ufe20-\ufe2f"
)
_ACCENTED = (
    r"A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1d00-\u1dbf\u1e00-\u1eff"  # Latin
    r"\u2c60-\u2c7f\ua722-\ua787\ua78b-\ua7ff\uab30-\uab6f\uff21-\uff3a\uff41-\uff5a"
    r"\u0370-\u03ff\u1f00-\u1fff"  # Greek
    r"\u0400-\u0482\u048a-\u052f\u1c80-\u1c8f\ua640-\ua66e\ua680-\ua69d"  # Cyrillic
)
# The letter is looked back at, because a pattern that starts with the rare mark is found faster.
_ACCENTS_OF_A_LETTER = re.compile(f"[{_MARKS}](?<=[{_ACCENTED}].)[{_MARKS}]*")

_NO_LIGATURE = re.compile(r"[^\ufb00-\ufb17]+")
_ENDLESS_REFERENCE = re.compile(r"&#[0-9]{4000,};?")
_LISTED_CODE_POINTS = 5


def strip_invisible(text: str) -> str:
    """The text without the characters of `INVISIBLE`."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def unescape_html(text: str) -> str:
    """The text with its HTML entities and character references as characters, once."""
    if "&" not in text:
        return text
    # `html.unescape` raises for numbers with more digits than `int` reads; smaller ones that are
    # no character become this one.
    return unescape(_ENDLESS_REFERENCE.sub("\ufffd", text))


def strip_accents(text: str, form: Form = "NFC") -> str:
    """The text in `form`, without the accents of Latin, Greek and Cyrillic letters.

    In other scripts a mark is part of the letter (か is not が, a Thai or Devanagari vowel is a
    mark, a Korean syllable decomposes), so it stays. Letters that only look accented (ø, ł) are
    letters of their own and stay too; й loses its breve.
    """
    if text.isascii():
        return text
    # A mathematical letter is Latin, and loses its accents, only once it is decomposed.
    decomposed = normalize("NFKD" if form in ("NFKC", "NFKD") else "NFD", text)
    return normalize(form, _ACCENTS_OF_A_LETTER.sub("", decomposed))


def collapse_whitespace(text: str) -> str:
    """The text with every run of whitespace as one space and none at the ends."""
    return " ".join(text.split())


def code_points(text: str) -> str:
    """The characters by number, like `U+00AD U+200B`."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def near_miss(wanted: str, text: str) -> str | None:
    """What makes the two texts equal, like `equal after trimming whitespace`.

    One step is named if one is enough, the lightest of those that are; else the steps that are
    needed together. None if the texts are equal as they are, or differ in more than form.
    """
    if wanted == text:
        return None
    for step in _LIGHTEST_FIRST:
        sides = _after((step,), wanted, text)
        if sides[0] == sides[1]:
            return f"equal {'' if step in _IGNORING else 'after '}{_named(step, wanted, text)}"
    needed = _needed_steps(wanted, text)
    if not needed:
        return None
    names = []
    for step in needed:
        # Removing comes after unescaping, which can bring in an invisible character.
        before = _after([one for one in needed if one == _UNESCAPE], wanted, text)
        names.append(_named(step, *before))
    return f"equal after {', '.join(names)}"


class NearMisses:
    """Texts in rank order, asked for the near miss of another.

    Nothing is computed before the first question.
    """

    __slots__ = ("_beginnings", "_compared", "_first_ranks", "_texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._first_ranks: dict[str, int] | None = None
        self._beginnings: str | None = None
        self._compared = _COMPARED

    def find(self, wanted: str) -> tuple[int, str] | None:
        """The 1-based rank of the first near miss, and what makes it equal.

        A superset of `near_miss`: spaces inside words may differ too. None if there is no such
        text, if the first one is `wanted` itself, or if nothing visible is in it.
        """
        if self._is_ruled_out(wanted):
            return None
        skeleton = _skeleton(wanted)
        if not skeleton:
            return None
        if self._first_ranks is None:
            # Backwards, so that the first rank is the one that stays.
            self._first_ranks = {
                _skeleton(self._texts[index]): index + 1
                for index in reversed(range(len(self._texts)))
            }
        rank = self._first_ranks.get(skeleton)
        if rank is None or self._texts[rank - 1] == wanted:
            return None
        text = self._texts[rank - 1]
        return rank, near_miss(wanted, text) or _apart_from_whitespace(wanted, text)

    def _is_ruled_out(self, wanted: str) -> bool:
        """Whether no text begins like `wanted`, by one search through the beginnings of all.

        Most questions end here, at a small part of the cost of a skeleton for each text. A text
        that has dozens of spaces more near its beginning than `wanted` is overlooked.
        """
        if self._beginnings is None:
            self._beginnings = _plain_beginnings(self._texts)
            if self._beginnings is not None:
                self._compared = _COMPARED_IF_PLAIN
            else:
                joined = _NUL.join(map(_cut_to_beginning, self._texts))
                length = _beginning(joined)
                if length > _BEGINNING:
                    joined = _NUL.join([text[:length] for text in self._texts])
                self._beginnings = _NUL + _skeleton(joined)
        skeleton = _skeleton(wanted[: _beginning(wanted)])[: self._compared]
        return bool(skeleton) and _NUL + skeleton not in self._beginnings


def _plain_beginnings(texts: Sequence[str]) -> str | None:
    """The skeletons of short beginnings; None where they may hold too little to be compared.

    Of 16 characters among which no two spaces are neighbours, at least 8 are none.
    """
    joined = f"{_NUL}%.{_PLAIN_BEGINNING}s" * len(texts) % tuple(texts)
    if not joined.isascii() or "&" in joined:
        return None
    plain = joined.encode().translate(_LOWER_AND_SPACES)
    return None if b"  " in plain else plain.replace(b" ", b"").decode()


def _beginning(text: str) -> int:
    """How many characters hold the first `_COMPARED` of a skeleton, whatever form they are in."""
    if "&" in text:
        return _BEGINNING * 10  # an entity a character
    return _BEGINNING if text.isascii() else _BEGINNING * 3  # a decomposed syllable


_NUL = "\0"
_BEGINNING = 40
_cut_to_beginning = itemgetter(slice(_BEGINNING))
_COMPARED = 12
_PLAIN_BEGINNING = 16
_COMPARED_IF_PLAIN = 8
_TRIM = "trimming whitespace"
_COLLAPSE = "collapsing whitespace"
_NFC = "NFC normalisation"
_INVISIBLES = "removing invisible characters"
_UNESCAPE = "HTML unescape"
_CASE = "ignoring case"
_NFKC = "NFKC normalisation"
_ACCENTS = "ignoring accents"

_IGNORING = (_CASE, _ACCENTS)

_LIGHTEST_FIRST = (_TRIM, _COLLAPSE, _NFC, _INVISIBLES, _UNESCAPE, _CASE, _NFKC, _ACCENTS)


def _nfc(text: str) -> str:
    return normalize("NFC", text)


def _nfkc(text: str) -> str:
    return normalize("NFKC", text)


def _fold(text: str) -> str:
    # Folding would also take apart ligatures, which PDFs are full of; that is for NFKC to name.
    return _NO_LIGATURE.sub(lambda part: part[0].casefold(), text)


# In the order of application: unescaping can bring in every other difference, invisible characters
# can split an entity, and folding case can undo a Unicode form.
_APPLIED: tuple[tuple[str, Callable[[str], str]], ...] = (
    (_INVISIBLES, strip_invisible),
    (_UNESCAPE, unescape_html),
    (_INVISIBLES, strip_invisible),
    (_NFC, _nfc),
    (_NFKC, _nfkc),
    (_CASE, _fold),
    (_NFC, _nfc),
    (_NFKC, _nfkc),
    (_ACCENTS, strip_accents),
    (_COLLAPSE, collapse_whitespace),
    (_TRIM, str.strip),
)


def _after(steps: Collection[str], wanted: str, text: str) -> tuple[str, str]:
    for name, apply in _APPLIED:
        if name in steps:
            wanted, text = apply(wanted), apply(text)
    return wanted, text


def _needed_steps(wanted: str, text: str) -> list[str]:
    """The steps none of which can be left out, in their order; empty if all are not enough."""
    needed: list[str] = list(_LIGHTEST_FIRST)
    sides = _after(needed, wanted, text)
    if sides[0] != sides[1]:
        return []
    for step in reversed(_LIGHTEST_FIRST):
        fewer = [other for other in needed if other != step]
        sides = _after(fewer, wanted, text)
        if sides[0] == sides[1]:
            needed = fewer
    return needed


def _named(step: str, wanted: str, text: str) -> str:
    if step != _INVISIBLES:
        return step
    here, there = Counter(_INVISIBLE.findall(wanted)), Counter(_INVISIBLE.findall(text))
    # Equal counts at different places: then all of them are the difference.
    differing = sorted((here - there) + (there - here) or here)
    listed = [code_points(character) for character in differing[:_LISTED_CODE_POINTS]]
    if len(differing) > _LISTED_CODE_POINTS:
        listed.append("…")
    return f"{step} ({', '.join(listed)})"


def _apart_from_whitespace(wanted: str, text: str) -> str:
    phrase = near_miss("".join(wanted.split()), "".join(text.split()))
    return f"{phrase or 'equal'}{',' if phrase else ''} apart from whitespace"


_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
_ASCII_WHITESPACE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"
_LOWER_AND_SPACES = _LOWER.translate(
    bytes.maketrans(_ASCII_WHITESPACE, b" " * len(_ASCII_WHITESPACE))
)


def _skeleton(text: str) -> str:
    """What is left of a text after every step and without whitespace; near misses share it."""
    if text.isascii() and "&" not in text:
        # One pass over the bytes: most texts are ASCII, and there may be hundreds for a query.
        return text.encode().translate(_LOWER, _ASCII_WHITESPACE).decode()
    text = strip_invisible(unescape_html(strip_invisible(text)))
    return "".join(strip_accents(text, "NFKC").casefold().split())
