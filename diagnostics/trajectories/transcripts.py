r"""Read turns from texts in which a chat template has joined them, as verl and SkyRL dump responses.

The templates of Qwen and Hermes put calls into ``<tool_call>`` and observations, in a turn of the user, into
``<tool_response>``. A call is JSON, or in the tags of Qwen3-Coder or GLM, whose arguments are then texts. With special
tokens (``<|im_start|>``) the borders of all turns are exact. verl drops special tokens, so a border is the plain words
``\nuser\n<tool_response>``. Other turns of users look like the model's text, and a model may write these words itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from oversharp.diagnostics.trajectories.messages import role_named
from oversharp.diagnostics.trajectories.record import Call, Turn, Turns, call_of

_START = re.compile(r"<\|im_start\|>([a-z_]+)\n")
_END = "<|im_end|>"
#: Start of a turn with observations, without special tokens; and the end of the last observation.
_OBSERVED = re.compile(r"\nuser\n\s*(?=<tool_response>)")
_ANSWERED = re.compile(r"(</tool_response>)\s*(assistant|user)\n")
_NEXT_MODEL = re.compile(r"(?:\A|\n)assistant\n")
_RESULT, _RESULT_END = "<tool_response>", "</tool_response>"
_BETWEEN = re.compile(r"\n?</tool_response>\s*<tool_response>\n?")
_CALL = re.compile(r"\s*<tool_call>\s*")
_CALL_END = re.compile(r"\s*(?:</tool_call>|(?=<tool_call>)|\Z)")
#: A call of Qwen3-Coder and its arguments; arguments of GLM, after the name.
_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*)</function>\s*\Z", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_SIGNS = ("<tool_call>", _RESULT, "<|im_start|>")
_decode = json.JSONDecoder().raw_decode


def read_transcript(text: str) -> Turns | None:
    r"""Return the turns in the text of a response; None if it has neither calls nor borders of turns.

    >>> text = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>\nuser\n<tool_response>\n7\n'
    >>> [turn.role for turn in read_transcript(text + "</tool_response>\nassistant\nIt is 7")]
    ['assistant', 'tool', 'assistant']
    >>> read_transcript("It is 7")
    """
    if not any(sign in text for sign in _SIGNS):
        return None
    return tuple(_read_special(text) if _START.search(text) else _read_plain(text))


def read_between(text: str) -> Turns:
    r"""Return the turns in a text between two turns of the model: observations, or the words of a user.

    >>> [(turn.role, turn.text) for turn in read_between("\nuser\nAre you sure?\nassistant\n")]
    [('user', 'Are you sure?')]
    """
    turns = tuple(turn for turn in _read_special(text) if turn.text or turn.role != "assistant")
    if not _START.search(text):
        words = text.strip().removeprefix("user\n").removesuffix("assistant").strip()
        turns = tuple(_observations(words)) if words.startswith(_RESULT) else (Turn(role="user", text=words),)
    return turns


def _read_special(text: str) -> Iterator[Turn]:
    """Yield the turns of a text with special tokens. The first is the model's."""
    starts = list(_START.finditer(text))
    edges = [0, *(edge for start in starts for edge in start.span()), len(text)]
    roles = ["assistant", *(start[1] for start in starts)]
    for number, role in enumerate(roles):
        words = text[edges[2 * number] : edges[2 * number + 1]].rstrip().removesuffix(_END)
        if role_named(role) == "assistant":
            if words or number < len(roles) - 1:  # the last is empty if the response ended before it
                yield read_calls(words)
        elif words.lstrip().startswith(_RESULT):
            yield from _observations(words)
        else:
            yield Turn(role=role_named(role) or "user", text=words)


def _read_plain(text: str) -> Iterator[Turn]:
    """Yield the turns of a text without special tokens."""
    start = 0
    while (border := _OBSERVED.search(text, start)) is not None:
        yield read_calls(text[start : border.start()].rstrip())
        answered = _ANSWERED.search(text, border.end())
        if answered is None:
            rest, tag, border_start = text[border.end() :].rpartition(_RESULT_END)
            is_cut = tag and "assistant".startswith(border_start.strip())
            yield from _observations(rest + tag if is_cut else text[border.end() :])
            return
        yield from _observations(text[border.end() : answered.end(1)])
        start = answered.end()
        if answered[2] == "user":
            resumed = _NEXT_MODEL.search(text, start - 1)
            yield Turn(role="user", text=text[start : len(text) if resumed is None else resumed.start()])
            start = len(text) if resumed is None else resumed.end()
    if start < len(text) or not start:
        yield read_calls(text[start:])


def _observations(text: str) -> Iterator[Turn]:
    """Yield the observations of one turn. The last may be truncated."""
    words = text.strip().removeprefix(_RESULT).removesuffix(_RESULT_END)
    for result in _BETWEEN.split(words):
        yield Turn(role="tool", text=result.removeprefix("\n").removesuffix("\n"))


def read_calls(text: str) -> Turn:
    """Return a turn of the model, with the calls that its text contains. A call that is no JSON is not valid."""
    calls: list[Call] = []
    kept: list[str] = []
    end = 0
    while (start := _CALL.search(text, end)) is not None:
        kept.append(text[end : start.start()])
        call, end = _read_call(text, start.end())
        calls.append(call)
    return Turn(role="assistant", text="".join([*kept, text[end:]]) if calls else text, calls=tuple(calls))


def _read_call(text: str, start: int) -> tuple[Call, int]:
    """Return the call that begins at ``start``, and its end. JSON may contain the tags."""
    try:
        call, end = _decode(text, start)
    except (ValueError, RecursionError):
        call, end = None, start
    closed = _CALL_END.match(text, end) if isinstance(call, Mapping) else None
    if closed is None:
        closed = _CALL_END.search(text, start)
        assert closed is not None  # \Z matches
        return _read_tags(text[start : closed.start()]), closed.end()
    return call_of(call.get("name"), call.get("arguments", call.get("parameters"))), closed.end()


def _read_tags(content: str) -> Call:
    """Return a call in the tags of Qwen3-Coder or GLM. A call in another syntax is not valid."""
    if (function := _FUNCTION.match(content)) is not None:
        return call_of(function[1].strip(), dict(_PARAMETER.findall(function[2])))
    if pairs := _PAIR.findall(content):
        return call_of(content.partition("<arg_key>")[0].strip(), dict(pairs))
    return Call(name="", arguments=content, is_valid=False)
