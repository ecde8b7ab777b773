"""Read turns from chat messages in the forms that tools write.

- OpenAI: ``tool_calls`` with ``function.name`` and ``function.arguments`` (text or object), ``tool_call_id``;
  the former ``function_call``
- verifiers, Every Eval Ever, inspect: calls with ``name`` or ``function`` and ``arguments``; calls as JSON text
- Anthropic: content parts ``tool_use`` and ``tool_result``
- Gemini: ``parts`` with ``functionCall`` and ``functionResponse``
- inspect: content parts ``tool_use`` with a ``result``, for calls that the server ran
- ShareGPT: ``from`` and ``value``, with the roles ``function_call`` and ``observation``
- Responses API: items ``function_call``, ``function_call_output``, ``reasoning``, and others whose type ends in
  ``_call``

Consecutive items of the model, and consecutive calls of ShareGPT, are one turn. Fields without a place in ``Turn`` are
kept in ``extra``. A part that is no text, such as an image, is named in the text as ``[image]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
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
_CALL_PARTS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT_PART = "tool_result"
#: Roles of messages that are one call as JSON text.
_CALL_ROLES = frozenset({"function_call", "tool_call"})
_CONTENTS = ("content", "value", "parts")
#: Fields that become fields of ``Turn``.
_READ = frozenset({"role", "from", *_CONTENTS, "tool_calls", "function_call", "tool_call_id", *_REASONING})
#: Fields that become fields of an observation, as nulls, which are not kept.
_OF_OBSERVATION = dict.fromkeys(("name", "function"))
#: Fields that differ between equal trajectories, or name the form of the message.
_NOISE = frozenset({"id", "timestamp", "turn_idx", "type"})
_UNKEPT = _READ | _NOISE


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
    turns: list[Turn] = []
    for is_part, group in groupby(enumerate(messages, start=1), key=lambda numbered: _is_part(numbered[1])):
        read = [turn for place, message in group for turn in _read_message(message, place)]
        turns += merge_model_turns(read) if is_part else read
    return tuple(turns)


def split_prompt(turns: Turns) -> tuple[Turns, Turns]:
    """Return the turns before the model's first turn, and the others."""
    first = next((place for place, turn in enumerate(turns) if turn.role == "assistant"), len(turns))
    return turns[:first], turns[first:]


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
                extra=_merge_extras(before.extra, turn.extra),
            )
        else:
            merged.append(turn)
    return tuple(merged)


def _merge_extras(first: str | None, second: str | None) -> str | None:
    if first is None or second is None:
        return first or second
    return _as_json({**json.loads(first), **json.loads(second)})


def _is_part(message: Any) -> bool:
    """Return whether a message may be a part of a turn: an item of the Responses API, or a call of ShareGPT."""
    kind = _type(message)
    return kind == "message" or _is_item(message, kind) or (isinstance(message, dict) and _is_call_text(message))


def _is_item(message: Any, kind: str | None) -> bool:
    is_role = kind in _ROLES and kind not in _CALL_ROLES  # LangChain has the role as type
    return kind is not None and kind != "message" and not is_role and not message.keys() & {"role", "from"}


# ---------------------------------------------------------------- messages


def _read_message(message: Any, place: int) -> Iterator[Turn]:
    if not isinstance(message, dict):
        raise BadMessageError(f"message {place} is not an object")
    fields = {name: value for name, value in message.items() if value is not None}
    kind = _type(fields)
    if fields.get("object") == "response" and isinstance(fields.get("output"), list):  # a whole reply of the API
        yield from merge_model_turns(read_turns(fields["output"]))
        return
    if _is_item(fields, kind):
        yield from _read_item(fields, kind or "", place)
        return
    role = _role(fields, kind, place)
    parts = next((fields[name] for name in _CONTENTS if name in fields), None)
    first = True
    for result, content in _split_results(parts):
        if result is not None:
            yield _read_result(result, place)
        else:
            yield _read_turn(role, fields if first else {}, content, place)
            first = False


def _split_results(content: Any) -> Iterator[tuple[Mapping[str, Any] | None, Any]]:
    """Yield each tool result in a content, as (result, None), and each stretch between them, as (None, parts)."""
    if not isinstance(content, list) or not any(_result_in(part) for part in content):
        yield None, content
        return
    stretch: list[Any] = []
    for part in content:
        result = _result_in(part)
        if result is None:
            stretch.append(part)
            continue
        if result is not part:  # a call that the server ran
            stretch.append(part)
        if stretch:
            yield None, stretch
        yield result, None
        stretch = []
    if stretch:
        yield None, stretch


def _result_in(part: Any) -> Mapping[str, Any] | None:
    """Return the result in a part of a content: the part itself, or that of a call with its result."""
    kind = _type(part)
    if kind is None:
        reply = part.get("functionResponse") if isinstance(part, dict) else None
        if not isinstance(reply, dict):
            return None
        return {"tool_use_id": reply.get("id"), "content": _as_json(reply.get("response")), "name": reply.get("name")}
    if kind.endswith(_RESULT_PART):
        return part  # type: ignore[no-any-return]
    if kind in _CALL_PARTS and part.get("result") is not None:
        error = part.get("error")
        return {"tool_use_id": part.get("id"), "content": part["result"] or error, "is_error": bool(error)}
    return None


def _read_result(result: Mapping[str, Any], place: int) -> Turn:
    text, _, _ = _read_content(result.get("content"), place)
    return Turn(
        role="tool",
        text=text,
        name=_optional(result.get("name")),
        call_id=_optional(result.get("tool_use_id")),
        is_error=True if result.get("is_error") else None,
    )


def _read_turn(role: Role, fields: Mapping[str, Any], content: Any, place: int) -> Turn:
    text, thoughts, calls = _read_content(content, place)
    own = [fields[name] for name in _REASONING if isinstance(fields.get(name), str) and fields[name]]
    reasoning = "\n".join([*own, *thoughts]) or None
    if role == "assistant":
        is_call = _is_call_text(fields)
        return Turn(
            role=role,
            text="" if is_call else text,
            reasoning=reasoning,
            calls=(*(_text_calls(text) if is_call else ()), *calls, *_read_calls(fields, place)),
            extra=_extra(fields),
        )
    if role != "tool":
        return Turn(role=role, text=text, reasoning=reasoning, extra=_extra(fields))
    error = fields.get("error")
    return Turn(
        role=role,
        text=text or _error_text(error),
        reasoning=reasoning,
        name=_optional(fields.get("name", fields.get("function"))),
        call_id=_call_id(fields.get("tool_call_id")),
        is_error=True if error else None,
        extra=_extra({**fields, **_OF_OBSERVATION, "error": error if error and text else None}),
    )


def _error_text(error: Any) -> str:
    """Return the message of a failed call, which is its observation if the content is empty."""
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else ""


def _role(fields: Mapping[str, Any], kind: str | None, place: int) -> Role:
    name = fields.get("role", fields.get("from"))
    if name is None and kind is not None:
        name = "assistant" if kind == "message" else kind
    role = role_named(name) if isinstance(name, str) else None
    if role is None:
        raise BadMessageError(f"message {place} has the unknown role {name!r}")
    return role


def role_named(name: str) -> Role | None:
    """Return the role for the word of any tool; None if unknown.

    >>> role_named("human"), role_named("observation"), role_named("alien")
    ('user', 'tool', None)
    """
    return _ROLES.get(name.lower())


def _read_content(content: Any, place: int) -> tuple[str, list[str], list[Call]]:
    """Return text, reasoning and calls of a content. Parts of other types are named in the text."""
    if content is None:
        return "", [], []
    if isinstance(content, str):
        return content, [], []
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return _as_json(content), [], []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for part in content:
        kind = _type(part)
        if isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            raise BadMessageError(f"message {place} has a content that is neither text nor a list of parts")
        elif kind in _REASONING_PARTS:
            thoughts += [part[name] for name in (*_REASONING, "text") if isinstance(part.get(name), str)][:1]
        elif kind in _CALL_PARTS:
            calls.append(call_of(part.get("name"), part.get("input", part.get("arguments")), id=part.get("id")))
        elif isinstance(called := part.get("functionCall"), dict):
            calls.append(call_of(called.get("name"), called.get("args"), id=called.get("id")))
        elif isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            texts.append(f"[{kind.removesuffix('_url') if kind else 'part without text'}]")
    return "\n".join(texts), thoughts, calls


def _type(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else None


def _read_calls(fields: Mapping[str, Any], place: int) -> Iterator[Call]:
    given = fields.get("tool_calls")
    if given is None:
        former = fields.get("function_call")
        given = [] if former is None else [former]
    if isinstance(given, str):  # a list as JSON text
        given = _parse(given) if given else []
    if not isinstance(given, list):
        raise BadMessageError(f"message {place} has tool_calls that are not a list")
    for call in given:
        yield _read_call(call)


def _read_call(call: Any) -> Call:
    parsed = _parse(call) if isinstance(call, str) else call
    if not isinstance(parsed, dict):
        return Call(name="", arguments=call if isinstance(call, str) else _as_json(call), is_valid=False)
    function = parsed.get("function")
    called = function if isinstance(function, dict) else parsed
    name = function if isinstance(function, str) else called.get("name")
    arguments = next((called[key] for key in ("arguments", "input", "parameters", "args") if key in called), None)
    return call_of(name, arguments, id=parsed.get("id", parsed.get("call_id")), is_valid=not parsed.get("parse_error"))


def _is_call_text(fields: Mapping[str, Any]) -> bool:
    """Return whether the message of a ShareGPT chat is a call as JSON text."""
    role = fields.get("from", fields.get("role"))
    return isinstance(role, str) and role in _CALL_ROLES


def _text_calls(text: str) -> Iterator[Call]:
    parsed = _parse(text)
    for call in parsed if isinstance(parsed, list) else [text if parsed is None else parsed]:
        yield _read_call(call)


def _call_id(value: Any) -> str | None:
    return _optional(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _optional(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _as_json(value)


def _extra(fields: Mapping[str, Any]) -> str | None:
    kept = {name: value for name, value in fields.items() if value is not None and name not in _UNKEPT}
    return _as_json(kept) if kept else None


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# ---------------------------------------------------------------- items of the Responses API

#: Fields of an item that are no arguments of its call.
_OF_ITEM = frozenset({"id", "type", "status", "call_id", "output", "outputs", "error", "server_label"})


def _read_item(item: Mapping[str, Any], kind: str, place: int) -> Iterator[Turn]:
    if kind == "reasoning":
        thoughts = [
            part["text"]
            for name in ("summary", "content")
            for part in item.get(name) or ()
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        yield Turn(role="assistant", reasoning="\n".join(thoughts) or None)
    elif kind.endswith("_call_output"):
        text, _, _ = _read_content(item.get("output"), place)
        yield Turn(role="tool", text=text, call_id=_optional(item.get("call_id")))
    elif kind.endswith("_call"):
        arguments = item.get("arguments", item.get("input"))
        if arguments is None and kind != "function_call":
            arguments = {name: value for name, value in item.items() if name not in _OF_ITEM}
        name, id = item.get("name", kind.removesuffix("_call")), item.get("call_id", item.get("id"))
        yield Turn(role="assistant", calls=(call_of(name, arguments, id=id),))
        output = item.get("output", item.get("outputs"))
        if output is not None:  # a call that the server ran
            text, _, _ = _read_content(output, place)
            error = item.get("error")
            text = text or _error_text(error)
            yield Turn(role="tool", text=text, call_id=_optional(id), is_error=True if error else None)
    elif "content" in item:
        raise BadMessageError(f"message {place} has the unknown role {kind!r}")
    else:
        yield Turn(role="assistant", extra=_as_json({"item": item}))
