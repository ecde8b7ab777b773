"""Read turns from chat messages in the forms that tools write.

- OpenAI: ``tool_calls`` with ``function.name`` and ``function.arguments`` (text or object), ``tool_call_id``;
  the former ``function_call``
- verifiers, Every Eval Ever, inspect: calls with ``name`` or ``function`` and ``arguments``; calls as JSON text
- Anthropic: content parts ``tool_use`` and ``tool_result``
- ShareGPT: ``from`` and ``value``, with the roles ``function_call`` and ``observation``
- Responses API: items ``function_call``, ``function_call_output`` and ``reasoning``

Fields without a place in ``Turn`` are kept in ``extra``. A part that is no text, such as an image, is named in the text
as ``[image]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oversharp.diagnostics.trajectories.record import Call, Role, Turn, Turns, call_of

_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("assistant", "model", "ai", "gpt", "agent", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "environment", "tool_response"), "tool"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("system", "developer"), "system"),
}
_REASONING = ("reasoning_content", "reasoning", "reasoning_trace", "thinking")
_REASONING_PARTS = frozenset({"reasoning", "thinking"})
#: Fields that become fields of ``Turn``.
_READ = frozenset(
    {"role", "from", "content", "value", "tool_calls", "function_call", "tool_call_id", "name", "error", *_REASONING}
)
#: Fields that differ between equal trajectories.
_NOISE = frozenset({"timestamp", "turn_idx"})


class BadMessageError(ValueError):
    """A message that cannot be read. The text says why."""


def read_turns(messages: Any) -> Turns:
    """Return the turns of a list of messages. Raises ``BadMessageError`` unless it is a list of messages.

    >>> call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    >>> read_turns([{"role": "assistant", "content": None, "tool_calls": [call]}])[0].calls[0].arguments
    '{"a": 1}'
    """
    if not isinstance(messages, list):
        raise BadMessageError("is not a list of messages")
    return tuple(turn for place, message in enumerate(messages, start=1) for turn in _read_message(message, place))


def split_prompt(turns: Turns) -> tuple[Turns, Turns]:
    """Return the turns before the model's first turn, and the others."""
    first = next((place for place, turn in enumerate(turns) if turn.role == "assistant"), len(turns))
    return turns[:first], turns[first:]


def _read_message(message: Any, place: int) -> Iterator[Turn]:
    if not isinstance(message, Mapping):
        raise BadMessageError(f"message {place} is not an object")
    fields = {name: value for name, value in message.items() if value is not None}
    if fields.get("type") in _ITEMS:
        yield _read_item(fields, place)
        return
    role = _role(fields, place)
    content = fields.get("content", fields.get("value"))
    if isinstance(content, list) and (results := [part for part in content if _type(part) == "tool_result"]):
        for result in results:
            text, _, _ = _read_content(result.get("content"), place)
            yield Turn(
                role="tool",
                text=text,
                call_id=_optional(result.get("tool_use_id")),
                is_error=True if result.get("is_error") else None,
            )
        content = [part for part in content if _type(part) != "tool_result"]
        if not content:
            return
    text, thoughts, calls = _read_content(content, place)
    own = [fields[name] for name in _REASONING if isinstance(fields.get(name), str) and fields[name]]
    reasoning = "\n".join([*own, *thoughts]) or None
    if role == "assistant":
        yield Turn(
            role=role,
            text="" if _is_call_text(fields) else text,
            reasoning=reasoning,
            calls=(*_text_calls(fields, text), *calls, *_read_calls(fields, place)),
            extra=_extra(fields),
        )
    else:
        error = fields.get("error")
        yield Turn(
            role=role,
            text=text,
            reasoning=reasoning,
            name=_optional(fields.get("name", fields.get("function"))) if role == "tool" else None,
            call_id=_call_id(fields.get("tool_call_id")) if role == "tool" else None,
            is_error=True if role == "tool" and error else None,
            extra=_extra(fields),
        )


def _role(fields: Mapping[str, Any], place: int) -> Role:
    name = fields.get("role", fields.get("from"))
    role = _ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise BadMessageError(f"message {place} has the unknown role {name!r}")
    return role


def _read_content(content: Any, place: int) -> tuple[str, list[str], list[Call]]:
    """Return text, reasoning and calls of a content. Parts of other types are named in the text."""
    if content is None:
        return "", [], []
    if isinstance(content, str):
        return content, [], []
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False), [], []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for part in content:
        kind = _type(part)
        if isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, Mapping):
            raise BadMessageError(f"message {place} has a content that is neither text nor a list of parts")
        elif kind in _REASONING_PARTS:
            thoughts += [part[name] for name in (*_REASONING, "text") if isinstance(part.get(name), str)][:1]
        elif kind == "tool_use":
            calls.append(call_of(part.get("name"), part.get("input"), id=part.get("id")))
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            texts.append(f"[{kind.removesuffix('_url') if kind else 'part without text'}]")
    return "\n".join(texts), thoughts, calls


def _type(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else None


def _read_calls(fields: Mapping[str, Any], place: int) -> Iterator[Call]:
    given = fields.get("tool_calls")
    if given is None:
        former = fields.get("function_call")
        given = [] if former is None else [former]
    if isinstance(given, str):  # a list as JSON text
        given = _parse(given)
    if not isinstance(given, list):
        raise BadMessageError(f"message {place} has tool_calls that are not a list")
    for call in given:
        yield _read_call(call)


def _read_call(call: Any) -> Call:
    parsed = _parse(call) if isinstance(call, str) else call
    if not isinstance(parsed, Mapping):
        return Call(name="", arguments=call if isinstance(call, str) else json.dumps(call), is_valid=False)
    function = parsed.get("function")
    called = function if isinstance(function, Mapping) else parsed
    name = function if isinstance(function, str) else called.get("name")
    arguments = called.get("arguments", called.get("input", called.get("parameters")))
    return call_of(name, arguments, id=parsed.get("id", parsed.get("call_id")), is_valid=not parsed.get("parse_error"))


def _is_call_text(fields: Mapping[str, Any]) -> bool:
    """Return whether the message of a ShareGPT chat is a call as JSON text."""
    return fields.get("from") in ("function_call", "tool_call") or fields.get("role") in ("function_call", "tool_call")


def _text_calls(fields: Mapping[str, Any], text: str) -> Iterator[Call]:
    if _is_call_text(fields):
        parsed = _parse(text)
        for call in parsed if isinstance(parsed, list) else [text if parsed is None else parsed]:
            yield _read_call(call)


def _call_id(value: Any) -> str | None:
    return _optional(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _optional(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _extra(fields: Mapping[str, Any]) -> str | None:
    kept = {name: value for name, value in fields.items() if name not in _READ | _NOISE}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True, default=str) if kept else None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# ---------------------------------------------------------------- items of the Responses API


_ITEMS = frozenset(
    {"function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output"}
)


def _read_item(item: Mapping[str, Any], place: int) -> Turn:
    match item["type"]:
        case "function_call" | "custom_tool_call":
            call = call_of(item.get("name"), item.get("arguments", item.get("input")), id=item.get("call_id"))
            return Turn(role="assistant", calls=(call,))
        case "reasoning":
            thoughts = [
                part["text"]
                for name in ("summary", "content")
                for part in item.get(name) or ()
                if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            ]
            return Turn(role="assistant", reasoning="\n".join(thoughts))
        case _:
            text, _, _ = _read_content(item.get("output"), place)
            return Turn(role="tool", text=text, call_id=_optional(item.get("call_id")))


def merge_model_turns(turns: Sequence[Turn]) -> Turns:
    """Merge consecutive turns of the model into one: a Responses API writes each part of a turn as an item."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and turn.role == merged[-1].role == "assistant":
            before = merged[-1]
            merged[-1] = Turn(
                role="assistant",
                text="\n".join(text for text in (before.text, turn.text) if text),
                reasoning="\n".join(text for text in (before.reasoning, turn.reasoning) if text) or None,
                calls=(*before.calls, *turn.calls),
                extra=before.extra or turn.extra,
            )
        else:
            merged.append(turn)
    return tuple(merged)
