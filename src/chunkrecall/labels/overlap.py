"""Where one text ends as another begins."""

from __future__ import annotations


def longest_overlap(first: str, second: str) -> int:
    """How many characters at the end of one text are those at the beginning of another.

    Linear in the lengths, whatever repeats (Knuth, Morris and Pratt, 1977).
    """
    tail = first[-len(second) :] if second else ""
    # For each beginning of `second`: the length of the longest shorter one that ends it.
    borders = [0] * len(second)
    length = 0
    for index in range(1, len(second)):
        while length and second[index] != second[length]:
            length = borders[length - 1]
        length += second[index] == second[length]
        borders[index] = length
    length = 0
    for character in tail:
        if length == len(second):
            length = borders[length - 1]
        while length and character != second[length]:
            length = borders[length - 1]
        length += bool(second) and character == second[length]
    return length
