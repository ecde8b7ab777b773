"""Parse answers in sentences: the value, and words that leave no single value."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from oversharp.diagnostics.verifiers.reading.languages.words import (
    changes_after,
    changes_before,
    scale_after,
    with_sign,
)
from oversharp.diagnostics.verifiers.reading.markdown import without_marks

#: Mathematics between words: LaTeX commands, and text between math delimiters without a long word.
_MATH = re.compile(
    r"\$(?!\d[^$]*[A-Za-z]{3})(?:\\.|[^$\\])+\$|\\\(.+?\\\)|\\\[.+?\\\]"
    r"|\\(?:begin|end|text|mathrm|textbf|textit|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+",
    re.DOTALL,
)
_SHORT_WORDS = (
    "or|to|is|of|in|at|as|by|if|on|an|we|he|it|so|be|do|no|am|pm|up|vs|ft|cm|mm|km|kg|lb|oz|hr|yd|mi"
    "|us|sq|cu|rs|kr|ca|al|fl"
)
#: Letters of other scripts are words, except Greek letters and the signs of degree, angstrom and ohm.
_OTHER_SCRIPTS = r"[^\W\d_A-Za-zͰ-Ͽºª°¼-¾⅐-⅞]"
#: Accented letters, except three that equal "i" or "s" if letter case is ignored.
_ACCENTED = "À-ÖØ-öø-įĲ-žƀ-ɏ"
_WORD = re.compile(
    rf"(?<![A-Za-z\d\\^_*+])(?:[A-Za-z]{{3,}}|(?:{_SHORT_WORDS})\b)(?:['’][a-z]+)?"
    rf"|[A-Za-z]*[{_ACCENTED}][A-Za-z{_ACCENTED}]*"
    rf"|{_OTHER_SCRIPTS}+",
    re.IGNORECASE,
)
_END = re.compile(r"[.!?](?=\s+[A-Z(]|\s*$)|[。！？।۔]|\n")
#: Words that begin a reason. Comparisons and negations in a reason have no effect.
_REASON = re.compile(
    r"\b(?:because|since|(?<!well )as(?! well as\b)|which|so|given|where|when|namely|hence|therefore|thus)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|never|neither|nor|cannot|unequal|unknown|unclear|unsure|wrong|incorrect|(?:anything|everything"
    r"|all) but"
    r"|other than|instead of|rather than|different from|hardly|scarcely|barely|(?:false|untrue) that"
    r"|\w+n['’]t)\b|\\neq?(?![A-Za-z])|≠",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:than|exceed\w*|up to|almost|nearly|close to|approach\w*)\b|\b(?:at|no) (?:least|most|more|less|fewer"
    r"|later|"
    r"earlier)\b|[<>≤≥]|\\(?:le|ge|lt|gt|leq|geq|leqslant|geqslant)(?![A-Za-z])",
    re.IGNORECASE,
)
_OR_MORE = re.compile(
    r"\b(?:or|and) (?:more|less|fewer|above|below|over|under|greater|higher|lower|later|earlier|so)\b"
    r"|\bat (?:least|most)\b|\bthan\W*(?:\d|[b-z]\b|(?:twice|half|double|triple|thrice)\b)"
    r"|\b(?:minimum|maximum)\W*$|^\s*\+",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"\b(?:or|either|otherwise|unless|depending|depends|versus|vs|alternatively|maybe|perhaps|possibly"
    r"|(?:might|may|could)(?: also| as well| instead| even)? be)\b",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"\b(?:or|otherwise|unless|depending|depends|versus|vs)\b", re.IGNORECASE)
_TO_NUMBER = re.compile(r"^[\s$)]*(?:\b(?:to|through|until|till)\b|[-–—~]|\.\.\.)[\s$(]*[\d.]", re.IGNORECASE)
_AND_NUMBER = re.compile(
    r"(?:\b(?:and|as well as|along with|together with|but also)\b\W*(?:[^\W\d]+\W+){0,3}?"
    r"|[,;/&]\W*(?:(?:and|but|then|also|no|wait|plus)\W+)*)[$\\(]*[-−]?\d",
    re.IGNORECASE,
)
_RANGES = frozenset(["between", "from", "anywhere", "somewhere"])
#: Words after which a value is a part of a description, and not the answer.
_PARTS = frozenset(
    str.split("""
but except excluding unlike besides without of than to and or no minus negative plus times twice thrice double
triple half quarter third dozen by until before after past short root cube log sine cosine factor multiple
against every near mod modulo precedes succeeds follows divides divided multiplied squared cubed over under
above below beyond within sqrt ln exp sin cos tan abs floor ceil max min gcd lcm
january february march april june july august september october november december
""")
)
_QUANTITY_OF = re.compile(
    r"\b(?:total|number|sum|amount|value|price|cost|profit|area|volume|length|distance|speed|rate|height|width|age"
    r"|weight|mass|perimeter|probability|average|mean|median|count|answer|result|quantity|time|balance|savings?|pay"
    r"|salary|measure) of$|\bgiven by$"
    r"|\b(?:equals?|equal|comes?|came|amounts?|adds? up|rounds?|rounded|sums?|simplifies|reduces"
    r"|leads?|evaluates|works out|boils down|corresponds|down|up) to$",
    re.IGNORECASE,
)
_OPERATES = re.compile(
    r"^[\s}$]*(?:squared|cubed|factorial|to the|percent (?:of|less|more)|half|halves|thirds?|fifths?|tenths?"
    r"|-?gons?|less"
    r"|hundredths?|thousandths?|gross|mod|choose|off by|in reverse|reversed|backwards)\b"
    r"|^[\s}$]*(?:times|plus|minus|over|divided by|multiplied by)\W+(?:\d|\\|[a-z]\b"
    r"|(?:the|itself|an?|one|two|three|four|five|six|seven|eight|nine|ten|half|another)\b)"
    r"|^\W*and (?:an?|one|two|three|four|five) (?:half|third|quarter|fifth|halves|thirds|quarters|fifths)\b",
    re.IGNORECASE,
)
_WITHDRAWN = re.compile(
    r"\b(?:no,? wait|wait,? no|scratch that|correction|never ?mind|i (?:was|am) (?:wrong|mistaken)|i(?:'ve"
    r"| have)? made"
    r" an? (?:\w+ )?(?:mistake|error)|should (?:instead|rather|actually) be|or rather|or (?:maybe|perhaps"
    r"|possibly))\b"
    r"|\b(?:that|this|it|which|above|answer|box)(?:['’]s| is| was) (?:\w+ )?(?:wrong|incorrect|false"
    r"|not (?:right|correct|true|the answer|it))\b|^[\s$.)\]\\}]*(?:is|was|are) (?:not|wrong|incorrect|false)\b"
    r"|\?\s*no\b|\bbut (?:wait|hold on|maybe|perhaps|let me|i (?:should|need|must))\b"
    r"|\bi mean\b|^[\s$.)\]\\}]*(?:is|are|was) (?:ruled out|excluded|impossible|too (?:large|small|big))\b"
    r"|^[\s$.)\]\\}]*(?:cannot|can['’]t) be\b"
    r"|(?:^\W*|\b)(?:but|however,?|yet) (?:this|that|it|which)(?:['’]s| is| was| cannot| can['’]t)(?: clearly"
    r"| obviously| just)?"
    r" (?:be\b|impossible|absurd|a contradiction|not possible)"
    r"|^\W*(?:this|that|which)(?:['’]s| is| was)(?: clearly| obviously)? (?:impossible|absurd|a contradiction"
    r"|not possible)"
    r"|\b(?:so|hence|therefore|thus),? (?:there(?:['’]s| is| are)|we have|it has) no (?:answers?|solutions?)\b"
    r"|\bno such (?:number|integer|value|solution)s? exists?\b"
    r"|^[\s$.)\]\\}]*(?:fails|contradicts)\b|\?\s*i don['’]t think\b"
    r"|\bactually,? (?:it|the answer|that|no)\b|\b(?:correct|right|real|actual|true) one (?:is|should)\b"
    r"|\b(?:could|might|may) (?:also |as well |instead |even )?be\W+(?:[^\W\d]+\W+)?[$\\(]*[-−]?\d|\bthen again\b"
    r"|^\W*(?:text\W*)?not(?:\W*$|\W+(?:really|quite|exactly|true|correct|right|it|the)\b)"
    r"|^\W*(?:text\W*)?(?:(?:or|maybe|perhaps|possibly|alternatively|unless|not)\b,?\W*"
    r"(?:[^\W\d]+\W+){0,2}?[$\\(]*[-−]?\d|no[,.!])",
    re.IGNORECASE,
)

#: A clause that withdraws the value, such as "4, which is wrong".
_DENIED = re.compile(
    r"\b(?:which|but (?:that|this|it))(?:['’]s|\s+(?:is|was|must be|seems|looks|would be))\s+(?:\w+\s+)?(?:wrong"
    r"|incorrect|false|impossible"
    r"|absurd|not (?:right|correct|possible|true|valid|the answer))\b|\bwhich (?:cannot|can['’]?t|can not) be\b"
    r"|(?<!least )(?<!greatest )\b(?:lower|upper) bound\b"
    r"|\b(?:but|however,?) (?:i|we|it|my|the (?:correct|right|actual"
    r"|real|true)|actually)\b[^.]{0,40}\d",
    re.IGNORECASE,
)
_FIRST_NUMBER = re.compile(r"[\s$(:]*[-−]?\d[\d,]*(?:\.\d+)?")
_DENIED_ASIDE = re.compile(r"\d\W*\(\s*(?:if|unless|false|wrong|incorrect)\b", re.IGNORECASE)
_ABBREVIATION = re.compile(r"(?<!\w)(?:i\.\s?e\.|e\.\s?g\.|viz\.)", re.IGNORECASE)
_HAS_DIGIT, _EXPLAINS = re.compile(r"\d|[½⅓⅔¼¾]"), re.compile(r"=?\s*\d")
_ASIDE = re.compile(r"(?<=[^\s(])\s+\((?P<aside>[^()]*)\)\s*$")
#: Words in brackets that change the value before the brackets.
_UNSAFE_ASIDE = re.compile(
    r"\b(?:or|not|nor|never|maybe|perhaps|possibly|if|unless|else|wrong|incorrect|false|base|mod|modulo|least|most"
    r"|thousands?|millions?"
    r"|hundreds?|billions?|dozens?|lakhs?|crores?|remainder|minimum|maximum|bound|squared|cubed|bits?|hex|binary"
    r"|octal|octal|to)\b"
    r"|n['’]t\b|^[\W\d]*%|^\s*[-–~]",
    re.IGNORECASE,
)
_NAME = r"(?:and\s+)?(?:the\s+)?(?:[^\W\d_]+\s+){0,2}?[^\W\d_]+"
_NAMED_NEXT = re.compile(
    rf"[,;]\s*{_NAME}\s*(?:[:=(]|[–-]\s|\b(?:is|are|has|have|had|gets?|got|pays?|costs?|was|were|takes?|wins?"
    rf"|owns?)\b)"
    r"[\s$\\({]*[-−]?\d",
    re.IGNORECASE,
)
_NEXT_VALUE = re.compile(
    r"[,;]\s*(?:and\s+)?(?:the\s+)?(?!(?:about|around|roughly|approximately|exactly|only|just|nearly|or|not|with"
    r"|after|for|in|at|per"
    r"|using|from|by|on|of|to|than|over|under|every|each|all|out|leaving|giving|making|minus|plus|times|is|are"
    r"|namely)\b)"
    r"[^\W\d_]+\s+[$\\({]*[-−]?\d",
    re.IGNORECASE,
)

#: Words that begin a reconsideration of the answer.
_THINKS_AGAIN = re.compile(
    r"\W*(?:but|wait|hmm+|however|hold on|alternatively|actually|or maybe|maybe|perhaps|no,"
    r"|let me (?:re|double|think|check))\b",
    re.IGNORECASE,
)
#: Text between a formula in the subject and the value: "… of the triangle is".
_VERB_BETWEEN = re.compile(
    r"[\s$).\]\\}]*(?:[^\W\d]+\W+){0,6}?(?:is|are|equals?|be)(?:\s+(?:thus|then|therefore|equal to))?\W*"
)
_FINISHED = tuple(".!?。！？।۔…)]}>\"'”’»`*$|✓✅")
_MOST_LAST_LINE = 60

NEGATED, COMPARED, RANGED = "negated", "compared", "a range"
ONE_OF_SEVERAL, SEVERAL, PART = "one of several", "several values", "part of a description"
#: Doubts, keyed by the names that the language tables return.
_CHANGES = {
    "": "",
    "part": PART,
    "compared": COMPARED,
    "range": RANGED,
    "several": SEVERAL,
    "one of several": ONE_OF_SEVERAL,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """The answer in a sentence.

    ``values`` are formulas. ``doubt`` is the reason why they are not a single answer; "" if they are. ``stated`` is the
    value with the words after it, such as units; if there is a doubt, it is the whole sentence. ``clause`` is the
    sentence, ``rest`` the text after it.
    """

    values: tuple[str, ...]
    stated: str
    clause: str
    doubt: str
    rest: str


def sentence(text: str) -> Sentence:
    """Parse the sentence that follows "the answer is".

    >>> sentence("18 dollars a day").values, sentence("not 42").doubt, sentence("42 or 41").values
    (('18',), 'negated', ('42', '41'))
    """
    text = _ABBREVIATION.sub(" namely ", text) if "." in text else text
    end = _END.search(text)
    clause, rest = (text[: end.start()], text[end.end() :]) if end else (text, "")
    clause = with_sign(_without_aside(clause))
    runs = _formulas(clause)
    if not runs:
        doubt = _first(clause, (_NEGATED, NEGATED), (_OTHERS, ONE_OF_SEVERAL))
        return Sentence(values=(), stated=clause.strip(), clause=clause.strip(), doubt=doubt, rest=rest)
    runs = runs[_first_after_subject(clause, runs) :]
    start, stop = runs[0]
    value, tail = _tidy(clause[start:stop]), clause[stop:]
    if (scale := scale_after(tail)) is not None:
        factor, word, is_compound = scale
        scaled = () if is_compound or doubt_before(clause[:start]) else (rf"{value} \times {factor}",)
        doubt = f"a number and the word {word.lower()}"
        return Sentence(values=scaled, stated=clause, clause=clause, doubt=doubt, rest=rest)
    if re.match(r"\s*(?:percent|pct)\b(?! (?:of|less|more))", tail, re.IGNORECASE):
        value += r"\%"
    marked = (
        PART
        if re.search(r"\d['’]s\b", clause[start:])
        or _is_ordinal(value, tail)
        or _is_called(clause, start)
        or _is_share(value, tail)
        else NEGATED
        if _DENIED_ASIDE.search(clause)
        else COMPARED
        if re.search(r"\d\+\s*$", clause[start:stop])
        else ""
    )
    lead = clause[: start + max(0, clause[start:stop].find(value))]
    gap = clause[start:stop][len(clause[start:stop].rstrip(" ,;:)$")) :]
    doubt = (
        doubt_before(lead)
        or marked
        or _doubt_within(clause[len(lead) :], value)
        or doubt_after(gap + tail)
        or _doubt_of_names(lead, gap + tail)
    )
    others = [_tidy(clause[a:b]) for a, b in runs[1:]]
    # alternatives in words ("42 or none") are not in the values
    has_alternatives = doubt in (ONE_OF_SEVERAL, SEVERAL) and len(others) >= len(_ALTERNATIVE.findall(clause))
    values = (value, *others) if has_alternatives else () if doubt else (value,)
    stated = clause if doubt else f"{value} {tail}"
    return Sentence(values=values, stated=stated.strip(), clause=clause.strip(), doubt=doubt, rest=rest)


def _without_aside(clause: str) -> str:
    """Remove brackets at the end of a clause if they only explain the value: "7 (5 red, 2 green)"."""
    aside = _ASIDE.search(clause)
    if aside is None or _HAS_DIGIT.search(clause, 0, aside.start()) is None:
        return clause
    explanation = aside["aside"].strip()
    if _UNSAFE_ASIDE.search(explanation) or not re.search(r"[^\W\d_]|=|[+*]", explanation):
        return clause
    if not _EXPLAINS.match(explanation) and (
        doubt_after(f" {explanation}") or doubt_before(explanation) or scale_after(f" {explanation}")
    ):
        return clause
    return without_marks(clause[: aside.start()])


def _doubt_within(text: str, value: str) -> str:
    """Return the doubt if a run contains more than its first number: "4 a 5", "4 R 3"."""
    number = _FIRST_NUMBER.match(text)
    if number is None or "=" in value:
        return ""
    after = text[number.end() :]
    if scale_after(after) is not None:
        return PART
    return _CHANGES[changes_after(after)] if after[:1].isspace() or not after[:1].isalnum() else ""


def _doubt_of_names(lead: str, tail: str) -> str:
    """Return ``SEVERAL`` if another value with a name follows: "length 4, width 7", "Alice: 4, Bob: 7"."""
    reason = _REASON.search(tail)
    before_reason = tail[: reason.start()] if reason else tail
    if _NAMED_NEXT.search(before_reason) is not None:
        return SEVERAL
    words = _WORD.findall(lead)
    return SEVERAL if words and _NEXT_VALUE.search(before_reason) is not None else ""


def doubt_before(lead: str) -> str:
    """Return why the value after these words is not the answer; "" if it is.

    >>> doubt_before("greater than"), doubt_before("half of"), doubt_before("a total of"), doubt_before("Tom has")
    ('compared', 'part of a description', '', '')
    """
    doubt = _doubt_of_words(lead)
    words = _WORD.findall(lead)
    if doubt:
        return doubt
    if not words:
        return _CHANGES[changes_before(lead)]
    if words[-1].lower() in _RANGES:
        return RANGED
    part = words[-1].lower() in _PARTS and not _QUANTITY_OF.search(" ".join(words))
    return PART if part else _CHANGES[changes_before(lead)]


def doubt_after(tail: str) -> str:
    """Return why the value before these words is not a single answer; "" if it is.

    >>> doubt_after(" or 41"), doubt_after(" to 50"), doubt_after(" squared"), doubt_after(" since 42 is not 41")
    ('one of several', 'a range', 'part of a description', '')
    """
    if _OPERATES.search(tail):
        return PART
    changed = _CHANGES[changes_after(tail)]
    if changed:
        return changed
    if _DENIED.search(tail):
        return NEGATED
    reason = _REASON.search(tail)
    before_reason = tail[: reason.start()] if reason else tail
    rules = ((_OR_MORE, COMPARED), (_NEGATED, NEGATED), (_OTHERS, ONE_OF_SEVERAL), (_TO_NUMBER, RANGED))
    return _first(before_reason, *rules, (_AND_NUMBER, SEVERAL))


def withdrawn(after: str) -> bool:
    """Return whether the text after an answer explicitly withdraws it.

    >>> withdrawn(". Wait, no, it is 43."), withdrawn(". Let me check that.")
    (True, False)
    """
    return any(map(str.isalnum, after)) and _WITHDRAWN.search(after) is not None


def _first_after_subject(clause: str, runs: list[tuple[int, int]]) -> int:
    """Return the index of the value's run. A formula may come first, as in "the largest $n$ is 34"."""
    reason = _REASON.search(clause)
    for position, (left, right) in enumerate(itertools.pairwise(runs)):
        between = clause[left[1] : right[0]]
        verb = _VERB_BETWEEN.fullmatch(between)
        if verb is None or (reason is not None and reason.start() < right[0]) or not _WORD.search(clause[: left[0]]):
            return position
        if re.search(r"\b(?:and|or|but|not)\b|[,;]", between) or re.search(r"\d[\s$)]*[,;]\s", clause[slice(*left)]):
            return position
    return len(runs) - 1


def goes_on(rest: str, after: str) -> bool:
    """Return whether a response revises its answer, or continues after it and is cut off.

    ``rest`` is the text after the answer's sentence on the same line; ``after`` is all text below that line. A response
    whose last line is short is finished even without a full stop: "Confidence: 90%".

    >>> goes_on(" But maybe it is", ""), goes_on(" This is what was asked.", ""), goes_on("", "Confidence: 90%")
    (True, False, False)
    """
    rest, after = rest.strip(), after.strip()
    tail = after or rest
    if not tail.strip("*_`#~ .,;:!?)]}$"):
        return False
    if _THINKS_AGAIN.match(rest or after):
        return True
    is_finished = tail.endswith(_FINISHED) or not (tail[-1].isalnum() or tail[-1] in ",;-+=(&\\")
    return not (is_finished or (not rest and "\n" not in after and len(after) <= _MOST_LAST_LINE))


def _is_called(clause: str, start: int) -> bool:
    """Return whether the value is an argument of a function call in code, as in print(42)."""
    return re.search(r"\w\w\($", clause[: start + 1] if clause[start] == "(" else clause[:start]) is not None or (
        re.search(r"\w\w\(\s*['\"]", clause[:start]) is not None
    )


def _is_ordinal(value: str, tail: str) -> bool:
    """Return whether the value is an ordinal that counts the next word, as in "the 42nd prime"."""
    return re.search(r"\d(?:st|nd|rd|th)$", value) is not None and _COUNTED.match(tail) is not None


#: A word that an ordinal counts. Days and floors are excluded, because their ordinal is their name.
_COUNTED = re.compile(
    r"\s*(?!(?:day|grade|floor|place|position|month|week|year|row|column|person|century|of)s?\b)[A-Za-z]{3,}",
    re.IGNORECASE,
)


def _is_share(value: str, tail: str) -> bool:
    """Return whether the value is a share of a number, as in 20% of 50. "20% of all pears" is an answer."""
    return value.endswith("%") and re.match(r"\s*of\s+[$\\(]*\d", tail) is not None


def _doubt_of_words(text: str) -> str:
    return _first(text, (_NEGATED, NEGATED), (_OTHERS, ONE_OF_SEVERAL), (_COMPARED, COMPARED))


def _first(text: str, *rules: tuple[re.Pattern[str], str]) -> str:
    return next((doubt for rule, doubt in rules if rule.search(text)), "")


def _formulas(clause: str) -> list[tuple[int, int]]:
    """Return the spans between words that contain a digit, a LaTeX command or math delimiters."""
    masked = _MATH.sub(lambda match: "\\" + " " * (len(match[0]) - 1), clause)
    bounds = [0, *(edge for match in _WORD.finditer(masked) for edge in match.span()), len(clause)]
    runs = zip(bounds[::2], bounds[1::2], strict=True)
    return [(a, b) for a, b in runs if re.search(r"[\d¼-¾⅐-⅞]|\\ |\$.+\$|\\[(\[]", masked[a:b])]


def _tidy(run: str) -> str:
    run = re.sub(r"^(?:[\s,;:*=]|\.\s)*(?:(?:(?:[aAIyo]|(?!ln|lg|pi)[A-Za-zß-ÿ]{2})\s+)+(?=[-\d$\\]))?", "", run)
    run = re.sub(r"(?:\s+[aAI])?[\s,;:=/*–—-]*$", "", run)
    while run.endswith("(") or (run.endswith(")") and run.count(")") > run.count("(") and not run.endswith("\\)")):
        run = run[:-1].rstrip(" ,;:")
    while run.startswith("(") and run.count("(") > run.count(")"):
        run = run[1:].lstrip()
    return re.sub(r"^[€£¥]\s*", "", run.strip("` ").rstrip("."))
