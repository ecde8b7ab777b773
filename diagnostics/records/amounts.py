"""Counts with their nouns, as every printed sentence has them."""

from __future__ import annotations


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun; ``many`` is an irregular plural. Thousands have a comma.

    >>> plural(1, "problem"), plural(0, "sample"), plural(12_000, "series", "series")
    ('1 problem', '0 samples', '12,000 series')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
