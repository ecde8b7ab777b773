"""Short titles of prompts: the question, without chat markup and text shared with other prompts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from os.path import commonprefix

#: Markup around a user turn: ChatML, Llama 3, Gemma, Phi and GLM, DeepSeek, Llama 2 and Mistral.
_TURNS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<\|im_start\|>user\n(.*?)(?:<\|im_end\|>|\Z)",
        r"<\|start_header_id\|>user<\|end_header_id\|>(.*?)(?:<\|eot_id\|>|\Z)",
        r"<start_of_turn>user\n(.*?)(?:<end_of_turn>|\Z)",
        r"<\|user\|>(.*?)(?:<\|end\|>|<\|assistant\|>|\Z)",
        r"<｜User｜>(.*?)(?:<｜Assistant｜>|\Z)",
        r"\[INST\](?:\s*<<SYS>>.*?<</SYS>>)?(.*?)(?:\[/INST\]|\Z)",
    )
)
#: User turns whose role is a plain word. Chats look so if decoded without special tokens, or written by the importers.
_ROLE_LINES = (("\nuser\n", "\nassistant"), ("\n\nuser: ", "\n\nassistant: "))
_FIRST_ROLES = ("system", "user", "assistant")
#: Ends of lines and sentences. Shared text is removed only up to such an end.
_ENDS = re.compile(r"\n\s*|(?<=[.!?:])\s+")


def prompt_titles(prompts: Sequence[str]) -> list[str]:
    r"""Return a one-line title of each prompt: the last user turn, without shared text.

    Shared text is whole lines and sentences at the beginning and at the end of the prompts. It is removed only if no
    title becomes empty. With ten or more prompts, nine in ten must share it, and the others are not shortened. Unknown
    chat markup is not removed.

    >>> chat = "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nSolve it. {}<|im_end|>\n"
    >>> prompt_titles([chat.format("What is 3 + 4?"), chat.format("What is 3 + 5?")])
    ['What is 3 + 4?', 'What is 3 + 5?']
    >>> prompt_titles(["Reach 24 from 3 4 5.\nAnswer in a box."])
    ['Reach 24 from 3 4 5. Answer in a box.']
    """
    questions = [_last_question(prompt) for prompt in prompts]
    whole = set(questions)
    shortened = {text: text for text in whole}
    if start := _common_text(whole, from_end=False):
        shortened |= {text: text[len(start) :] for text in whole if text.startswith(start)}
    if end := _common_text(set(shortened.values()), from_end=True):
        shortened |= {text: rest[: -len(end)] for text, rest in shortened.items() if rest.endswith(end)}
    if not all(rest.strip() for rest in shortened.values()):
        shortened = {}
    return [" ".join(shortened.get(text, text).split()) for text in questions]


def _last_question(prompt: str) -> str:
    """Return the last user turn, or the whole prompt if it has no turns."""
    for turn in _TURNS:
        turns = [text for text in turn.findall(prompt) if text.strip()]
        if turns:
            return str(turns[-1]).strip()
    return _after_role_lines(prompt.strip())


def _after_role_lines(text: str) -> str:
    r"""Return the last user turn if roles are plain words. Text without roles is returned unchanged.

    >>> _after_role_lines("system: Add.\n\nuser: 2 + 2?"), _after_role_lines("user\n2 + 2?\nassistant")
    ('2 + 2?', '2 + 2?')
    """
    for user, assistant in _ROLE_LINES:
        separator = user.lstrip("\n").removeprefix("user")
        if text.startswith(tuple(f"{role}{separator}" for role in _FIRST_ROLES)):
            question = f"{user[: user.index('u')]}{text}".rpartition(user)[2]
            return (question.rpartition(assistant)[0] or question).strip()
    return text


def _common_text(texts: Collection[str], *, from_end: bool) -> str:
    """Return the whole lines and sentences that nearly all texts begin (or end) with; may be empty."""
    ordered = sorted(text[::-1] if from_end else text for text in texts)
    n = len(ordered) if len(ordered) < 10 else math.ceil(0.9 * len(ordered))
    if n < 2:
        return ""
    # sorted texts with the same beginning are adjacent, so a common prefix of the first and the last of n is common to
    # all n
    pairs = zip(ordered, ordered[n - 1 :], strict=False)
    beginnings = {commonprefix(pair) for pair in pairs}  # noqa: RUF071 - by character, as intended
    if from_end:
        return max((_whole_suffix(shared[::-1]) for shared in beginnings), key=len)
    return max((_whole_prefix(shared) for shared in beginnings), key=len)


def _whole_prefix(shared: str) -> str:
    """Return the whole lines and sentences of a common prefix."""
    return shared[: max((match.end() for match in _ENDS.finditer(shared)), default=0)]


def _whole_suffix(shared: str) -> str:
    """Return the whole lines and sentences of a common suffix."""
    first = _ENDS.search(shared)
    return "" if first is None else shared[first.start() :]
