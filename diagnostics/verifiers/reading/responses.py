r"""Split a response into the model's thinking and the final part, which alone may state the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import decimal

from oversharp.diagnostics.verifiers.reading.boxes import with_plain_boxes

#: Delimiters of a model's thinking: (name, opening, closing). Names of tags match in any letter case.
THOUGHTS: tuple[tuple[str, str, str], ...] = (
    ("DeepSeek-R1, Qwen3", "<think>", "</think>"),
    ("Reflection, prompts that ask for tags", "<thinking>", "</thinking>"),
    ("prompts that ask for tags", "<reasoning>", "</reasoning>"),
    ("prompts that ask for tags", "<thought>", "</thought>"),
    ("Sky-T1", "<|begin_of_thought|>", "<|end_of_thought|>"),
    ("Mistral", "[THINK]", "[/THINK]"),
    ("Kimi", "◁think▷", "◁/think▷"),
    ("Seed-OSS", "<seed:think>", "</seed:think>"),
    ("Cohere", "<|START_THINKING|>", "<|END_THINKING|>"),
    ("gpt-oss", "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
_OPENING = re.compile("|".join(re.escape(opening) for _, opening, _ in THOUGHTS), re.IGNORECASE)
_CLOSING = re.compile("|".join(re.escape(closing) for _, _, closing in THOUGHTS), re.IGNORECASE)
_DELIMITER = re.compile(f"{_OPENING.pattern}|{_CLOSING.pattern}", re.IGNORECASE)
#: Special tokens at the end of a response, as tokenizers write them: <|im_end|>, <｜end▁of▁sentence｜>, </s>, …
_SPECIAL = re.compile(
    r"(?:\s*(?:<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>|</?s>|<(?:eos|bos|pad|unk|eot|eod|end|sep|endoftext|im_end"
    r"|start_of_turn|end_of_turn|end_of_utterance)>|\[(?:/INST|INST|EOS|PAD|SEP|/ASSISTANT)\]|<unused\d+>))+\s*\Z",
    re.IGNORECASE,
)
#: Tokens after which another turn begins.
_END_OF_TURN = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end_of_text|eom_id|return)\|>|</s>|<end_of_turn>|<｜end▁of▁sentence｜>|<eos>"
)
#: Decimal digits of Arabic, Persian, Devanagari, Bengali, Thai and other scripts.
_DIGITS_OF_SCRIPTS = re.compile(r"[٠-٩۰-۹०-९০-৯੦-੯૦-૯୦-୯௦-௯౦-౯೦-೯൦-൯๐-๙]")
_ENDS_SPECIAL = (">", "]")
#: HTML tags around an answer. Block tags begin a new line.
_INLINE_TAGS = re.compile(r"</?(?:b|strong|i|em|u|span|mark|ins|font|code|big)(?:\s[^<>]*)?>", re.IGNORECASE)
_BLOCK_TAGS = re.compile(r"</?(?:p|div|center|section|h[1-6]|li|ul|ol)(?:\s[^<>]*)?>|<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalPart:
    """The part of a response that may state its answer.

    ``text`` is that part, "" if there is none. ``thoughts`` is the thinking without delimiters, None if the response
    marks no thinking. ``is_unfinished``: the thinking was opened and never closed.
    """

    text: str
    thoughts: str | None = None
    is_unfinished: bool = False


def without_special_tokens(text: str) -> str:
    """Remove the text from the first end-of-turn token on, and special tokens at the end.

    >>> without_special_tokens("Answer: C<|im_end|>\\n"), without_special_tokens("x <y>")
    ('Answer: C', 'x <y>')
    >>> without_special_tokens("It is 41.<|endoftext|>Human: 6 * 7? It is 42.")
    'It is 41.'
    """
    if "<" not in text and not text.rstrip().endswith("]"):
        return text
    turn = _END_OF_TURN.search(text)
    if turn is not None and text[: turn.start()].strip():
        text = text[: turn.start()]
    if not text.rstrip().endswith(_ENDS_SPECIAL):
        return text
    # searching a long response from its start would be slow
    start = max(0, len(text) - 400)
    match = _SPECIAL.search(text, start)
    return text if match is None else text[: match.start()]


def marks_thoughts(text: str) -> bool:
    """Return whether a response contains a delimiter of thinking."""
    if "<" in text and _DELIMITER.search(text) is not None:
        return True
    return ("]" in text and "THINK]" in text) or (not text.isascii() and "think▷" in text)


@lru_cache(maxsize=4096)
def opens_thoughts(prompt: str) -> bool:
    r"""Return whether a prompt ends with an opening delimiter of thinking.

    >>> opens_thoughts("6 * 7?\n<think>\n"), opens_thoughts("Use <think> tags.")
    (True, False)
    """
    end = prompt[-60:].rstrip()
    return any(match.end() == len(end) for match in _OPENING.finditer(end))


def answer_text(text: str, *, prompt: str = "") -> str:
    r"""Return the final part of a response without HTML tags, with every frame as ``\boxed{…}``.

    >>> answer_text(r"<think>\boxed{41}</think> So \boxed 42.<|im_end|>")
    ' So \\boxed{42}.'
    """
    if "<" not in text and "]" not in text and text.isascii() and not opens_thoughts(prompt):
        return with_plain_boxes(text)  # fast path: no tags, special tokens or delimiters of thinking
    if not text.isascii():
        text = with_plain_digits(text)
    if "<" in text and "</" in text:  # searching for one character is ten times as fast as searching for two
        text = _BLOCK_TAGS.sub("\n", _INLINE_TAGS.sub("", text))
    has_thoughts = marks_thoughts(text) or opens_thoughts(prompt)
    return with_plain_boxes(final_part(text, prompt=prompt).text if has_thoughts else without_special_tokens(text))


def with_plain_digits(text: str) -> str:
    """Replace the decimal digits of other scripts by 0 to 9.

    >>> with_plain_digits("الجواب هو ٤٢"), with_plain_digits("x²")
    ('الجواب هو 42', 'x²')
    """
    return _DIGITS_OF_SCRIPTS.sub(lambda digit: str(decimal(digit[0])), text)


def final_part(text: str, *, prompt: str = "") -> FinalPart:
    r"""Split a response into its thinking and the part that states its answer.

    If a closing delimiter has no opening one, the prompt opened the thinking. If a ``prompt`` ends with an opening
    delimiter, the response begins inside the thinking.

    >>> final_part("<think>41?</think> It is 42.<|im_end|>").text, final_part("6 * 7 = 42").text
    (' It is 42.', '6 * 7 = 42')
    >>> final_part("<think>So it is 41").is_unfinished, final_part("so 41", prompt="6 * 7?\n<think>\n").is_unfinished
    (True, True)
    """
    text = without_special_tokens(text)
    opened_by_prompt = opens_thoughts(prompt)
    if not opened_by_prompt and not marks_thoughts(text):
        return FinalPart(text=text)
    closings = list(_CLOSING.finditer(text))
    closed = closings[-1] if closings else None
    start = closed.end() if closed is not None else 0
    reopened = _OPENING.search(text, start)
    if reopened is not None:
        # the text before the thinking was reopened may state the answer
        thoughts = _without_delimiters(text[:start] + text[reopened.end() :])
        return FinalPart(text=text[start : reopened.start()], thoughts=thoughts, is_unfinished=True)
    if closed is None:
        return FinalPart(text="", thoughts=text, is_unfinished=True) if opened_by_prompt else FinalPart(text=text)
    return FinalPart(text=text[start:], thoughts=_without_delimiters(text[: closed.start()]))


def _without_delimiters(text: str) -> str:
    return _DELIMITER.sub("", text)
