"""Numbers as people read them: real minus signs, fixed decimals per unit, differences of probabilities in points."""

from __future__ import annotations

MINUS = "\N{MINUS SIGN}"
NARROW = "\N{NARROW NO-BREAK SPACE}"
NINETY_FIVE = "95\N{NO-BREAK SPACE}%"
_COUNTED = frozenset({"problems", "samples", "queries"})


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """``value`` with ``decimals`` places; a rounded zero carries no sign.

    >>> fixed(-0.1084, 3)
    '−0.108'
    >>> fixed(-0.0001, 3, signed=True)
    '0.000'
    >>> fixed(12345.6, 0)
    '12\\u202f346'
    """
    text = f"{abs(value):,.{decimals}f}".replace(",", NARROW)
    if not any(digit in text for digit in "123456789"):
        return text
    if value < 0:
        return MINUS + text
    return "+" + text if signed else text


def is_probability(unit: str) -> bool:
    """
    >>> is_probability("probability"), is_probability("share of modes"), is_probability("nats")
    (True, True, False)
    """
    return unit == "probability" or unit.startswith("share")


def number(value: float | None, unit: str) -> str:
    """``value`` in the decimals that its unit deserves; a dash for unknown.

    >>> number(0.26789, "probability"), number(1.094, "nats"), number(7.0, "problems"), number(None, "nats")
    ('0.268', '1.094', '7', '–')
    """
    if value is None:
        return "–"
    if is_probability(unit):
        return fixed(value, 3)
    if unit.startswith("nats"):
        return fixed(value, 3)
    if unit in _COUNTED and float(value).is_integer():
        return fixed(value, 0)
    size = abs(value)
    return fixed(value, 2 if size < 10 else 1 if size < 1000 else 0)


def interval(low: float | None, high: float | None, unit: str) -> str:
    """``[0.231, 0.305]``, or nothing where there is none."""
    if low is None or high is None:
        return ""
    return f"[{number(low, unit)}, {number(high, unit)}]"


def points(value: float, *, signed: bool = True) -> str:
    """A difference of probabilities in percentage points.

    >>> points(-0.1084)
    '−10.8'
    """
    return fixed(100 * value, 1, signed=signed)


def points_interval(low: float | None, high: float | None) -> str:
    """
    >>> points_interval(-0.121, -0.09)
    '95\\xa0% interval −12.1 to −9.0'
    """
    if low is None or high is None:
        return "no interval"
    return f"{NINETY_FIVE} interval {points(low)} to {points(high)}"


def percent(share: float) -> str:
    """
    >>> percent(0.649)
    '64.9\\xa0%'
    """
    return f"{fixed(100 * share, 1)}\N{NO-BREAK SPACE}%"


def plural(count: int, one: str, many: str | None = None) -> str:
    """
    >>> plural(1, "problem"), plural(0, "query", "queries")
    ('1 problem', '0 queries')
    """
    return f"{fixed(count, 0)} {one if count == 1 else many or one + 's'}"


def listing(parts: tuple[str, ...]) -> str:
    """
    >>> listing(("a", "b", "c"))
    'a, b and c'
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
