r"""Announcements: how a response labels its answer, by language, and the line that follows the label."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oversharp.diagnostics.verifiers.reading.markdown import without_marks

#: Marks of Markdown and quotes between a label and what links it with its value.
_M = r"[*_`~\"'”’»\])]*"
#: A colon of any script, an equals sign, an arrow, or a dash between spaces.
_COLON = rf"\s*{_M}\s*(?:[:：=＝]|->|→|⇒|\s[–—-]\s)"


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """How one language announces an answer.

    ``nouns`` are in lower case. ``between`` may stand between noun and link, ``links`` joins the noun with its value
    as a colon does, ``bare``: the value may follow the noun at once. ``endings`` close the sentence behind the value.
    ``example`` is a response and what it announces.
    """

    language: str
    nouns: tuple[str, ...]
    links: str
    example: tuple[str, str]
    between: str = ""
    endings: str = ""
    bare: bool = False


ANNOUNCEMENTS: tuple[Announcement, ...] = (
    Announcement(
        language="English",
        nouns=("answer", "final result"),
        between=r"s?(?:\s+(?:to|for|of)\s+[^.:\n]{1,60}?(?=\s+(?:is|are)\b))?",
        links=r"\s+(?:is|are|was|equals|must be|should be|would be|will be|comes out to)\b",
        example=("**Final Answer:** 42", "42"),
    ),
    Announcement(
        language="Chinese",
        nouns=("答案", "结果", "結果"),
        between=r"(?:应该|應該|就|最终|最終)?",
        links="是|为|為|等于|等於",
        example=("答案是13", "13"),
    ),
    Announcement(
        language="Hindi",
        nouns=("उत्तर", "जवाब"),
        links=r"\s+है(?=[\s:])",
        endings="है|होगा",
        bare=True,
        example=("अंतिम उत्तर 13 है।", "13"),
    ),
    Announcement(
        language="Spanish",
        nouns=("respuesta", "solución"),
        between=r"(?:\s+(?:final|correcta))?",
        links=r"\s+(?:es|sería)\b",
        example=("La respuesta final es 13.", "13"),
    ),
    Announcement(
        language="French",
        nouns=("réponse", "résultat"),
        between=r"(?:\s+(?:finale|correcte))?",
        links=r"\s+est\b",
        example=("La réponse est donc : 13", "13"),
    ),
    Announcement(
        language="Arabic",
        nouns=("الإجابة", "الاجابة", "الجواب", "إجابة"),
        between=r"(?:\s+(?:النهائية|النهائي|الصحيحة|الصحيح))?",
        links=r"\s+(?:هي|هو)(?=[\s:])",
        example=("الإجابة النهائية هي 13", "13"),
    ),
    Announcement(
        language="Bengali",
        nouns=("উত্তর",),
        links=r"\s+(?:হল|হলো|হচ্ছে)(?=[\s:])",
        endings="হবে|হয়",
        bare=True,
        example=("উত্তর হল 13।", "13"),
    ),
    Announcement(
        language="Portuguese",
        nouns=("resposta",),
        between=r"(?:\s+(?:final|correta|certa))?",
        links=r"\s+(?:é|e)\b",
        example=("A resposta correta é 13.", "13"),
    ),
    Announcement(
        language="Russian",
        nouns=("ответ", "итого"),
        links=r"\s+(?:равен|будет|такой)\b",
        example=("**Ответ:** 13", "13"),
    ),
    Announcement(
        language="Urdu",
        nouns=("جواب",),
        links=r"\s+(?:یہ\s+)?ہے(?=[\s:])",
        endings="ہے|ہوگا",
        bare=True,
        example=("جواب 13 ہے۔", "13"),
    ),
    Announcement(
        language="German",
        nouns=("antwort", "ergebnis", "lösung", "resultat"),
        between=r"(?:\s+(?:darauf|somit|also))?",
        links=r"\s+(?:ist|lautet|beträgt)\b(?:\s+(?:somit|also|daher))?",
        example=("Die Antwort lautet 13.", "13"),
    ),
    Announcement(
        language="Japanese",
        nouns=("答え", "解答", "正解", "答"),
        between="え?",
        links="[はが]",
        endings="です|である|だ|になります|となる",
        example=("答えは13です。", "13"),
    ),
    Announcement(
        language="Korean",
        nouns=("정답", "답"),
        links="[은이는]",
        endings="입니다|이다|이에요|예요",
        example=("정답은 13입니다.", "13"),
    ),
    Announcement(
        language="Indonesian",
        nouns=("jawabannya", "jawaban"),
        between=r"(?:\s+(?:akhir|akhirnya|benar|yang benar))?",
        links=r"\s+(?:adalah|ialah)\b",
        example=("Jawabannya adalah 13.", "13"),
    ),
    Announcement(
        language="Italian",
        nouns=("risposta", "risultato"),
        between=r"(?:\s+(?:finale|corretta|giusta))?",
        links=r"\s+è(?=[\s:])",
        example=("La risposta finale è 13.", "13"),
    ),
    Announcement(
        language="Vietnamese",
        nouns=("đáp án", "đáp số", "câu trả lời"),
        between=r"(?:\s+(?:đúng|cuối cùng))?",
        links=r"\s+là(?=[\s:])",
        example=("Đáp án là 13.", "13"),
    ),
    Announcement(
        language="Turkish",
        nouns=("cevap", "cevabı", "yanıt"),
        links=r"\s+şudur",
        endings="['’]?(?:t[iıuü]r|d[iıuü]r)",
        example=("Cevap: 13", "13"),
    ),
    Announcement(
        language="Dutch",
        nouns=("antwoord",),
        links=r"\s+(?:is|luidt)\b",
        example=("Het antwoord is 13.", "13"),
    ),
    Announcement(
        language="Polish",
        nouns=(
            "odpowiedź",
            "odpowiedzią",
        ),
        links=r"\s+(?:to|jest)\b",
        example=("Odpowiedź: 13", "13"),
    ),
    Announcement(
        language="Swedish, Danish, Norwegian",
        nouns=(
            "svaret",
            "svar",
        ),
        links=r"\s+(?:är|er)\b",
        example=("Svaret är 13.", "13"),
    ),
    Announcement(
        language="Czech",
        nouns=("odpověď",),
        links=r"\s+je\b",
        example=("Odpověď je 13.", "13"),
    ),
    Announcement(
        language="Ukrainian",
        nouns=("відповідь",),
        links=r"\s+(?:є|дорівнює)\b",
        example=("Відповідь: 13", "13"),
    ),
    Announcement(
        language="Greek",
        nouns=("απάντηση",),
        links=r"\s+είναι(?=[\s:])",
        example=("Η απάντηση είναι 13.", "13"),
    ),
    Announcement(
        language="Hebrew",
        nouns=("תשובה",),
        links=r"\s+היא(?=[\s:])",
        example=("התשובה היא 13", "13"),
    ),
    Announcement(
        language="Persian",
        nouns=("پاسخ",),
        links=r"\s+برابر(?=[\s:])",
        bare=True,
        example=("پاسخ: 13", "13"),
    ),
    Announcement(
        language="Thai",
        nouns=("คำตอบ",),
        links=r"คือ",
        example=("คำตอบคือ 13", "13"),
    ),
    Announcement(
        language="Hungarian",
        nouns=("válasz",),
        links=r"\s+az\b",
        example=("A válasz: 13", "13"),
    ),
    Announcement(
        language="Romanian",
        nouns=(
            "răspunsul",
            "răspuns",
        ),
        links=r"\s+este\b",
        example=("Răspunsul este 13.", "13"),
    ),
    Announcement(
        language="Finnish",
        nouns=("vastaus",),
        links=r"\s+on\b",
        example=("Vastaus on 13.", "13"),
    ),
)

#: Words of languages other than English that negate, compare or offer an alternative to the value after a label.
DOUBTS = re.compile(
    r"\b(?:nicht|kein\w*|weder|entweder|oder|mindestens|höchstens|größer|kleiner|mehr als|weniger als|hälfte"
    r"|millionen|milliarden|n['’]est pas|pas|ni|soit|ou|au moins|au plus|supérieure?|inférieure?|plus de"
    r"|moins de|moitié|millions?"
    r"|no es|ni|o|al menos|como mínimo|mayor|menor|más de|menos de|mitad|millones|não|nem|pelo menos|maior"
    r"|mais de|metade"
    r"|milhões|non|né|almeno|al massimo|maggiore|minore|più di|meno di|metà|milioni|oppure|не|нет|или|либо"
    r"|больше|меньше"
    r"|более|менее|минимум|половина|миллион\w*|bukan|tidak|atau|minimal|lebih|kurang|setengah"
    r"|juta|değil|veya|ya da"
    r"|en az|en fazla|yarısı|milyon|không|hoặc|ít nhất|niet|of|minstens|geen|nie|lub|albo|inte"
    r"|eller|ikke)\b"
    r"|不是|并非|不等于|或|至少|至多|超过|超過|大于|小于|多于|少于|以上|以下|到\d|一半|万|亿|萬"
    r"|億|ではな|じゃな|または|もしくは"
    r"|あるいは|以内|未満|半分|より|と\s*\d|和\s*\d|、\s*\d|ではあり|보다|아닙|아니|또는|혹은"
    r"|이상|이하|초과|미만|절반|ليس|ليست|أو|على الأقل|أكثر|أقل|نصف|नहीं|या|कम से कम|आधा"
    r"|নয়|অথবা|বা|نہیں|یا|کم از کم",
    re.IGNORECASE,
)
#: Words before a label, in its sentence, that take back what it announces: "it is false that the answer is".
_DISCLAIMED = re.compile(
    r"\b(?:false|not true|untrue|doubt|wrong|incorrect|mistaken\w*|suppose|assume|assuming|whether|if|unless|said|says"
    r"|say|claims?|nobody|tempting|might think)\b",
    re.IGNORECASE,
)

#: How answers to multiple-choice questions are announced besides: "the correct option is C".
OPTIONS = (
    Announcement(
        language="English (options)",
        nouns=("option", "choice", "letter", "alternative", "statement"),
        links=r"\s+is\b",
        example=("The correct choice is (E).", "(E)."),
    ),
    Announcement(
        language="Chinese (options)", nouns=("故选", "应选", "选项", "选"), links="是|为", example=("故选：B", "B")
    ),
)

#: What golds begin with where a data set keeps the form of a solution: "A: 18", "# 18".
GOLD_LEAD = re.compile(r"\s*(?:A\s*:\s*|#{1,6}\s+)(?=\S)")

_FENCE = re.compile(r"\s*`{3,}\w*\s*")
#: What closes a label's marks; marks right before a value open those of the value.
_LEADING = re.compile(r"[ \t]*(?:[*_`~]+(?=[\s:：]))?[ \t]*[:：]?[ \t]*")
#: What precedes a label that has a line of its own: "## The final answer".
_OWN_LINE = re.compile(r"[\s>#*_`•\-–\d.)]*(?:(?:the|my|your|our|final|correct|so|thus)\s+)*", re.IGNORECASE)
_REST_OF_OWN_LINE = re.compile(r"[*_`\s]*(?=\n)")
#: Candidates of one noun that are looked at from the end; responses stuck in a loop repeat their label.
_MOST_CANDIDATES = 40
_DISPLAYED = ((re.compile(r"\s*\\\["), "\\]"), (re.compile(r"\s*\$\$"), "$$"))
_BRACKETS = (("(", ")"), ("[", "]"))
#: Characters at the end of a response in which labels of languages other than English are searched: there are many.
_OTHER_TAIL = 400
#: Lines after a label of which the first that is no mark holds the value.
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
    found = []
    for announcement in announcements:
        bare = r"|\s+(?=[$\\\d(\-−])" if announcement.bare else ""
        for noun in announcement.nouns:
            pattern = (
                rf"{re.escape(noun)}{_M}(?:\s*\([^()\n]{{1,30}}\))?{announcement.between}{_M}"
                rf"(?:{_COLON}|\s*(?:{announcement.links}){_ADVERBS}{bare})"
            )
            is_english = announcement.language.startswith("English")
            found.append(_Noun(noun, re.compile(pattern, re.IGNORECASE), announcement.endings, is_english))
    return tuple(found)


_ENGLISH_NOUNS = _nouns(tuple(one for one in ANNOUNCEMENTS if one.language == "English"))
_OTHER_NOUNS = _nouns(tuple(one for one in ANNOUNCEMENTS if one.language != "English"))
#: Those that a response in ASCII can hold.
_ASCII_NOUNS = tuple(noun for noun in _OTHER_NOUNS if noun.noun.isascii())
_OPTION_NOUNS = _nouns(OPTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Labelled:
    """What follows the last label of a response: ``line`` without marks, and ``stop``, where it ends in the text.

    ``is_doubted``: words of the label's language, not English, negate, compare or offer alternatives.
    """

    line: str
    stop: int
    is_doubted: bool = False


def labelled(text: str, *, options: bool = False) -> Labelled | None:
    r"""Find the last announcement of an answer and the line, or displayed formula, that follows it.

    Returns None where there is no label. ``line`` is "" where nothing but marks follows. ``options``: the answer may
    be announced as an option too.

    >>> labelled("The answer is: 7 pears.").line, labelled("### Answer\n\n**73**").line, labelled("We do not know.")
    ('7 pears.', '73', None)
    >>> labelled("**Answer:** **").line
    ''
    """
    lowered = text.lower()
    is_ascii = text.isascii()
    if not is_ascii and len(lowered) != len(text):
        lowered = text  # a letter whose lower case is two: positions would not agree
    start, label = -1, None
    for noun in (*_ENGLISH_NOUNS, *_OPTION_NOUNS) if options else _ENGLISH_NOUNS:
        if noun.noun in lowered:
            stop = _last_match(text, lowered, noun, after=start)
            if stop > start:
                start, label = stop, noun
    if label is None or not is_ascii:  # an ASCII response with an English label is in English
        end = lowered[-_OTHER_TAIL:]
        for noun in _ASCII_NOUNS if is_ascii else _OTHER_NOUNS:
            if noun.noun in end:
                stop = _last_match(text, lowered, noun, after=start)
                if stop > start:
                    start, label = stop, noun
    if label is None:
        return None
    found = _line_after(text, start, label.endings)
    if not label.is_english and DOUBTS.search(found.line) is not None:
        return replace(found, is_doubted=True)
    return found


def _last_match(text: str, lowered: str, noun: _Noun, *, after: int) -> int:
    """Where the last label with this noun ends, -1 without one that ends after ``after``."""
    position = len(text)
    for _ in range(_MOST_CANDIDATES):
        position = lowered.rfind(noun.noun, 0, position)
        if position < 0 or position + len(noun.noun) <= after:
            break
        found = noun.pattern.match(text, position)
        if found is not None:
            if noun.is_english and _DISCLAIMED.search(_sentence_before(text, position)) is not None:
                continue
            return found.end()
        own_line = _REST_OF_OWN_LINE.match(text, position + len(noun.noun))
        if own_line is not None and _OWN_LINE.fullmatch(text, text.rfind("\n", 0, position) + 1, position):
            return own_line.end()
    return -1


def _sentence_before(text: str, position: int) -> str:
    """What precedes a label in its sentence, at most 80 characters."""
    before = text[max(0, position - 80) : position]
    return before[max(before.rfind(end) for end in ".!?\n") + 1 :]


def _line_after(text: str, start: int, endings: str) -> Labelled:
    lead = _LEADING.match(text, start)
    position = lead.end() if lead is not None else start
    for opened, right in _DISPLAYED:
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
                return Labelled(line=_without_ending(line, endings), stop=stop)
        if stop == len(text):
            break
        position = stop + 1
    return Labelled(line="", stop=len(text))


def _without_ending(line: str, endings: str) -> str:
    while line and (line[-1] in " ,;:。।۔．" or _ends_unopened(line)):
        line = line[:-1]
    return re.sub(rf"\s*(?:{endings})\s*[.。।۔!]*$", "", line) if endings else line


def _ends_unopened(line: str) -> bool:
    """Whether a line ends with a bracket that was opened before its label."""
    return any(line.endswith(right) and line.count(left) < line.count(right) for left, right in _BRACKETS)
