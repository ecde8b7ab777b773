"""Format numbers for readers: minus signs, decimals by unit, differences of probabilities in percentage points."""

from __future__ import annotations

from collections.abc import Sequence

#: Text in place of an unknown value.
UNKNOWN = "unknown"
MINUS = "\N{MINUS SIGN}"
NARROW = "\N{NARROW NO-BREAK SPACE}"
NINETY_FIVE = "95\N{NO-BREAK SPACE}%"
_COUNTED = frozenset({"problems", "samples"})
_LEAST_P = 0.0001  # p-values have four decimals; smaller p-values are printed as a bound
_TINY, _HUGE = 1e-3, 1e6  # numbers outside this range are printed as powers of ten


def decimal(value: float, decimals: int, *, signed: bool = False) -> str:
    """Return ``value`` with ``decimals`` decimals. A value that rounds to zero has no sign.

    >>> decimal(-0.1084, 3)
    '−0.108'
    >>> decimal(-0.0001, 3, signed=True)
    '0.000'
    >>> decimal(12345.6, 0)
    '12\\u202f346'
    """
    text = f"{abs(value):,.{decimals}f}".replace(",", NARROW)
    if not any(digit in text for digit in "123456789"):
        return text
    if value < 0:
        return MINUS + text
    return "+" + text if signed else text


def is_probability(unit: str) -> bool:
    """Return whether values of this unit are probabilities or shares, between 0 and 1.

    >>> is_probability("probability"), is_probability("share of modes"), is_probability("nats")
    (True, True, False)
    """
    return unit == "probability" or unit.startswith("share")


def number(value: float | None, unit: str) -> str:
    """Return ``value`` with the decimals of its unit, or a dash for None.

    >>> number(0.26789, "probability"), number(1.094, "nats"), number(7.0, "problems"), number(None, "nats")
    ('0.268', '1.094', '7', '–')
    >>> number(3e-9, "relative difference"), number(3e-7, "p-value")
    ('3.0e−9', '< 0.0001')
    """
    if value is None:
        return "–"
    if is_probability(unit):
        return decimal(value, 3)
    if unit.startswith("nats"):
        return decimal(value, 3)
    if unit == "p-value":
        return f"< {_LEAST_P}" if value < _LEAST_P else decimal(value, 4)
    if unit == "relative difference":
        return format_brief(value)
    if unit in _COUNTED and float(value).is_integer():
        return decimal(value, 0)
    size = abs(value)
    return decimal(value, 2 if size < 10 else 1 if size < 1000 else 0)


def p_text(p: float) -> str:
    """Return a p-value for a sentence. A small p-value is printed as a bound, never as zero.

    >>> p_text(0.0373), p_text(3e-7)
    ('p = 0.0373', 'p < 0.0001')
    """
    text = number(p, "p-value")
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Return an interval as text, such as ``[0.231, 0.305]``; "" without bounds."""
    if low is None or high is None:
        return ""
    return f"[{number(low, unit)}, {number(high, unit)}]"


def points(value: float, *, signed: bool = True) -> str:
    """Return a difference of probabilities in percentage points.

    >>> points(-0.1084)
    '−10.8'
    """
    return decimal(100 * value, 1, signed=signed)


def points_interval(low: float | None, high: float | None) -> str:
    """Return the CI of a difference of probabilities, in percentage points.

    >>> points_interval(-0.121, -0.09)
    '95\\xa0% CI −12.1 to −9.0'
    """
    if low is None or high is None:
        return "no CI"
    return f"{NINETY_FIVE} CI {points(low)} to {points(high)}"


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.649)
    '64.9\\xa0%'
    """
    return f"{decimal(100 * share, 1)}\N{NO-BREAK SPACE}%"


def percent_interval(low: float | None, high: float | None) -> str:
    """Return the CI of a share, in percent.

    >>> percent_interval(0.48, 0.6)
    '95\\xa0% CI 48.0\\xa0% to 60.0\\xa0%'
    """
    if low is None or high is None:
        return "no CI"
    return f"{NINETY_FIVE} CI {percent(low)} to {percent(high)}"


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a count with its noun in singular or plural. Pass ``plural_noun`` for an irregular plural.

    >>> plural(1, "problem"), plural(0, "entry", "entries")
    ('1 problem', '0 entries')
    """
    return f"{decimal(count, 0)} {noun if count == 1 else plural_noun or noun + 's'}"


def format_brief(value: float) -> str:
    """Return a number of unknown unit with few digits. Tiny and huge numbers are powers of ten.

    >>> format_brief(2e-4), format_brief(0.25), format_brief(-1234.5), format_brief(0.0), format_brief(3e7)
    ('2.0e−4', '0.25', '−1234', '0', '3.0e7')
    """
    if value and not _TINY <= abs(value) < _HUGE:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return f"{value:.4g}".replace("-", MINUS)


def k_range(ks: Sequence[int], audited: Sequence[int]) -> str:
    """Return "k = " and the values ``ks``. Consecutive values of ``audited`` are joined as "a to b".

    >>> k_range([1], [1, 8]), k_range([8, 16, 32], [1, 8, 16, 32]), k_range([1, 2, 64], [1, 2, 4, 64])
    ('k = 1', 'k = 8 to 32', 'k = 1, 2 and 64')
    """
    return f"k = {ranges(ks, audited)}"


def ranges(values: Sequence[int], audited: Sequence[int]) -> str:
    """Return ``values`` as text. Consecutive values of ``audited`` are joined as "a to b".

    >>> ranges([20, 120, 140, 160], [20, 40, 120, 140, 160])
    '20 and 120 to 160'
    """
    places = {k: i for i, k in enumerate(sorted({*values, *audited}))}
    runs: list[list[int]] = []
    for k in sorted(values):
        if runs and places[k] == places[runs[-1][-1]] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(k) for k in run]
    return listing(tuple(parts))


def listing(parts: tuple[str, ...], *, last: str = "and") -> str:
    """Join parts with commas, and the last part with the word ``last``.

    >>> listing(("a", "b", "c"))
    'a, b and c'
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"
