"""Normalise notations of arithmetic: LaTeX, signs, units, thousands separators."""

from __future__ import annotations

import re

#: Longer texts are read only at the beginning and the end, in characters.
MOST_CHARACTERS, END_CHARACTERS = 49_152, 16_384

_ONE_FOR_ONE = str.maketrans(
    {"×": "*", "·": "*", "∙": "*", "÷": "/", "−": "-", "–": "-", "≈": "=", "≤": "=", "≥": "=", "<": "=", ">": "=",
     "$": "", "&": "", "²": "^2 ", "³": "^3 ", "°": "", "π": "\\pi ", "⇒": ";", "→": ";", "\t": " ", "⋅": "*", "∗": "*",
     "✕": "*", "≦": "=", "≧": "=", "€": "", "£": "", "¥": "", "，": ";", "；": ";",
     **{chr(ord(sign) + 0xFEE0): sign for sign in "0123456789()*+-./<=>%"}, "＜": "=", "＞": "="}
)  # fmt: skip
#: Their ASCII part: one replacement each is faster than a table.
_OF_ASCII = tuple((sign, other) for code, other in _ONE_FOR_ONE.items() if (sign := chr(code)).isascii())
_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox|operatorname)\s?\{[^{}]{0,200}\}")
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]{0,40}\}|\w)")
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])")
_COMMANDS = {
    "times": "*", "cdot": "*", "ast": "*", "div": "/", "approx": "=", "leq": "=", "geq": "=", "le": "=", "ge": "=",
    "lt": "=", "gt": "=", "equiv": "=", "dfrac": "\\frac ", "tfrac": "\\frac ", "cfrac": "\\frac ", "frac": "\\frac ",
    "sqrt": "\\sqrt ", "pi": "\\pi ", "binom": "\\binom ", "dbinom": "\\binom ", "implies": ";", "Rightarrow": ";",
    "quad": ";", "qquad": ";", "\\": ";", "%": "%", "left": "", "right": "", "big": "", "Big": "", "bigl": "",
    "bigr": "", "circ": "", "degree": "", "angle": "", "triangle": "", "boxed": "", "displaystyle": "", "$": "",
    ",": "", "!": "", " ": "", ";": "", ":": "", "(": ";", ")": ";", "[": ";", "]": ";", "{": "(", "}": ")",
}  # fmt: skip
_EMPTY_POWER = re.compile(r"\^(?:\{ ?\}| )?(?=[\s=+*/;.,)}-]|$)")
# Patterns with a look-behind begin with the sign itself, which the search finds much faster than the text before it or
# one of several alternatives.
_TIMES = re.compile(r"[xX](?:(?<=[\d)%][xX])|(?<=[\d)%a-z] [xX]))(?= ?[\d(])")
#: Words after a number that are not units: they separate equations.
_LINKS = r"(?!(?:x|so|and|or|then|thus|hence|is|are|was|gives?|which|because|since|when|if|while|but|therefore|to)\b)"
#: In other scripts a single letter is a unit too, not an unknown.
_OTHER = "À-ÖØ-öø-žͰ-ӿ぀-ヿ一-鿿가-힣"
_UNIT = re.compile(
    rf"([\d)%}}])[ ]?{_LINKS}(?:[A-Za-z{_OTHER}’'-]{{2,20}}|[{_OTHER}])"
    rf"(?:[ ]{_LINKS}[|A-Za-z{_OTHER}’'-]{{1,20}}){{0,3}}(?:/[A-Za-z{_OTHER}]{{1,20}}){{0,2}}"
    r"(?=[ ]?[-+*/=)])"
)
_PER_UNIT = re.compile(r"/(?<=[\d)%}]/)[A-Za-z]{2,20}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?: \d{3})+(?![\d.])")
_AFTER_DIGIT = re.compile(r" \d{3}(?<=\d \d{3})")
_ARTICLE = re.compile(r"[aAI](?<!\w[aAI])(?= [A-Za-z]{2})")
RELATION = re.compile(r"[=≈<>≤≥＝＜＞≦≧\\](?:(?<!\\)|(?:approx|[lg]eq?\b))")


def in_one_notation(text: str) -> str:
    r"""Return the lines of a text that state a relation, in plain signs.

    ``=`` for all relations, ``*``, no units.

    The LaTeX commands ``\\frac``, ``\\sqrt``, ``\\binom`` and ``\\pi`` stay; others separate the text around them.

    >>> in_one_notation("We have \\(3 \\times 12 \\text{ eggs} \\approx 36\\).\nSo much.")
    'We have ;3 * 12  = 36;.'
    """
    if len(text) > MOST_CHARACTERS + END_CHARACTERS:
        text = text[:MOST_CHARACTERS] + "\n" + text[-END_CHARACTERS:]
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    text = "\n".join([line for line in text.split("\n") if RELATION.search(line)])
    text = text.replace("**", "^")
    if text.isascii():
        for sign, other in _OF_ASCII:
            text = text.replace(sign, other)
    else:
        text = text.translate(_ONE_FOR_ONE)
    if "\\" in text:
        text = _TEXT.sub("", text)
        text = _COMMAND.sub(lambda match: _COMMANDS.get(match.group(1), ";"), text)
        text = _EMPTY_POWER.sub("", text)
    if "_" in text:
        text = _SUBSCRIPT.sub("", text)
    if _AFTER_DIGIT.search(text):
        text = _THOUSANDS.sub(lambda match: match.group().replace(" ", ""), text)
    text = _ARTICLE.sub("|", text)  # articles are not unknowns
    return _UNIT.sub(r"\1", _PER_UNIT.sub("", _TIMES.sub("*", text)))
