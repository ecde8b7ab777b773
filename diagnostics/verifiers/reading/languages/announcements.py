"""Labels that announce an answer, by language, and words after a label that leave no single answer."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """Labels of answers in one language.

    ``nouns`` are in lower case. ``between`` is text that may occur between noun and link. ``links`` connect the noun
    with its value, like a colon. ``bare``: the value may follow the noun directly. ``endings`` close the sentence after
    the value. ``example`` is a response and the answer that it announces.
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

#: Words after a label, in languages other than English, that negate, compare, or offer an alternative.
DOUBTS = re.compile(
    r"\b(?:nicht|kein\w*|weder|entweder|oder|mindestens|höchstens|größer|kleiner|mehr als|weniger als|hälfte"
    r"|n['’]est pas|pas|ni|soit|ou|au moins|au plus|supérieure?|inférieure?|plus de"
    r"|moins de|moitié"
    r"|no es|ni|o|al menos|como mínimo|mayor|menor|más de|menos de|mitad|não|nem|pelo menos|maior"
    r"|mais de|metade"
    r"|non|né|almeno|al massimo|maggiore|minore|più di|meno di|metà|oppure|не|нет|или|либо"
    r"|больше|меньше"
    r"|более|менее|минимум|половина|bukan|tidak|atau|minimal|lebih|kurang|setengah"
    r"|değil|veya|ya da"
    r"|en az|en fazla|yarısı|không|hoặc|ít nhất|niet|of|minstens|geen|nie|lub|albo|inte"
    r"|eller|ikke)\b"
    r"|不是|并非|不等于|或|至少|至多|超过|超過|大于|小于|多于|少于|以上|以下|到\d|一半"
    r"|ではな|じゃな|または|もしくは"
    r"|あるいは|以内|未満|半分|より|と\s*\d|和\s*\d|、\s*\d|ではあり|보다|아닙|아니|또는|혹은"
    r"|이상|이하|초과|미만|절반|ليس|ليست|أو|على الأقل|أكثر|أقل|نصف|नहीं|या|कम से कम|आधा"
    r"|নয়|অথবা|বা|نہیں|یا|کم از کم",
    re.IGNORECASE,
)

#: Additional labels of answers to multiple-choice questions, such as "the correct option is C".
OPTIONS = (
    Announcement(
        language="English (options)",
        nouns=("option", "choice", "letter", "alternative", "statement"),
        links=r"\s+is\b",
        example=("The correct choice is (E).", "(E)."),
    ),
    Announcement(
        language="Chinese (options)",
        nouns=("故选", "应选", "选"),
        links=r"是|为|(?=\s*[(（]?[A-Z])",
        example=("故选：B", "B"),
    ),
    Announcement(language="Chinese (named options)", nouns=("选项",), links="是|为", example=("选项是B", "B")),
)
