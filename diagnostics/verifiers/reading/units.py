"""Units of quantities. Two quantities with known units are equal only if their units are equal."""

from __future__ import annotations

import re
from types import MappingProxyType

_NAMES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "dm": "decimeter", "m": "meter metre",
    "km": "kilometer kilometre kilometres", "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "mg": "milligram", "g": "gram gm", "kg": "kilogram kilo", "ton": "tonne", "oz": "ounce", "lb": "pound lbs",
    "ml": "milliliter millilitre", "l": "liter litre", "gal": "gallon", "pt": "pint", "qt": "quart", "cup": "cup",
    "ms": "millisecond", "s": "sec second", "min": "minute mins", "h": "hr hour hrs", "day": "day", "week": "week wk",
    "month": "month", "year": "yr year yrs", "deg": "degree °", "rad": "radian",
    "celsius": "°c", "fahrenheit": "°f", "bit": "bit", "byte": "byte", "kb": "kilobyte", "mb": "megabyte",
    "gb": "gigabyte", "tb": "terabyte",
    "dollar": "dollar usd buck $", "cent": "cent ¢ penny pennie pence", "euro": "euro eur €", "£": "gbp £",
    "n": "newton", "j": "joule", "w": "watt", "kw": "kilowatt", "hz": "hertz", "k": "kelvin", "pa": "pascal",
    "mph": "mph", "acre": "acre", "hectare": "hectare ha", "am": "am", "pm": "pm",
}  # fmt: skip
#: Names of units, in lower case and singular → canonical name.
UNITS = MappingProxyType({alias: unit for unit, names in _NAMES.items() for alias in (unit, *names.split())})

_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox|operatorname|rm)\s*\{([^{}]*)\}")
_TAIL = re.compile(r"(?:[\d})\]]|\\pi)[\s~]*(?P<unit>[A-Za-z°$€£¢][A-Za-z°$€£¢./ \s^{}\d²³-]*)$")
_CURRENCY = re.compile(r"^\s*-?\s*\\?([$€£])\s*[-\d.]")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]{2,}|[hms])\b\.?")
_AMOUNTS = re.compile(rf"{_AMOUNT.pattern}(?:\s*(?:,\s*and|,|and)?\s*{_AMOUNT.pattern})+")
#: Letters that math-verify drops as a unit at the end of an answer, after a digit, a brace or a space, and their
#: plurals.
DROPPED = frozenset(
    str.split("""
ab am are bc by c cc cm d day deg dm ft g gal gm h hr kg km kmh l lb lt m man men min mm mp mph mt mtr o ohm per
pie pm rd rs s sec sq st sue t th toy way yr
""")
)
_DROPPED = re.compile(rf"(?P<head>.*[\d}}\s])(?P<letters>(?:{'|'.join(sorted(DROPPED))})(?:s|es)?)", re.DOTALL)
_NUMBER = re.compile(r"-?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?|-?\\[dt]?frac\{\d+\}\{\d+\}")
_APART = re.compile(rf"(?P<number>{_NUMBER.pattern})[\s~]+(?P<unit>[A-Za-z][A-Za-z²³^{{}}\d/ ]*)")
_POWER = re.compile(r"(?:\^\{?([23])\}?|([²³])|\b(squared|cubed))\s*$")
_POWERS = {"2": 2, "3": 3, "²": 2, "³": 3, "squared": 2, "cubed": 3, "square": 2, "sq": 2, "cubic": 3, "cu": 3}


def unit_of(quantity: str) -> str | None:
    r"""Return the unit at the end of a quantity, or of its currency sign; None if it is unknown.

    >>> unit_of(r"18\text{ cm}"), unit_of("18 square feet"), unit_of(r"\$18"), unit_of("18 pears"), unit_of("60 km/h")
    ('cm', 'ft^2', 'dollar', None, 'km/h')
    """
    plain = _TEXT.sub(r" \1", quantity.replace("\\ ", " ").replace("\\,", " ").replace("~", " "))
    plain = re.sub(r"\^\s*\{?\\(?:circ|degree)\}?|\\degree", " °", plain.replace("\\$", "$"))
    plain = re.sub(r"°\s*([CF])\b|\bdegrees?\s+(celsius|fahrenheit)\b", _temperature, plain)
    if (sign := _CURRENCY.match(plain)) is not None:
        return UNITS[sign[1]]
    match = _TAIL.search(plain.strip().rstrip("."))
    return _known_unit(match["unit"]) if match else None


def _temperature(scale: re.Match[str]) -> str:
    return f"°{scale[1]}" if scale[1] else scale[2]


def differ(left: str | None, right: str | None) -> bool:
    """Return whether two units are known and different. "deg" is compatible with every temperature.

    >>> differ("cm", "m"), differ("cm", None), differ("deg", "celsius"), differ("celsius", "fahrenheit")
    (True, False, False, True)
    """
    degrees = {"deg", "celsius", "fahrenheit"}
    return None not in (left, right) and left != right and not ("deg" in (left, right) and {left, right} <= degrees)


def without_unit(quantity: str) -> str:
    """Remove a known unit that is separated from a plain number, since math-verify reads it as variables.

    >>> without_unit("10 m/s"), without_unit("18 cm^2"), without_unit("10m/s"), without_unit("6 m/t")
    ('10', '18', '10m/s', '6 m/t')
    """
    match = _APART.fullmatch(quantity.strip())
    return match["number"] if match and len(match["unit"]) > 1 and _known_unit(match["unit"]) is not None else quantity


def amounts(text: str) -> tuple[tuple[str, str], ...] | None:
    r"""Return the numbers and units of a quantity in several units; None for any other answer.

    >>> amounts(r"5\text{ ft }3\text{ in}"), amounts("3 hours and 20 minutes"), amounts(r"18\text{ cm}")
    ((('5', 'ft'), ('3', 'in')), (('3', 'h'), ('20', 'min')), None)
    """
    plain = _TEXT.sub(r" \1 ", text.replace("\\ ", " ").replace("\\,", " ").replace("~", " ")).lower()
    if not _AMOUNTS.fullmatch(" ".join(plain.split())):
        return None
    return tuple((number, _single_unit(word) or word.removesuffix("s")) for number, word in _AMOUNT.findall(plain))


def protected(answer: str, *, algebra: bool) -> str:
    r"""Put last letters in brackets if math-verify would drop them as a unit, although they are variables.

    math-verify drops letters from ``x + t``, ``2ab`` and ``6t`` too. ``algebra``: the gold ends in a variable.

    >>> protected("x + t", algebra=False), protected("18 m", algebra=False), protected("18 m", algebra=True)
    ('x +(t)', '18 m', '18(m)')
    """
    match = _DROPPED.fullmatch(answer)
    if match is None or (not algebra and is_quantity(answer)):
        return answer
    return f"{match['head'].rstrip()}({match['letters']})"


def is_quantity(answer: str) -> bool:
    """Return whether an answer is a number with a known unit.

    A one-letter unit needs a space before it.

    >>> is_quantity("18 m"), is_quantity("18m"), is_quantity("18cm"), is_quantity("x m")
    (True, False, True, False)
    """
    match = _DROPPED.fullmatch(answer)
    if match is None or not _NUMBER.fullmatch(match["head"].strip()):
        return False
    letters = match["letters"].lower()
    is_unit = letters in UNITS or letters.removesuffix("s") in UNITS
    return is_unit and (len(letters) > 1 or match["head"][-1].isspace())


def is_algebra(gold: str) -> bool:
    """Return whether a gold ends in letters that math-verify would drop, although they are not a unit.

    >>> is_algebra("6t"), is_algebra("18 m"), is_algebra("42")
    (True, False, False)
    """
    return _DROPPED.fullmatch(gold) is not None and not is_quantity(gold)


def _known_unit(text: str) -> str | None:
    parts = [_single_unit(part) for part in re.split(r"\s*/\s*|\s+per\s+", text.strip().lower())]
    return None if None in parts else "/".join(part for part in parts if part)


def _single_unit(text: str) -> str | None:
    power = 1
    if (suffix := _POWER.search(text)) is not None:
        power = _POWERS[next(group for group in suffix.groups() if group)]
        text = text[: suffix.start()]
    words = text.replace(".", "").split()
    if len(words) == 2 and words[0] in ("square", "sq", "cubic", "cu"):
        power, words = _POWERS[words[0]], words[1:]
    if len(words) != 1:
        return None
    name = UNITS.get(words[0]) or UNITS.get(words[0].removesuffix("s"))
    return name if name is None or power == 1 else f"{name}^{power}"
