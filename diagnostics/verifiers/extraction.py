"""Cheap, pure rules that extract the final answer from a response, without parsing mathematics."""

from __future__ import annotations

import re

_BRACE = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_PLAIN_BOX = re.compile(r"\\boxed\{([^{}\\]*)\}")
_HASHES = re.compile(r"^[ \t]*####(.*)$", re.MULTILINE)
#: Markdown headings, which may also begin with four hashes: "#### Step 10: check", "#### Final Answer".
_HEADING = re.compile(
    r"[\s*_]*(?:(?:step|case|part|section|problem|question|example|stage|phase|method|approach"
    r"|sub-?problem)\s+"
    r"(?:\d+|[ivx]+\b|[a-z]\b)|(?:final |the )?(?:answer|result|solution)\W*$|(?:conclusion|check|verification"
    r"|explanation|summary"
    r"|reasoning|analysis|calculation|proof|final step)\b|\d+[.)]\s+[A-Za-z])",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+")
#: Two letters in a row, or a letter of another script; Greek letters are mathematics.
_WORD = re.compile(r"[A-Za-z]{2,}|[^\W\d_A-Za-zͰ-Ͽºª°²³¹¼-¾⅐-⅞]")
#: The answer field in JSON or a printed Python dict, with its value: a text, a list or a word.
_JSON_ANSWER = re.compile(
    r"""[{,]\s*["'](?:final[ _]?)?answer["']\s*:\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|\[(?P<list>[^\[\]]*)\]|(?P<bare>[^\s,{}\[\]"']+))\s*[,}]""",
    re.IGNORECASE,
)
_OPENERS = ("$", "\\(", "\\[", "**", "`")
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))


def collapse_whitespace(text: str) -> str:
    """Strip, and replace every run of whitespace with a single space.

    >>> collapse_whitespace("  6 *\\t7\\n")
    '6 * 7'
    """
    return " ".join(text.split())


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` whose braces balance; None if there is none.

    One pass suffices, so a response with a long loop of open boxes takes linear time.

    >>> last_boxed(r"\boxed{3}, no: \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    >>> last_boxed(r"cut short: \boxed{\frac{1}{2}") is None
    True
    """
    start = text.rfind("\\boxed")
    if start < 0:
        return None
    plain = _PLAIN_BOX.match(text, start)
    if plain is not None:
        return plain[1].strip()
    # fast path: the last box is nearly always closed
    content = _last_closed_box(text[start:])
    return content if content is not None else _last_closed_box(text)


def _last_closed_box(text: str) -> str | None:
    open_braces: list[int] = []  # for each open brace, where the content of its box starts; -1 for other braces
    start, end = -1, -1
    for match in _BRACE.finditer(text):
        token = match.group()
        if token == "}":
            content_start = open_braces.pop() if open_braces else -1
            if content_start > start:
                start, end = content_start, match.start()
        elif token[-1] == "{" and token != "\\{":  # \{ is the brace of a set, not a group
            open_braces.append(-1 if token == "{" else match.end())
    return text[start:end].strip() if start >= 0 else None


def tagged_answer(text: str) -> str | None:
    """Return the content of the last ``<answer>…</answer>``; None if there is none.

    >>> tagged_answer("<think>1+1</think> <answer> 2 </answer>")
    '2'
    """
    if "<" not in text:  # searching for one character is ten times as fast as searching for two
        return None
    for opening, closing in (("<answer>", "</answer>"), ("<ANSWER>", "</ANSWER>"), ("<Answer>", "</Answer>")):
        end = text.rfind(closing)
        start = text.rfind(opening, 0, end) if end >= 0 else -1
        if start >= 0:
            return text[start + len(opening) : end].strip()
    return None


def hash_answer(text: str) -> str | None:
    """Return the rest of the last line that starts with ``####`` and is not a heading.

    GSM8K solutions end with such a line.

    >>> hash_answer("6 + 7 = 13\\n#### 13"), hash_answer("#### Step 2: add")
    ('13', None)
    """
    if "#" not in text or "####" not in text:
        return None
    lines = _HASHES.findall(text)
    if lines and (last := lines[-1].strip()).isdigit():
        return str(last)
    return next((str(line).strip() for line in reversed(lines) if _HEADING.match(line) is None), None)


def json_answer(text: str) -> str | None:
    r"""Return the value of the last JSON field "answer" or "final_answer"; None if there is none.

    A list becomes its members, and ``null`` an empty text. Escaped and unescaped backslashes are treated alike.

    >>> json_answer('{"answer": 42, "confidence": 0.9}'), json_answer('{"answer": ["4", "7"]}')
    ('42', '4, 7')
    >>> json_answer(r'{"final_answer": "\\frac{1}{2}"}'), json_answer("the answer: 42")
    ('\\frac{1}{2}', None)
    """
    if "{" not in text or not (('"' in text and 'nswer"' in text) or ("'" in text and "nswer'" in text)):
        return None
    matches = list(_JSON_ANSWER.finditer(text))
    if not matches:
        return None
    match = matches[-1]
    if match["list"] is not None:
        return ", ".join(member.strip(" \n\t\"'") for member in match["list"].split(","))
    if match["bare"] is not None:
        return "" if match["bare"] in ("null", "None") else match["bare"]
    quoted = match["double"] if match["double"] is not None else match["single"]
    return str(quoted).replace("\\\\", "\\").replace('\\"', '"').strip()


def last_line(text: str) -> str | None:
    """Return the last line that is not blank; None for a blank text."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else None


def unwrap(text: str) -> str:
    r"""Remove dollars, math-mode brackets, bold marks and the full stop around an answer.

    >>> unwrap("**$7$**."), unwrap(r"\(x+1\)"), unwrap("3.5")
    ('7', 'x+1', '3.5')
    """
    text = text.strip()
    while True:
        if not text.startswith(_OPENERS):
            return text.rstrip(".").rstrip() if text.endswith(".") and not text.endswith("..") else text
        shorter = text.rstrip(".").rstrip() if not text.endswith("..") else text
        for left, right in _WRAPPERS:
            inner = shorter[len(left) : -len(right)]
            long_enough = len(shorter) > len(left) + len(right)
            if long_enough and shorter.startswith(left) and shorter.endswith(right) and left not in inner:
                shorter = inner.strip()
        if shorter == text:
            return text
        text = shorter


def looks_like_formula(text: str) -> bool:
    r"""Return whether ``text`` is mathematics without prose, with no word outside a LaTeX command.

    >>> [looks_like_formula(text) for text in ("7", r"2\sqrt{3}", r"5 \text{ cm}", "7 pears", "")]
    [True, True, True, False, False]
    """
    return bool(text) and not _WORD.search(_COMMAND.sub(" ", text))
