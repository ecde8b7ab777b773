r"""Read turns from texts in which a chat template has joined them, as verl and SkyRL dump responses.

The templates of Qwen and Hermes put calls into ``<tool_call>`` and observations, in a turn of the user, into
``<tool_response>``. verl drops special tokens, so a border is the plain words ``\nuser\n<tool_response>``. A model that
writes these words itself cannot be distinguished from the template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from oversharp.diagnostics.trajectories.record import Call, Turn, Turns, call_of

_OBSERVATIONS = re.compile(
    r"(?:<\|im_end\|>)?\s*(?:\n|<\|im_start\|>)user\n"
    r"(?P<results>(?:\s*<tool_response>.*?</tool_response>)+)"
    r"(?:<\|im_end\|>)?\s*(?:(?:<\|im_start\|>)?assistant\n|\Z)",
    re.DOTALL,
)
_RESULT = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_CALL = re.compile(r"\s*<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_SIGNS = ("<tool_call>", "<tool_response>")


def read_transcript(text: str) -> Turns | None:
    r"""Return the turns in the text of a response; None if it has neither calls nor observations.

    >>> text = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>\nuser\n<tool_response>\n7\n'
    >>> [turn.role for turn in read_transcript(text + "</tool_response>\nassistant\nIt is 7")]
    ['assistant', 'tool', 'assistant']
    >>> read_transcript("It is 7")
    """
    if not any(sign in text for sign in _SIGNS):
        return None
    turns: list[Turn] = []
    start = 0
    for border in _OBSERVATIONS.finditer(text):
        turns.append(read_calls(text[start : border.start()]))
        turns += [Turn(role="tool", text=result) for result in _RESULT.findall(border["results"])]
        start = border.end()
    if start < len(text) or not turns:
        turns.append(read_calls(text[start:]))
    return tuple(turns)


def read_calls(text: str) -> Turn:
    """Return a turn of the model, with the calls that its text contains. A call that is no JSON is not valid."""
    calls = tuple(_read_call(found[1]) for found in _CALL.finditer(text))
    return Turn(role="assistant", text=_CALL.sub("", text) if calls else text, calls=calls)


def _read_call(content: str) -> Call:
    try:
        call = json.loads(content)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, Mapping):
        return Call(name="", arguments=content, is_valid=False)
    return call_of(call.get("name"), call.get("arguments", call.get("parameters")))
