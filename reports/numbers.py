"""Numbers as people read them: real minus signs, fixed decimals per unit, differences of probabilities in points."""

from __future__ import annotations

from collections.abc import Sequence

#: In place of a value that nobody told.
UNKNOWN = "unknown"
MINUS = "\N{MINUS SIGN}"
NARROW = "\N{NARROW NO-BREAK SPACE}"
NINETY_FIVE = "95\N{NO-BREAK SPACE}%"
_COUNTED = frozenset({"problems", "samples"})
_LEAST_P = 0.0001  # what four places can show
_TINY, _HUGE = 1e-3, 1e6  # beyond these, digits before the first one that counts are noise


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
    """Whether a unit is a probability or a share, between 0 and 1.

    >>> is_probability("probability"), is_probability("share of modes"), is_probability("nats")
    (True, True, False)
    """
    return unit == "probability" or unit.startswith("share")


def number(value: float | None, unit: str) -> str:
    """``value`` in the decimals that its unit deserves; a dash for unknown.

    >>> number(0.26789, "probability"), number(1.094, "nats"), number(7.0, "problems"), number(None, "nats")
    ('0.268', '1.094', '7', '–')
    >>> number(3e-9, "relative difference"), number(3e-7, "p-value")
    ('3.0e−9', '< 0.0001')
    """
    if value is None:
        return "–"
    if is_probability(unit):
        return fixed(value, 3)
    if unit.startswith("nats"):
        return fixed(value, 3)
    if unit == "p-value":
        return f"< {_LEAST_P}" if value < _LEAST_P else fixed(value, 4)
    if unit == "relative difference":
        return brief(value)
    if unit in _COUNTED and float(value).is_integer():
        return fixed(value, 0)
    size = abs(value)
    return fixed(value, 2 if size < 10 else 1 if size < 1000 else 0)


def p_text(p: float) -> str:
    """A p value in a sentence; one that rounds to nothing is below a bound, never zero.

    >>> p_text(0.0373), p_text(3e-7)
    ('p = 0.0373', 'p < 0.0001')
    """
    text = number(p, "p-value")
    return f"p {text}" if text.startswith("<") else f"p = {text}"


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
    """The interval of a difference of probabilities, in points.

    >>> points_interval(-0.121, -0.09)
    '95\\xa0% interval −12.1 to −9.0'
    """
    if low is None or high is None:
        return "no interval"
    return f"{NINETY_FIVE} interval {points(low)} to {points(high)}"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.649)
    '64.9\\xa0%'
    """
    return f"{fixed(100 * share, 1)}\N{NO-BREAK SPACE}%"


def percent_interval(low: float | None, high: float | None) -> str:
    """The interval of a share, in percent.

    >>> percent_interval(0.48, 0.6)
    '95\\xa0% interval 48.0\\xa0% to 60.0\\xa0%'
    """
    if low is None or high is None:
        return "no interval"
    return f"{NINETY_FIVE} interval {percent(low)} to {percent(high)}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun; ``many`` is an irregular plural.

    >>> plural(1, "problem"), plural(0, "entry", "entries")
    ('1 problem', '0 entries')
    """
    return f"{fixed(count, 0)} {one if count == 1 else many or one + 's'}"


def brief(value: float) -> str:
    """A number of unknown unit in few digits; tiny and huge ones as a power of ten.

    >>> brief(2e-4), brief(0.25), brief(-1234.5), brief(0.0), brief(3e7)
    ('2.0e−4', '0.25', '−1234', '0', '3.0e7')
    """
    if value and not _TINY <= abs(value) < _HUGE:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return f"{value:.4g}".replace("-", MINUS)


def k_range(ks: Sequence[int], audited: Sequence[int]) -> str:
    """The values ``ks`` in words; "to" bridges only values that follow each other among the ``audited`` ones.

    >>> k_range([1], [1, 8]), k_range([8, 16, 32], [1, 8, 16, 32]), k_range([1, 2, 64], [1, 2, 4, 64])
    ('k = 1', 'k = 8 to 32', 'k = 1, 2 and 64')
    """
    return f"k = {ranges(ks, audited)}"


def ranges(values: Sequence[int], audited: Sequence[int]) -> str:
    """``values`` in words; "to" bridges only those that follow each other among the ``audited`` ones.

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
    """Parts joined by commas, the last one by ``last``.

    >>> listing(("a", "b", "c"))
    'a, b and c'
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"
