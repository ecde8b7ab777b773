"""Prompts as people know their problems: the question, without chat markup and without what all prompts say."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

#: What a user's turn stands between: ChatML, Llama 3, Gemma, Phi and GLM, DeepSeek, Llama 2 and Mistral.
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
#: The user's turn where roles are words: as undecoded special tokens leave them, and as the importers write them.
_ROLE_LINES = (("\nuser\n", "\nassistant"), ("\n\nuser: ", "\n\nassistant: "))
_FIRST_ROLES = ("system", "user", "assistant")
#: Where a text may be cut so that what is left reads as a whole: after a line, or after a sentence.
_ENDS = re.compile(r"\n\s*|(?<=[.!?:])\s+")


def prompt_titles(prompts: Sequence[str]) -> list[str]:
    r"""A title for each prompt, in one line: the last turn of the user, without what ``prompts`` have in common.

    Whole lines and sentences at the beginning and at the end that are the same in every prompt are left out, where
    something of every prompt remains. Of ten prompts or more nine in ten must have them: a few others stay whole. What
    is not known as chat markup stays.

    >>> chat = "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nSolve it. {}<|im_end|>\n"
    >>> prompt_titles([chat.format("What is 3 + 4?"), chat.format("What is 3 + 5?")])
    ['What is 3 + 4?', 'What is 3 + 5?']
    >>> prompt_titles(["Reach 24 from 3 4 5.\nAnswer in a box."])
    ['Reach 24 from 3 4 5. Answer in a box.']
    """
    questions = [_question(prompt) for prompt in prompts]
    whole = set(questions)
    cut = {text: text for text in whole}
    if start := _shared(whole, from_end=False):
        cut |= {text: text[len(start) :] for text in whole if text.startswith(start)}
    if end := _shared(set(cut.values()), from_end=True):
        cut |= {text: rest[: -len(end)] for text, rest in cut.items() if rest.endswith(end)}
    if not all(rest.strip() for rest in cut.values()):
        cut = {}
    return [" ".join(cut.get(text, text).split()) for text in questions]


def _question(prompt: str) -> str:
    """The last turn of the user, or all of a prompt that has no turns."""
    for turn in _TURNS:
        said = [text for text in turn.findall(prompt) if text.strip()]
        if said:
            return str(said[-1]).strip()
    return _after_role_lines(prompt.strip())


def _after_role_lines(text: str) -> str:
    r"""
    >>> _after_role_lines("system: Add.\n\nuser: 2 + 2?"), _after_role_lines("user\n2 + 2?\nassistant")
    ('2 + 2?', '2 + 2?')
    """
    for user, assistant in _ROLE_LINES:
        sign = user.lstrip("\n").removeprefix("user")
        if text.startswith(tuple(f"{role}{sign}" for role in _FIRST_ROLES)):
            asked = f"{user[: user.index('u')]}{text}".rpartition(user)[2]
            return (asked.rpartition(assistant)[0] or asked).strip()
    return text


def _shared(texts: Collection[str], *, from_end: bool) -> str:
    """The whole lines and sentences that nearly all begin with, or end with; empty where there are none."""
    ordered = sorted(text[::-1] if from_end else text for text in texts)
    n = len(ordered) if len(ordered) < 10 else math.ceil(0.9 * len(ordered))
    if n < 2:
        return ""
    # in alphabetical order those that begin alike stand together: what the first and the last of n share, all n do
    beginnings = {_beginning(first, last) for first, last in zip(ordered, ordered[n - 1 :], strict=False)}
    if from_end:
        ends = [shared[::-1] for shared in beginnings]
        return max((shared[len(shared) - _end(shared) :] for shared in ends), key=len)
    return max((shared[: _start(shared)] for shared in beginnings), key=len)


def _beginning(first: str, last: str) -> str:
    """The characters that both begin with."""
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _start(shared: str) -> int:
    """How much of the text that all begin with is whole lines and sentences."""
    return max((match.end() for match in _ENDS.finditer(shared)), default=0)


def _end(shared: str) -> int:
    """How much of the text that all end with is whole lines and sentences."""
    first = _ENDS.search(shared)
    return 0 if first is None else len(shared) - first.start()
