r"""Tables of rewrites that unify mathematical notation before math-verify parses it.

Each has an example. ``TYPOGRAPHY`` removes differences in appearance, from every gold and stated answer, before all
other rules. ``NOTATION`` turns the notation of programs and people into LaTeX that math-verify can parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

#: LaTeX commands for text. Their content is words.
_TEXT_COMMANDS = "textnormal|textup|textsf|textsc|textsl|textmd|textit|textbf|textrm|emph|mbox|hbox"
#: LaTeX commands that change the appearance of mathematics. Only their content matters.
_LOOKS = "mathsf|mathbf|mathtt|mathit|mathnormal|boldsymbol|bm|pmb|underline|uline|ensuremath|mathstrut"
#: LaTeX switches, which change the appearance of all text after them.
_SWITCHES = (
    "displaystyle|textstyle|scriptstyle|bfseries|itshape|rmfamily|sffamily|bf|it|sf|tt|rm|cal|tiny|scriptsize"
    "|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|boldmath|limits|nolimits"
)
_FUNCTIONS = (
    "arcsin|arccos|arctan|arcsec|sinh|cosh|tanh|coth|sin|cos|tan|cot|sec|csc|ln|log|exp|gcd|lcm|max|min|det|deg|mod"
)
_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|sigma|omega|phi|psi|rho|tau|zeta|Delta|Omega|Gamma|Theta"
_GROUP = r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A rule that replaces ``pattern`` by ``to``; ``example`` is an answer before and after the whole table."""

    name: str
    pattern: str
    to: str | Callable[[re.Match[str]], str]
    example: tuple[str, str]


def _constant(match: re.Match[str]) -> str:
    """Return an upright letter, separated from a command before it."""
    before = match.string[: match.start()]
    return f" {match[1]}" if re.search(r"\\[A-Za-z]+$", before) else match[1]


def _looks(match: re.Match[str]) -> str:
    raised = match.string[: match.start()].rstrip()[-1:] in ("^", "_")
    return f"{{{match[1]}}}" if raised else match[1]


def _operator(match: re.Match[str]) -> str:
    return rf"\{match[1]} " if re.fullmatch(_FUNCTIONS, match[1].strip()) else rf"\text{{{match[1]}}}"


def _environment(match: re.Match[str]) -> str:
    is_column = match["name"].startswith("array") and "&" in match["content"]
    return match[0] if is_column else match["content"].replace("&", "")


def _interval(match: re.Match[str]) -> str:
    """Rewrite an interval whose open ends have reversed brackets."""
    left, right = match["left"], match["right"]
    if (left, right) == ("[", "]"):
        return match[0]
    return f"{'(' if left == ']' else '['}{match['inner'].replace(';', ',')}{')' if right == '[' else ']'}"


TYPOGRAPHY: tuple[Rewrite, ...] = (
    Rewrite(
        name="environment of one line",
        pattern=r"\\begin\s*\{(?P<name>aligned|align\*?|gathered|gather\*?|split|equation\*?|array(?=\}\s*\{))\}"
        r"(?:(?<=array\})\s*\{[^{}]*\})?\s*(?P<content>(?:(?!\\\\|\\begin).)*?)\s*(?:\\\\)?\s*\\end\s*\{(?P=name)\}",
        to=_environment,
        example=(r"\begin{aligned}x &= 7\end{aligned}", "x = 7"),
    ),
    Rewrite(
        name="open interval with reversed brackets",
        pattern=r"(?:\\left\s*)?(?P<left>[\[\]])(?P<inner>\s*[^\[\](),;]+[,;]\s*[^\[\](),;]+?)(?:\\right\s*)?(?P<right>[\[\]])",
        to=_interval,
        example=("]-1, 1[", "(-1, 1)"),
    ),
    Rewrite(
        name="currency sign before a number",
        pattern=r"^\s*(-?)\s*(?:Rs\.?|INR|[₹₽₩₺₫₴₪]|CHF|USD|EUR|GBP|CAD|AUD|JPY|RMB|CNY|(?:[ACRS]|HK|NT|NZ|Mex)\\?\$)\s*(?=\d)",
        to=r"\1",
        example=("Rs. 7", "7"),
    ),
    Rewrite(
        name="explanation in brackets",
        pattern=r"(?<=[\d}\])$])\s+\([^()=]*=[^()]*\)\s*$",
        to="",
        example=("7 (= 5 + 2)", "7"),
    ),
    Rewrite(
        name="spaces",
        pattern=r"\\(?:hspace|hskip|hphantom|phantom)\*?\s*\{[^{}]*\}|\\(?:quad|qquad|enspace|thinspace|enskip)(?![A-Za-z])"
        r"|(?<!\\)\\[,;: ](?!\d{3})|~|[\u00a0\u2007\u2009\u202f]",
        to=" ",
        example=(r"5~\text{cm}", r"5 \text{cm}"),
    ),
    Rewrite(name="trailing punctuation", pattern=r"(?:\s*(?:[,;]|\\\\))+\s*$", to="", example=(r"72,\\", "72")),
    Rewrite(name="invisible", pattern=r"\\!|[\u200b\u200c\u200d\u2060\ufeff]", to="", example=(r"1,\!234", "1,234")),
    Rewrite(name="grouping comma", pattern=r"(?<=\d)\{,\}(?=\d)", to=",", example=("1{,}234", "1,234")),
    Rewrite(
        name="colour",
        pattern=rf"\\(?:text|math)?color(?:box)?\s*(?:\[[^\[\]]*\])?\s*\{{[^{{}}]*\}}\s*(?:{_GROUP})?",
        to=lambda match: match[1] or "",
        example=(r"\textcolor{red}{13}", "13"),
    ),
    Rewrite(
        name="roman switch", pattern=r"\{\s*\\rm\s+([^{}]*)\}", to=r"\\text{\1}", example=(r"5{\rm cm}", r"5\text{cm}")
    ),
    Rewrite(
        name="switch in braces",
        pattern=rf"\{{\s*\\(?:{_SWITCHES})(?![A-Za-z])\s*([^{{}}]*)\}}",
        to=_looks,
        example=(r"{\bf 13}", "13"),
    ),
    Rewrite(
        name="roman unit",
        pattern=r"(?<=\d)\s*\\rm\s+([A-Za-z]{2,})\s*$",
        to=r" \\text{\1}",
        example=(r"5 \rm cm", r"5 \text{cm}"),
    ),
    Rewrite(name="switch", pattern=rf"\\(?:{_SWITCHES})(?![A-Za-z])\s*", to="", example=(r"\Large{13}", "13")),
    Rewrite(name="typewriter number", pattern=r"\\texttt\s*\{(-?[\d.,/]+)\}", to=r"\1", example=(r"\texttt{13}", "13")),
    Rewrite(name="font command", pattern=rf"\\(?:{_LOOKS})\s*{_GROUP}", to=_looks, example=(r"\boldsymbol{13}", "13")),
    Rewrite(
        name="text command",
        pattern=rf"\\(?:{_TEXT_COMMANDS})\s*(?=\{{)",
        to=r"\\text",
        example=(r"\textbf{(B)}", r"\text{(B)}"),
    ),
    Rewrite(
        name="operator",
        pattern=r"\\operatorname\*?\s*\{([^{}]*)\}",
        to=_operator,
        example=(r"5\operatorname{cm}", r"5\text{cm}"),
    ),
    Rewrite(
        name="words before a colon",
        pattern=r"^\s*\\text\s*\{\s*[A-Za-z ]{1,30}[:=]\s*\}\s*",
        to="",
        example=(r"\text{Total: }42", "42"),
    ),
    Rewrite(
        name="number in text",
        pattern=r"^\s*\\(?:text|mathrm)\s*\{\s*(-?\d[\d.,/]*)\s*(\\?%)?\s*((?!(?:st|nd|rd|th)\b|(?![mgshlLdJNWVAKCF]\b)[A-Za-z]\b)[^\W\d_(²³¹][^{}]*?)?\s*\}\s*$",
        to=lambda match: f"{match[1]}{match[2] or ''}" + (rf" \text{{{match[3]}}}" if match[3] else ""),
        example=(r"\text{42 apples}", r"42 \text{apples}"),
    ),
    Rewrite(
        name="equation in text",
        pattern=r"^\s*\\text\s*\{\s*([A-Za-z]\s*=\s*-?\d[\d.,/]*)\s*\}\s*$",
        to=r"\1",
        example=(r"\text{x = 42}", "x = 42"),
    ),
    Rewrite(
        name="number alone in text",
        pattern=r"^\s*\\text\s*\{\s*(-?\d[\d.,/]*)\s*\}",
        to=r"\1",
        example=(r"\text{42}\text{ cm}", r"42\text{ cm}"),
    ),
    Rewrite(
        name="numbers in text",
        pattern=r"^\s*\\text\s*\{\s*(-?\d[^{}A-Za-z\\]*|-?\d+\s*[Rr]\.?\s*\d+)\s*\}\s*$",
        to=r"\1",
        example=(r"\text{4:1}", "4:1"),
    ),
    Rewrite(
        name="unit symbol", pattern=r"(?<=\d)\s*(?:[€£¥₹₽ΩΩ]|[µμ][A-Za-z])\s*\.?\s*$", to="", example=("73 €", "73")
    ),
    Rewrite(name="pi in text", pattern=r"\\text\s*\{\s*pi\s*\}", to=r"\\pi", example=(r"6\text{ pi}", r"6\pi")),
    Rewrite(
        name="upright constant",
        pattern=r"\\(?:mathrm|text|rm)\s*\{\s*(e|i|d(?=\s*\}\s*[A-Za-z\\]))\s*\}",
        to=_constant,
        example=(r"3+2\mathrm{i}", "3+2i"),
    ),
    Rewrite(
        name="degree",
        pattern=r"\s*(?:\{\s*\}\s*)?(?:\^\s*\{\s*\\(?:circ|degree)\s*\}|\^\s*\\(?:circ|degree)(?![A-Za-z])|\\(?:degree|textdegree)"
        r"(?![A-Za-z])|[°º˚])",
        to=r"^\\circ",
        example=("30°", r"30^\circ"),
    ),
    Rewrite(name="degrees Celsius", pattern="℃", to=r"^\\circ C", example=("25℃", r"25^\circ C")),
    Rewrite(name="degrees Fahrenheit", pattern="℉", to=r"^\\circ F", example=("77℉", r"77^\circ F")),
    Rewrite(
        name="arrow or equals sign at the start",
        pattern=r"^\s*(?:=(?!=)|[-=]>|[→⇒➜➔]|\\(?:to|rightarrow|Rightarrow|implies|longrightarrow)(?![A-Za-z]))\s*(?=\S)",
        to="",
        example=(r"\rightarrow 7", "7"),
    ),
    Rewrite(
        name="ordinal",
        pattern=r"(?<=\d)(?:\s*\^\s*)?\{?\s*(?:\\(?:text|mathrm)\s*\{)?(?:st|nd|rd|th)\s*\}{0,2}(?=\s*(?:$|[.,;]))",
        to="",
        example=(r"12^{\text{th}}", "12"),
    ),
    Rewrite(
        name="ordinal of something",
        pattern=r"(?<=\d)\s*\^\s*\{?\s*\\(?:text|mathrm)\s*\{(st|nd|rd|th)\s*\}{1,2}(?=\s*\\text)",
        to=r"\1",
        example=(r"12^{\text{th}}\text{ prime}", r"12th\text{ prime}"),
    ),
    Rewrite(
        name="fraction in Chinese",
        pattern=r"(\d+)\s*(?:分之|分の|분의)\s*(\d+)",
        to=r"\\frac{\2}{\1}",
        example=("4分之1", r"\frac{1}{4}"),
    ),
    Rewrite(
        name="per cent",
        pattern=r"(?<=[\d}\]$)])\s*(?:\\text\s*\{\s*)?(?:\\?%|％|(?:percent|per cent|pct)\b\.?)\s*\}?"
        r"(?! *(?:of|less|more)\b)",
        to=r"\\%",
        example=(r"12.5 \text{ percent}", r"12.5\%"),
    ),
    Rewrite(
        name="label in a box",
        pattern=r"^\s*(?:\\text\s*\{\s*)?(?:the\s+)?(?:(?:final|correct)\s+)?(?:answer|result)\s*(?:is\s*:?|:|=)\s*\}\s*:?\s*",
        to="",
        example=(r"\text{Final answer: }13", "13"),
    ),
    Rewrite(
        name="label in text",
        pattern=r"^\s*\\text\s*\{\s*(?:the\s+)?(?:(?:final|correct)\s+)?(?:answer|result)\s*(?:is\s*:?|:|=)\s*(?=[^\s}])",
        to=r"\\text{",
        example=(r"\text{Answer: G}", r"\text{G}"),
    ),
    Rewrite(
        name="dots",
        pattern=r"\\(?:dots[bcimo]?|cdots|hdots)(?![A-Za-z])|…|(?<=[,:+\s])\s*\.\.\.(?=\s*(?:[,:+\s]|$))",
        to=r"\\ldots",
        example=("1,2,...,n", r"1,2,\ldots,n"),
    ),
)


def _replace_calls(answer: str, name: str, opening: str, closing: str) -> str:
    """Replace ``name(…)`` by ``opening … closing`` if its brackets balance."""
    pattern = re.compile(rf"(?<![A-Za-z\\])\\?{name}\s*\(")
    position = 0
    while (match := pattern.search(answer, position)) is not None:
        depth, end = 1, match.end()
        while end < len(answer) and depth:
            depth += (answer[end] == "(") - (answer[end] == ")")
            end += 1
        if depth:
            break
        inner = answer[match.end() : end - 1]
        answer = f"{answer[: match.start()]}{opening}{inner}{closing}{answer[end:]}"
        position = match.start() + len(opening)
    return answer


def _power(match: re.Match[str]) -> str:
    return f"^{{{match[1]}}}"


NOTATION: tuple[Rewrite, ...] = (
    Rewrite(
        name="power of ten",
        pattern=r"(?<=\d)\s*[xX×]\s*(?=10\s*(?:\^|\*\*))",
        to=r" \\times ",
        example=("1.8 x 10^3", r"1.8 \times 10^3"),
    ),
    Rewrite(name="underscores", pattern=r"(?<=\d)_(?=\d{3}(?!\d))", to="", example=("1_800", "1800")),
    Rewrite(
        name="fraction",
        pattern=r"\\(?:nicefrac|sfrac|cfrac)(?![A-Za-z])",
        to=r"\\frac",
        example=(r"\sfrac{1}{2}", r"\frac{1}{2}"),
    ),
    Rewrite(name="US dollars", pattern=r"^US\s*(?=\\?\$)", to="", example=("US$18", "$18")),
    Rewrite(name="power of a bracket", pattern=r"\*\*\s*\(([^()]*)\)", to=_power, example=("2**(1/4)", "2^{1/4}")),
    Rewrite(name="power", pattern=r"\*\*\s*(-?\w+(?:\.\d+)?)", to=_power, example=("x**2", "x^{2}")),
    Rewrite(name="long exponent", pattern=r"\^\s*(-?\d{2,}|-\d)(?![\d.])", to=_power, example=("2^10", "2^{10}")),
    Rewrite(name="root", pattern=r"(?<![A-Za-z\\])\\?sqrt\s*(\d+)", to=r"\\sqrt{\1}", example=("sqrt3", r"\sqrt{3}")),
    Rewrite(
        name="log to a base",
        pattern=r"(?<![A-Za-z\\])log_?(2|10)\s*(?=\()",
        to=r"\\log_{\1}",
        example=("log2(8)", r"\log_{2}(8)"),
    ),
    Rewrite(
        name="inverse function",
        pattern=r"(?<![A-Za-z\\])(?:a|arc)(sin|cos|tan)(?=\s*[(\d\\])",
        to=r"\\arc\1 ",
        example=("asin(1)", r"\arcsin (1)"),
    ),
    Rewrite(
        name="function",
        pattern=rf"(?<![A-Za-z\\])({_FUNCTIONS})(?=\s*[(\d\\]|\s+[a-z]\b)",
        to=r"\\\1 ",
        example=("sin(x)", r"\sin (x)"),
    ),
    Rewrite(
        name="function before a slash",
        pattern=rf"\\({_FUNCTIONS})(?![A-Za-z])((?:_\{{?\w+\}}?|\^\{{?\w+\}}?)*)\s*"
        rf"(?:\{{(?P<group>[^{{}}]*)\}}|(?P<token>\d+(?:\.\d+)?[a-z]?|[a-z]|\\sqrt\s*\{{[^{{}}]*\}}"
        rf"|\\(?:{_GREEK})(?![A-Za-z])))"
        r"\s*(?=/)",
        to=lambda match: rf"\{match[1]}{match[2]}({match['group'] or match['token']})",
        example=(r"\ln 9/\ln 3", r"\ln(9)/\ln 3"),
    ),
    Rewrite(name="pi", pattern=r"(?<![A-Za-z\\])[pP]i(?![A-Za-z])|π", to=r"\\pi ", example=("2*pi", r"2*\pi ")),
    Rewrite(
        name="Greek letter",
        pattern=rf"(?<![A-Za-z\\])({_GREEK})(?![A-Za-z])",
        to=r"\\\1 ",
        example=("theta", r"\theta "),
    ),
    Rewrite(
        name="infinity",
        pattern=r"(?<![A-Za-z\\])(?:oo|inf|infty|Infinity)(?![A-Za-z])|∞",
        to=r"\\infty ",
        example=("(2, oo)", r"(2, \infty )"),
    ),
    Rewrite(name="at most", pattern="<=|≤|⩽", to=r"\\le ", example=("x<=3", r"x\le 3")),
    Rewrite(name="at least", pattern=">=|≥|⩾", to=r"\\ge ", example=("x>=3", r"x\ge 3")),
    Rewrite(name="product sign", pattern="[×·⋅∙]", to=r"\\cdot ", example=("2·3", r"2\cdot 3")),
    Rewrite(name="division sign", pattern="÷", to="/", example=("6÷3", "6/3")),
    Rewrite(name="minus sign", pattern="[−–‐‑‒﹣](?=\\s*[\\d\\\\A-Za-z(.])", to="-", example=("−3", "-3")),
    Rewrite(name="plus a negative", pattern=r"\+\s*-\s*(?=[\d.A-Za-z\\])", to="- ", example=("6 + -1i", "6 - i")),
    Rewrite(
        name="trailing zeros",
        pattern=r"(?<![\d.])(\d+)\.(?:(\d*?[1-9])0+|0+)(?![\d.])",
        to=lambda match: f"{match[1]}.{match[2]}" if match[2] else match[1],
        example=("12.50", "12.5"),
    ),
    Rewrite(name="coefficient 1 of i", pattern=r"(?<![\d.])1(?=i(?![A-Za-z]))", to="", example=("6 - 1.0i", "6 - i")),
    Rewrite(
        name="set by a condition",
        pattern=r"^\s*(?:[A-Za-z]\s*\\in\s*)?\\?\{\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid|\\vert|\\colon|\||:)\s*(.*?)\s*\\?\}\s*$",
        to=r"\1",
        example=(r"\{x \mid x>2\}", "x>2"),
    ),
    Rewrite(
        name="all real numbers",
        pattern=r"^\s*(?:[A-Za-z]\s*\\in\s*)?(?:\\text\s*\{\s*)?(?:the set of )?(?:all )?(?:the )?reals?(?: numbers)?"
        r"\s*\.?\}?\s*$"
        r"|^\s*[A-Za-z]\s*\\in\s*\\mathbb\s*\{?R\}?\s*$|^\s*(?:\\R|ℝ|\\mathbf\{R\}|\\Reals)\s*$",
        to=r"\\mathbb{R}",
        example=(r"\text{All real numbers}", r"\mathbb{R}"),
    ),
    Rewrite(
        name="approximation sign",
        pattern=r"^\s*(?:\\(?:approx|simeq|sim)(?![A-Za-z])|≈|~)\s*",
        to="",
        example=(r"\approx 5", "5"),
    ),
)


def _compile(table: tuple[Rewrite, ...]) -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
    flags = {"all real numbers", "per cent", "label in a box", "label in text"}
    return tuple((re.compile(rule.pattern, re.IGNORECASE if rule.name in flags else 0), rule.to) for rule in table)


_TYPOGRAPHY, _NOTATION = _compile(TYPOGRAPHY), _compile(NOTATION)
#: An answer without a match of this pattern is not changed by ``TYPOGRAPHY``. This test is cheap, and most answers need
#: no rule.
_LOOKS_OTHER = re.compile(
    r"[\\%~{]|^\s*\]|\[\s*$|^\s*-?[A-Z][A-Za-z]{0,2}[.\s]*\$?\s*\d|\s\([^()=]*=|[^\x00-\x7f]|^\s*[-=]?[=>]|\d(?:st"
    r"|nd|rd"
    r"|th)|answer|result|percent|per cent|pct|\.\.\.|[,;]\s*$",
    re.IGNORECASE,
)
#: Longest answer that is changed, in characters. Longer ones are runaway text.
_LONGEST = 2000
_PLAIN = re.compile(r"-?\d+|[A-Za-z]", re.ASCII)


@lru_cache(maxsize=1 << 16)
def typeset(answer: str) -> str:
    r"""Apply ``TYPOGRAPHY``, which removes differences in appearance.

    >>> typeset(r"\textcolor{red}{\bf 12.5\,\%}"), typeset(r"\mathrm{e}^2"), typeset("135°")
    ('12.5\\%', 'e^2', '135^\\circ')
    """
    if _PLAIN.fullmatch(answer) or len(answer) > _LONGEST:
        return answer
    if _LOOKS_OTHER.search(answer) is None:
        return answer.strip()
    for pattern, to in _TYPOGRAPHY:
        answer = pattern.sub(to, answer)
    return _without_braces(answer.strip())


@lru_cache(maxsize=1 << 16)
def as_latex_notation(answer: str) -> str:
    r"""Apply ``NOTATION``, which rewrites an answer as LaTeX for math-verify.

    >>> as_latex_notation("(1 + sqrt(5))/2"), as_latex_notation("2**4"), as_latex_notation("exp(2)")
    ('(1 + \\sqrt{5})/2', '2^{4}', 'e^{2}')
    """
    if _PLAIN.fullmatch(answer) or len(answer) > _LONGEST:
        return answer
    for name, opening, closing in (
        ("sqrt", r"\sqrt{", "}"),
        ("cbrt", r"\sqrt[3]{", "}"),
        ("exp", "e^{", "}"),
        ("abs", "|", "|"),
    ):
        if name in answer:
            answer = _replace_calls(answer, name, opening, closing)
    for pattern, to in _NOTATION:
        answer = pattern.sub(to, answer)
    return answer


def same_notation(left: str, right: str) -> bool:
    r"""Return whether two answers have the same ``notation_key``.

    >>> same_notation(r"a \equiv 1 \pmod 4", r"a\equiv1\pmod{4}"), same_notation("42 43", "4243")
    (True, False)
    """
    return notation_key(left) == notation_key(right)


@lru_cache(maxsize=1 << 14)
def notation_key(answer: str) -> str:
    r"""Return an answer in canonical notation.

    Rewrites are applied, spaces are kept only between two numbers, and braces around a single character are removed.

    >>> notation_key(r"x^{2} + 1"), notation_key("x**2+1")
    ('x^2+1', 'x^2+1')
    """
    answer = as_latex_notation(typeset(answer))
    answer = re.sub(r"\\(?:left|right|big|Big|bigl|bigr)(?![A-Za-z])", "", answer)
    answer = re.sub(r"\\(?:leq|leqslant|le)(?![A-Za-z])", r"\\le", answer)
    answer = re.sub(r"\\(?:geq|geqslant|ge)(?![A-Za-z])", r"\\ge", answer)
    answer = re.sub(r"\\[dt](?=frac)", r"\\", answer)
    answer = re.sub(r"(?<!\d)[\s$]+|[\s$]+(?!\d)", "", answer)
    return re.sub(r"\{(\w)\}", r"\1", answer).removesuffix(".")


def _without_braces(answer: str) -> str:
    """Remove braces around the whole answer."""
    while answer.startswith("{") and answer.endswith("}"):
        depth = 0
        for position, sign in enumerate(answer):
            depth += (sign == "{") - (sign == "}")
            if depth == 0 and position < len(answer) - 1:
                return answer
        answer = answer[1:-1].strip()
    return answer
