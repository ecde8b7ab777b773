"""Format counts, times and sizes for messages and reports."""

from __future__ import annotations


def plural(count: int, singular: str, many: str | None = None) -> str:
    """Return a count with its noun, with commas between thousands. ``many`` is an irregular plural.

    >>> plural(1, "problem"), plural(0, "sample"), plural(12_000, "series", "series")
    ('1 problem', '0 samples', '12,000 series')
    """
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def rounds_text(first: int, n: int) -> str:
    """Return the rounds of a stopping rule that double from ``first`` up to ``n`` samples.

    >>> rounds_text(16, 16), rounds_text(16, 48), rounds_text(16, 256)
    ('one round of 16', 'rounds of 16, 32 and 48', 'rounds of 16, 32, … up to 256')
    """
    ends = [first]
    while ends[-1] < n:
        ends.append(min(2 * ends[-1], n))
    if len(ends) == 1:
        return f"one round of {first}"
    if len(ends) > 3:
        return f"rounds of {first}, {2 * first}, … up to {n}"
    return f"rounds of {', '.join(map(str, ends[:-1]))} and {n}"


def short_count(count: float) -> str:
    """Return a count to three digits with a unit prefix.

    >>> short_count(850), short_count(1_536_000), short_count(3.07e10), short_count(2.5e16)
    ('850', '1.54 M', '30.7 G', '25,000 T')
    """
    if count >= 0.9995e15:
        return f"{count / 1e12:,.0f} T"
    for unit, scale in ((" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if count >= 0.9995 * scale:
            return f"{count / scale:#.3g}".rstrip(".") + unit
    return f"{count:.0f}"


def about_count(expected: float) -> str:
    """Return an expected count, which may be fractional, in words.

    >>> about_count(1.26), about_count(0.02)
    ('about 1.3', 'fewer than 0.1')
    """
    return f"about {expected:,.1f}" if expected >= 0.1 else "fewer than 0.1"


def two_digits(number: float) -> str:
    """Return a positive number to two digits: no decimals from 10 on, and no exponent.

    >>> two_digits(0.0042), two_digits(3.14159), two_digits(1234.5), two_digits(4e-5)
    ('0.0042', '3.1', '1,234', '<0.0001')
    """
    if 0 < number < 1e-4:
        return "<0.0001"
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


def p_value_text(p: float | None) -> str:
    """Return a p value as printed in tables of two checkpoints; empty if none was computed.

    >>> p_value_text(None), p_value_text(1e-9), p_value_text(0.04217)
    ('', '<0.0001', '0.042')
    """
    if p is None:
        return ""
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def about_time(seconds: float) -> str:
    """Return a duration in minutes, hours (from 2 hours) or days (from 2 days).

    >>> about_time(2), about_time(41), about_time(5_000), about_time(20_000), about_time(600_000)
    ('less than 1 min', 'about 1 min', 'about 84 min', 'about 5.6 h', 'about 6.9 days')
    """
    if seconds < 30:
        return "less than 1 min"
    if seconds < 2 * 3600:
        return f"about {-(-seconds // 60):.0f} min"
    return f"about {seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"about {seconds / 86400:.1f} days"


def disk_size(n_bytes: float) -> str:
    """Return a disk size in decimal units.

    >>> disk_size(41_000_000), disk_size(2_140_000_000), disk_size(1.7e11), disk_size(2.5e12), disk_size(300_000)
    ('41 MB', '2.1 GB', '170 GB', '2.5 TB', 'less than 1 MB')
    """
    if n_bytes < 1e6:
        return "less than 1 MB"
    if n_bytes < 0.9995e9:
        return f"{n_bytes / 1e6:.0f} MB"
    number, unit = (n_bytes / 1e9, "GB") if n_bytes < 0.9995e12 else (n_bytes / 1e12, "TB")
    return f"{number:.1f} {unit}" if number < 99.95 else f"{number:,.0f} {unit}"
