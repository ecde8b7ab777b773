"""Convert fields of other tools' records to trajectories. Unusable fields raise ``BadField``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from oversharp.diagnostics.ingest.formats.fields import BadField
from oversharp.diagnostics.trajectories.messages import BadMessageError, read_turns, split_prompt
from oversharp.diagnostics.trajectories.record import Turn, Turns, is_trajectory, link_results
from oversharp.diagnostics.trajectories.transcripts import read_transcript


def read_messages(messages: Any, name: str) -> Turns:
    """Return the turns of the messages in the field ``name``. Raises ``BadField`` for messages that cannot be read."""
    try:
        return read_turns(messages)
    except BadMessageError as error:
        raise BadField(f"{name}: {error}") from None
    except RecursionError:
        raise BadField(f"{name} is nested too deeply") from None


def as_trajectory(turns: Turns) -> Turns | None:
    """Return the turns with their calls linked to results; None if they are one plain text, or nothing."""
    return link_results(turns) if turns and is_trajectory(turns) else None


def get_turns(
    fields: Mapping[str, Any], name: str, *, convert: Callable[[Turn], Turn] = lambda turn: turn
) -> Turns | None:
    """Return the turns of a response in the form of chat messages; None if it is one plain text.

    ``convert`` is applied to each turn. Raises ``BadField`` for messages that cannot be read.

    >>> get_turns({"output": "4"}, "output"), get_turns({"output": [{"role": "assistant", "content": "4"}]}, "output")
    (None, None)
    """
    value = fields.get(name)
    return as_trajectory(tuple(map(convert, read_messages(value, name)))) if isinstance(value, list) else None


def transcript_turns(text: str) -> Turns | None:
    """Return the turns of a response that a chat template has joined; None if it is one plain text."""
    turns = read_transcript(text)
    return None if turns is None else as_trajectory(turns)


def get_conversation(fields: Mapping[str, Any], name: str) -> tuple[str, Turns]:
    """Return the prompt of a conversation, which is the turns before the model's first, and the other turns.

    The messages may be a list or its JSON text. Raises ``BadField`` for messages that cannot be read, and without a
    prompt.

    >>> messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    >>> prompt, turns = get_conversation({"chat": messages}, "chat")
    >>> prompt, turns[0].text
    ('2+2?', '4')
    """
    value = fields.get(name)
    if value is None:
        raise BadField(f"no {name}")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadField(f"{name} is text, not a list of messages") from None
    prompt, turns = split_prompt(read_messages(value, name))
    if not prompt:
        raise BadField(f"{name} has no message before the model's first")
    return join_prompt(prompt), turns


def join_prompt(turns: Turns) -> str:
    """Return the text of a single turn, or the texts of all turns with their roles.

    >>> join_prompt((Turn(role="system", text="Add."), Turn(role="user", text="2+2?")))
    'system: Add.\\n\\nuser: 2+2?'
    """
    if len(turns) == 1:
        return turns[0].text
    return "\n\n".join(f"{turn.role}: {turn.text}" for turn in turns)
