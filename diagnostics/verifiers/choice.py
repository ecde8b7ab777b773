"""Verifier "choice", which compares the letter of a multiple-choice option."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from string import ascii_uppercase
from unicodedata import normalize

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, AnswerStyle, Grade, GradeState, Problem
from oversharp.diagnostics.verifiers.extraction import (
    collapse_whitespace,
    hash_answer,
    json_answer,
    last_boxed,
    last_line,
    tagged_answer,
    unwrap,
)
from oversharp.diagnostics.verifiers.reading.boxes import n_different_boxes
from oversharp.diagnostics.verifiers.reading.labels import labelled
from oversharp.diagnostics.verifiers.reading.lenient import accepts_letter
from oversharp.diagnostics.verifiers.reading.markdown import without_marks
from oversharp.diagnostics.verifiers.reading.notation import typeset
from oversharp.diagnostics.verifiers.reading.responses import answer_text
from oversharp.diagnostics.verifiers.reading.sentences import goes_on, sentence
from oversharp.diagnostics.verifiers.reading.stated import box_doubt

_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_NAMED = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+)?(?:i(?:['’]d|\s+would|['’]ll)?\s+(?:choose|chose|pick|select|go with)\s+)?"
    r"(?:(?:the\s+)?(?:correct|right|best|final)\s+)?(?:option|choice|letter|answer)\s+(?:is\s+)?:?\s*",
    re.IGNORECASE,
)
#: Option phrases in other languages: "la B", "l'option B", "вариант B".
_NAMED_ELSEWHERE = re.compile(
    r"(?:(?:la|le|el|die|der|das|a|o|il|lo|de)\s+|l['’]\s*)?(?:(?:opci[oó]n|opção|alternativa|letra|lettre|lettera"
    r"|opzione|option"
    r"|Option|Buchstabe|Antwort|réponse|respuesta|resposta|risposta|variante?|вариант|буква|ответ)\s+|选项?\s*"
    r"|選項?\s*|应选|是)?"
    r"(?=[(\[]?[A-Z][)\].:]?(?![A-Za-z]))"
)
#: The letter in brackets after the option's text: "All of the above (D)".
_BEHIND_TEXT = re.compile(r"(?P<text>[^()\[\]]*[^()\[\]\s])\s*\(([A-Z])\)[.!]?")
_NO_OPTION = re.compile(r"\b(?:not|either|neither|or|nor|but|than|and|never)\b|n['’]t\b", re.IGNORECASE)
#: "D. " before the option's text.
_MARKED_LETTER = re.compile(r"(?:option |choice )?[(\[]?[A-Z][)\]]?[.:]\s+(?=\S)", re.IGNORECASE)
# "B", "b", "(B)", "B." alone; "(B) Paris", "B. Paris", "B: Paris" with the option's text, but never "A car"
_ALONE = re.compile(r"[(\[]?([A-Za-z])[)\].:,;!]{0,2}")
_WITH_TEXT = re.compile(
    r"(?:[(\[]?([A-Z])[)\].:]?[)\].:,;]\s(?!(?<=[,;]\s)(?!I\s+[a-z])[(\[]?[A-Z][)\].:,;]*(?:\s|$)).+|[(\[]([A-Z])[)\]]\S.*"
    r"|([A-Z])\s\(.+\))"
)
#: A letter followed by a clause about it: "B because …", "C is correct".
_WITH_CLAUSE = re.compile(
    r"[(\[]?([A-Z])[)\]]?\s+(?:(?:because|since|as|which|where|due to|for|given|[-–—=])(?=\s).+"
    r"|is\s+(?:the\s+)?(?:only\s+)?(?:correct|right|best|true|answer|valid)\b.*)"
)
#: Letters that are negated or joined by a word or sign. They do not state a single option, although the first may look
#: like one followed by its text.
_DOUBTED = re.compile(
    r"(?:option|choice|letter)?\s*[(\[]?[A-Z][)\].:]?\s*(?:,|;|/|&|→|[-=]?>|\bor\b|\band\b|\bthen\b|\bfollowed by\b"
    r"|\bbefore\b)"
    r"\s*(?:(?:or|and|then|maybe|perhaps|possibly|also|even|followed by|later|option|choice|letter)\s+)*"
    r"(?!I\s+[a-z])[(\[]?[A-Z][)\].:]?(?![A-Za-z])|(?:not|neither|either|anything but)\s+(?:option |choice )?"
    r"[(\[]?[A-Z][)\].:]?(?![A-Za-z])"
)
#: An option in the prompt, a line that begins with a letter: "A. red", "(A) red", "A) red", "A: red".
_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]*\S", re.MULTILINE)


@lru_cache(maxsize=1 << 12)
def choice_letter(answer: str) -> str | None:
    r"""Return the letter that an answer states, in upper case; None if it states no letter.

    >>> [choice_letter(text) for text in ("B", "(b)", r"\text{B}", "option B", "B. Paris", "A car", "Paris")]
    ['B', 'B', 'B', 'B', 'B', None, None]
    >>> [choice_letter(text) for text in ("C, since X.", "(B), 12.", r"\textbf{(B)}\ 12", "B because A fails")]
    ['C', 'B', 'B', 'B']
    """
    text = _bare(answer)
    letter = _letter(text)
    if letter is None and (named := _NAMED.match(text) or _NAMED_ELSEWHERE.match(text)) is not None:
        letter = _letter(text[named.end() :])
    if letter is not None:
        return letter
    behind = _BEHIND_TEXT.fullmatch(text)
    return behind[2] if behind is not None and _NO_OPTION.search(behind["text"]) is None else None


def _letter(text: str) -> str | None:
    match = _ALONE.fullmatch(text) or _WITH_TEXT.fullmatch(text) or _WITH_CLAUSE.fullmatch(text)
    return next(letter for letter in match.groups() if letter).upper() if match else None


@lru_cache(maxsize=1 << 12)
def _bare(answer: str) -> str:
    """Return an answer on one line, without LaTeX wrapping and Markdown."""
    bare = collapse_whitespace(unwrap(_TEXT_COMMAND.sub(r"\1", typeset(unwrap(without_marks(answer))))))
    return bare if bare.isascii() else normalize("NFKC", bare)  # replace full-width letters and brackets


#: Longest option text without a final full stop, in characters.
_MOST_OPTION = 80


def _labelled_option(text: str) -> str | None:
    label = labelled(text, options=True)
    if label is None:
        return None
    marked = _MARKED_LETTER.match(label.line)
    if marked is None:
        rest = sentence(label.line).rest
    else:
        option = label.line[marked.end() :]
        rest = option if len(option) > _MOST_OPTION or goes_on(option + ".", "") else sentence(option).rest
    return "" if goes_on(rest, text[label.stop :]) else label.line


#: Rules that search the letter, in order of priority.
_RULES: tuple[tuple[Callable[[str], str | None], AnswerStyle], ...] = (
    (last_boxed, "boxed"),
    (tagged_answer, "tagged"),
    (hash_answer, "hashes"),
    (json_answer, "labelled"),
    (_labelled_option, "labelled"),
    (last_line, "bare"),
)


@lru_cache(maxsize=1 << 12)
def choice_doubted(answer: str) -> bool:
    r"""Return whether an answer states several letters, or negates a letter.

    >>> [choice_doubted(text) for text in ("A or B", "(A), (B)", "not B", "(B) or (C)", "B. vitamins A and C", "B")]
    [True, True, True, True, False, False]
    """
    return _DOUBTED.match(_bare(answer)) is not None


class ChoiceVerifier:
    r"""Accept a response whose final letter is that of the gold.

    The letter is taken from the first of these that contains a letter: the last ``\boxed{…}``; the last
    ``<answer>…</answer>``; the last line that starts with ``####``; the rest of the line after the last "answer is" or
    "answer:"; the last line. A response that gives the option's text without its letter is ``parse_fail``. A response
    that states several letters there, or negates one, is ``ambiguous``. Answer and mode are the letter.

    >>> problem = Problem(task="t", prompt="Warm?\nA. blue\nB. red", gold="B", verifier="choice")
    >>> [grade.correct for grade in ChoiceVerifier().grade([(problem, r"So \boxed{\text{B}}."), (problem, "A")])]
    [True, False]
    """

    name = "choice"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` unless the gold is a single letter."""
        if choice_letter(problem.gold) is None:
            raise ProblemError(f"answer {problem.gold[:40]!r} is not a letter; give the letter of the correct option")

    def guess_share(self, problem: Problem) -> float | None:
        """Return 1 / number of options in the prompt (lines that begin with a letter); None without options."""
        n_options = 0
        for letter in _OPTION.findall(problem.prompt):
            if letter == ascii_uppercase[n_options : n_options + 1]:
                n_options += 1
        return 1 / n_options if n_options > 1 else None

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order; ``parse_fail`` without a letter."""
        return [self._grade(problem, text) for problem, text in items]

    def _grade(self, problem: Problem, text: str) -> Grade:
        part = answer_text(text, prompt=problem.prompt)
        n_boxed = n_different_boxes(part)
        doubt = box_doubt(part) if n_boxed else ""
        for rule, style in _RULES:
            content = rule(part)
            if content == "":
                break  # nothing follows the label, or the response reconsiders its answer
            if doubt or (content is not None and choice_doubted(content)):
                reason = f"no single answer: {doubt or 'several options, or a negated option'}"
                return _grade_without_letter(problem, text, "ambiguous", reason, n_boxed, style)
            letter = None if content is None else choice_letter(content)
            if letter is not None:
                is_correct = letter == choice_letter(problem.gold)
                lenient = is_correct or accepts_letter(problem.gold, text)
                return Grade(
                    answer=letter, mode=letter, reward=float(is_correct), n_boxed=n_boxed, style=style, lenient=lenient
                )
        reason = "no option letter in \\boxed{}, <answer>, after ####, after 'answer is' or on the last line"
        return _grade_without_letter(problem, text, "parse_fail", reason, n_boxed, "prose" if part.strip() else "none")


def _grade_without_letter(
    problem: Problem, text: str, state: GradeState, reason: str, n_boxed: int, style: AnswerStyle
) -> Grade:
    return Grade(
        answer=NO_ANSWER,
        mode=None,
        reward=0.0,
        state=state,
        reason=reason,
        n_boxed=n_boxed,
        style=style,
        lenient=accepts_letter(problem.gold, text),
    )
