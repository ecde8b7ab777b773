r"""Answer labels such as "The answer is", by language, and the line that follows a label."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oversharp.diagnostics.verifiers.reading.languages.announcements import ANNOUNCEMENTS, DOUBTS, OPTIONS, Announcement
from oversharp.diagnostics.verifiers.reading.markdown import without_marks

#: Markdown marks and quotes between the noun of a label and the link to its value.
_M = r"[*_`~\"'”’»\])]*"
#: A link: a colon of any script, an equals sign, an arrow, or a dash between spaces.
_COLON = rf"\s*{_M}\s*(?:[:：=＝]|->|→|⇒|\s[–—-]\s)"


#: Words before a label, in the same sentence, that withdraw the answer: "it is false that the answer is".
_DISCLAIMED = re.compile(
    r"\b(?:false|not true|untrue|doubt|wrong|incorrect|mistaken\w*|suppose|assume|assuming|whether|if|unless|said"
    r"|says"
    r"|say|claims?|nobody|tempting|might think)\b",
    re.IGNORECASE,
)

#: Label at the start of a gold that is copied from a solution: "A: 18", "# 18".
GOLD_LEAD = re.compile(r"\s*(?:A\s*:\s*|#{1,6}\s+)(?=\S)")

#: Start of the conclusion in "A is wrong, so the answer is B".
_CONCLUDED = re.compile(r",\s*(?:so|hence|thus|therefore|but)\b", re.IGNORECASE)
_FENCE = re.compile(r"\s*`{3,}\w*\s*")
#: Closing marks of a label, and its link. Marks right before a value belong to the value.
_LEADING = re.compile(r"[ \t]*(?:[*_`~]+(?=[\s:：]))?[ \t]*[:：]?[ \t]*(?:(?:[-=]>|=|→|⇒|➜|➔)[ \t]*)?")
#: Text before a label on a separate line: "## The final answer".
_OWN_LINE = re.compile(r"[\s>#*_`•\-–\d.)]*(?:(?:the|my|your|our|final|correct|so|thus)\s+)*", re.IGNORECASE)
_REST_OF_OWN_LINE = re.compile(r"[*_`\s]*(?=\n)")
#: Largest number of occurrences of a noun that are checked, from the end. A looping response repeats its label.
_MOST_CANDIDATES = 40
_DISPLAYED = ((re.compile(r"\s*\\\["), "\\]"), (re.compile(r"\s*\$\$"), "$$"))
_BRACKETS = (("(", ")"), ("[", "]"))
#: Number of characters at the end of a response that are searched for labels in languages other than English.
_OTHER_TAIL = 400
#: Short labels, which only count at the start of a line. "A:" may also begin a list of options.
_SHORT_LABEL = re.compile(
    r"^[ \t>*_#`-]*(?:(?:the |final |my )*(?:ans|result)[*_]*\s*[.:=：][*_:]*|(?P<option>a)[*_]*:[*_]*)[*_]*",
    re.IGNORECASE | re.MULTILINE,
)
_OTHER_OPTION = re.compile(r"^[ \t*_(]*[BC][*_]*[:.)]", re.MULTILINE)
#: One line of a list of answers, such as "- Alice: 4".
_NAMED_VALUE = re.compile(
    r"[ \t]*(?:[-+•*]|\d+[.)])?[ \t]*[*_]*(?!(?:confidence|reason\w*|explanation|check|verification"
    r"|note)\b)[^\W\d_][\w ]{0,30}[*_]*"
    r"\s*[:=–-]\s*[*_]*[$\\( ]*-?\d",
    re.IGNORECASE,
)
#: Number of characters at the end of a response that are searched for labels such as "Ans:".
_SHORT_TAIL = 120
#: Largest number of lines that are read after a label. The first line with text contains the value.
_LINES_AHEAD = 4


#: Adverbs after a link: "is therefore", "est donc :".
_ADVERBS = (
    r"(?:\s+(?:therefore|thus|hence|then|simply|just|actually|indeed|donc|alors|entonces|por lo tanto|portanto"
    r"|também|quindi|também|maka))?"
)


@dataclass(frozen=True, slots=True)
class _Noun:
    noun: str
    pattern: re.Pattern[str]
    endings: str
    is_english: bool


def _nouns(announcements: tuple[Announcement, ...]) -> tuple[_Noun, ...]:
    patterns = []
    for announcement in announcements:
        bare = r"|\s+(?=[$\\\d(\-−])" if announcement.bare else ""
        for noun in announcement.nouns:
            pattern = (
                rf"{re.escape(noun)}{_M}(?:\s*\([^()\n]{{1,30}}\))?{announcement.between}{_M}"
                rf"(?:{_COLON}|\s*(?:{announcement.links}){_ADVERBS}{bare})"
            )
            is_english = announcement.language.startswith("English")
            patterns.append(_Noun(noun, re.compile(pattern, re.IGNORECASE), announcement.endings, is_english))
    return tuple(patterns)


def _by_stem(nouns: tuple[_Noun, ...]) -> tuple[tuple[str, tuple[_Noun, ...]], ...]:
    """Group nouns by a common substring of three letters.

    If a response lacks the substring, one search excludes all nouns of the group.
    """
    groups, left = [], list(nouns)
    while left:
        stems = [noun.noun[start : start + 3] for noun in left for start in range(max(1, len(noun.noun) - 2))]
        stem = max(stems, key=lambda stem: sum(stem in noun.noun for noun in left))
        groups.append((stem, tuple(noun for noun in left if stem in noun.noun)))
        left = [noun for noun in left if stem not in noun.noun]
    return tuple(groups)


_ENGLISH_NOUNS = _nouns(tuple(entry for entry in ANNOUNCEMENTS if entry.language == "English"))
_OTHER_NOUNS = _nouns(tuple(entry for entry in ANNOUNCEMENTS if entry.language != "English"))
_OTHER_STEMS = _by_stem(_OTHER_NOUNS)
#: Groups of the nouns that an ASCII response can contain.
_ASCII_STEMS = _by_stem(tuple(noun for noun in _OTHER_NOUNS if noun.noun.isascii()))
_OPTION_NOUNS = _nouns(OPTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Labelled:
    """The line after the last label of a response.

    ``line`` is its text without marks, and ``stop`` its end in the response. ``is_named_list``: it is the first of
    several lines that each state a name and a value. ``is_english``: the label is English, so a comma in a number
    groups digits. ``is_doubted``: words in a language other than English negate, compare or offer alternatives.
    """

    line: str
    stop: int
    is_doubted: bool = False
    is_named_list: bool = False
    is_english: bool = True


def labelled(text: str, *, options: bool = False) -> Labelled | None:
    r"""Find the last announcement of an answer, and the line or displayed formula that follows it.

    Returns None without a label. ``line`` is "" if only marks follow. ``options``: labels of multiple-choice options,
    such as "the correct option is", count too.

    >>> labelled("The answer is: 7 pears.").line, labelled("### Answer\n\n**73**").line, labelled("We do not know.")
    ('7 pears.', '73', None)
    >>> labelled("**Answer:** **").line
    ''
    """
    lowered = text.lower()
    is_ascii = text.isascii()
    if not is_ascii and len(lowered) != len(text):
        lowered = text  # some letters have two characters in lower case, which would shift positions
    start, label = -1, None
    for noun in (*_ENGLISH_NOUNS, *_OPTION_NOUNS) if options else _ENGLISH_NOUNS:
        if noun.noun in lowered:
            stop = _last_match(text, lowered, noun, after=start)
            if stop > start:
                start, label = stop, noun
    if label is None or not is_ascii:  # assume that an ASCII response with an English label is in English
        end = lowered[-_OTHER_TAIL:]
        for stem, nouns in _ASCII_STEMS if is_ascii else _OTHER_STEMS:
            for noun in nouns if stem in end else ():
                if noun.noun in end:
                    stop = _last_match(text, lowered, noun, after=start)
                    if stop > start:
                        start, label = stop, noun
    if label is None:
        end = lowered[-_SHORT_TAIL:]
        has_link = ":" in end or "=" in end  # searching for a character is faster than searching for a word
        may_be_short = "ans." in end or (has_link and ("ans" in end or "result" in end or "a:" in end))
        may_be_short = may_be_short and not options
        return _short_label(text) if may_be_short else None
    announced = _line_after(text, start, label.endings)
    if not label.is_english and DOUBTS.search(announced.line) is not None:
        return replace(announced, is_doubted=True, is_english=False)
    return announced if label.is_english else replace(announced, is_english=False)


def _short_label(text: str) -> Labelled | None:
    """Find "Ans: 7", "Result = 7" or "A: 7" at the start of a line, in the last lines of a response."""
    matches = list(_SHORT_LABEL.finditer(text, max(0, len(text) - _SHORT_TAIL)))
    if not matches:
        return None
    match = matches[-1]
    if match["option"] is not None and _OTHER_OPTION.search(text, match.end()) is not None:
        return None
    return _line_after(text, match.end(), "")


def _last_match(text: str, lowered: str, noun: _Noun, *, after: int) -> int:
    """Return the end of the last label with this noun; -1 if no such label ends after ``after``."""
    position = len(text)
    for _ in range(_MOST_CANDIDATES):
        position = lowered.rfind(noun.noun, 0, position)
        if position < 0 or position + len(noun.noun) <= after:
            break
        match = noun.pattern.match(text, position)
        if match is not None:
            if noun.is_english and _DISCLAIMED.search(_sentence_before(text, position)) is not None:
                continue
            return match.end()
        own_line = _REST_OF_OWN_LINE.match(text, position + len(noun.noun))
        if own_line is not None and _OWN_LINE.fullmatch(text, text.rfind("\n", 0, position) + 1, position):
            return own_line.end()
    return -1


def _sentence_before(text: str, position: int) -> str:
    """Return the text before a label within its sentence, at most 80 characters."""
    before = text[max(0, position - 80) : position]
    find = before.rfind
    before = before[max(find("."), find("!"), find("?"), find(";"), find("\n")) + 1 :]
    return _CONCLUDED.split(before)[-1] if "," in before else before


def _line_after(text: str, start: int, endings: str) -> Labelled:
    lead = _LEADING.match(text, start)
    position = lead.end() if lead is not None else start
    for opened, right in () if text[position : position + 1].isalnum() else _DISPLAYED:
        opening = opened.match(text, position)
        if opening is not None and (end := text.find(right, opening.end())) > 0:
            return Labelled(line=text[position : end + len(right)].strip(), stop=end + len(right))
    for ahead in range(_LINES_AHEAD):
        stop = text.find("\n", position)
        stop = len(text) if stop < 0 else stop
        raw = text[position:stop]
        if not _FENCE.fullmatch(raw):
            line = without_marks(raw, bullet=ahead > 0)
            if line.strip(".,;:!?"):
                is_list = (
                    ahead > 0 and _NAMED_VALUE.match(raw) is not None and _NAMED_VALUE.match(text, stop + 1) is not None
                )
                return Labelled(line=_without_ending(line, endings), stop=stop, is_named_list=is_list)
        if stop == len(text):
            break
        position = stop + 1
    return Labelled(line="", stop=len(text))


def _without_ending(line: str, endings: str) -> str:
    while line and (line[-1] in " ,;:。।۔．" or _ends_unopened(line)):
        line = line[:-1]
    return re.sub(rf"\s*(?:{endings})\s*[.。।۔!]*$", "", line) if endings else line


def _ends_unopened(line: str) -> bool:
    """Return whether a line ends with a bracket that was opened before its label."""
    return any(line.endswith(right) and line.count(left) < line.count(right) for left, right in _BRACKETS)
