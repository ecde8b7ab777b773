"""A trajectory: the turns after a prompt, by the model, its tools, and users.

The store has each trajectory once, by a hash of its content. The text of such a sample is only what the model wrote:
its reasoning, texts and calls. So observations do not count as the model's words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from oversharp.diagnostics.records.types import response_id

Role = Literal["assistant", "tool", "user", "system"]


class Call(Struct, frozen=True, omit_defaults=True):
    """A tool call of the model.

    ``arguments`` is JSON text, or as the model wrote it if that is no JSON. ``is_valid`` is False if it is no JSON
    object, or if the tool that wrote the dump could not read the call. ``id`` connects the call with its result.
    ``result`` is the index of the turn with its observation, None without one.
    """

    name: str
    arguments: str = "{}"
    id: str | None = None
    is_valid: bool = True
    result: int | None = None


class Turn(Struct, frozen=True, omit_defaults=True):
    """A message of a trajectory. Fields that the dump lacks are None.

    ``name``, ``call_id`` and ``is_error`` describe an observation: the tool, the call that it answers, and whether the
    call failed. ``n_tokens`` counts tokens. ``logp_sum`` is in nats, at temperature 1. ``is_trained`` is whether the
    turn has a loss. ``extra`` is a JSON object of the message's other fields.
    """

    role: Role
    text: str = ""
    reasoning: str | None = None
    calls: tuple[Call, ...] = ()
    name: str | None = None
    call_id: str | None = None
    is_error: bool | None = None
    n_tokens: int | None = None
    logp_sum: float | None = None
    is_trained: bool | None = None
    extra: str | None = None


Turns = tuple[Turn, ...]


def trajectory_id(turns: Turns) -> str:
    """Return the content hash of a trajectory, which is the ``response_id`` of its samples.

    Ids of calls are left out, because most tools draw them at random. ``Call.result`` connects calls and results.
    Raises ``UnicodeEncodeError`` for lone surrogates, see ``storable_turns``.

    >>> first, second = Turn(role="assistant", calls=(Call("a", id="x"),)), Turn(role="assistant", calls=(Call("a"),))
    >>> trajectory_id((first,)) == trajectory_id((second,))
    True
    """
    return response_id(msgspec.json.encode([_without_ids(turn) for turn in turns]))


def _without_ids(turn: Turn) -> Turn:
    if turn.calls and any(call.id is not None for call in turn.calls):
        return structs.replace(turn, calls=tuple(structs.replace(call, id=None) for call in turn.calls))
    return turn if turn.call_id is None else structs.replace(turn, call_id=None)


def storable_turns(turns: Turns) -> Turns:
    """Return the turns with "?" for lone surrogates, which a store rejects."""
    try:
        msgspec.json.encode(turns)
        return turns
    except UnicodeEncodeError:
        pass
    content = json.dumps(msgspec.to_builtins(turns), ensure_ascii=False).encode("utf-8", "replace")
    return msgspec.json.decode(content, type=Turns)


def turn_row(turn: Turn) -> dict[str, Any]:
    """Return all fields of a turn, as plain values."""
    return {**structs.asdict(turn), "calls": [structs.asdict(call) for call in turn.calls]}


def link_results(turns: Sequence[Turn]) -> Turns:
    """Set ``Call.result``: by id, else among the observations before the model's next turn by name, else by order.

    >>> turns = [Turn(role="assistant", calls=(Call("a"), Call("b"))), Turn(role="tool", name="b"), Turn(role="tool")]
    >>> [call.result for call in link_results(turns)[0].calls]
    [2, 1]
    """
    linked = list(turns)
    by_id = _results_by_id(turns)
    call_ids = {call.id for turn in turns for call in turn.calls if call.id is not None}
    result_ids = {turn.call_id for turn in turns if turn.role == "tool"}
    taken = set(by_id.values())
    for place, turn in enumerate(turns):
        if not turn.calls:
            continue
        results = [by_id.get((place, index)) for index in range(len(turn.calls))]
        unlinked = [
            index
            for index, call in enumerate(turn.calls)
            if results[index] is None and (call.id is None or call.id not in result_ids)
        ]
        end = next((i for i in range(place + 1, len(turns)) if turns[i].role == "assistant"), len(turns))
        left = [
            i
            for i in range(place + 1, end if unlinked else place)
            if turns[i].role == "tool" and i not in taken and turns[i].call_id not in call_ids
        ]
        for others in ((), (None, "")):  # first by name, then by order
            for index in unlinked:
                call = turn.calls[index]
                fits = (
                    i for i in left if turns[i].name in (call.name, *others) and None in (call.id, turns[i].call_id)
                )
                if results[index] is None and (result := next(fits, None)) is not None:
                    left.remove(result)
                    results[index] = result
        calls = tuple(structs.replace(call, result=result) for call, result in zip(turn.calls, results, strict=True))
        linked[place] = structs.replace(turn, calls=calls)
    return tuple(linked)


def _results_by_id(turns: Sequence[Turn]) -> dict[tuple[int, int], int]:
    """Return the turn with the result of each call, by turn and index of the call.

    A result belongs to the last turn before it that has a call with its id. Ids may be used again.
    """
    results: dict[tuple[int, int], int] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    for place, turn in enumerate(turns):
        if turn.role == "tool" and turn.call_id is not None and waiting.get(turn.call_id):
            results[waiting[turn.call_id].pop(0)] = place
        new: dict[str, list[tuple[int, int]]] = {}
        for index, call in enumerate(turn.calls):
            if call.id is not None:
                new.setdefault(call.id, []).append((place, index))
        waiting.update(new)
    return results


def is_trajectory(turns: Sequence[Turn]) -> bool:
    """Return whether turns are more than one plain text of the model.

    >>> is_trajectory([Turn(role="assistant", text="4")]), is_trajectory([Turn(role="assistant", calls=(Call("add"),))])
    (False, True)
    """
    return len(turns) != 1 or turns[0].role != "assistant" or bool(turns[0].calls)


def model_text(turns: Sequence[Turn]) -> str:
    """Return what the model wrote: per turn its reasoning, its text, and its calls.

    >>> model_text([Turn(role="assistant", text="So", calls=(Call("add", '{"a": 1}'),)), Turn(role="tool", text="2")])
    'So\\nadd({"a": 1})'
    """
    return "\n\n".join(turn_text(turn) for turn in turns if turn.role == "assistant")


def turn_text(turn: Turn) -> str:
    """Return the text of one turn of the model."""
    parts = [f"<think>\n{turn.reasoning}\n</think>"] if turn.reasoning else []
    parts += [turn.text] if turn.text else []
    parts += [f"{call.name}({call.arguments})" for call in turn.calls]
    return "\n".join(parts)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def call_of(name: Any, arguments: Any, *, id: Any = None, is_valid: bool = True) -> Call:
    """Return a call from the fields of a dump. Arguments that are an object become JSON text.

    >>> call_of("add", {"a": 1}).arguments, call_of("add", "a = 1").is_valid, call_of("now", None).arguments
    ('{"a": 1}', False, '{}')
    """
    if arguments is None or arguments == "":
        text, parsed = "{}", {}
    elif isinstance(arguments, str):
        text = arguments
        try:
            parsed = json.loads(arguments, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            parsed = None
    else:
        text, parsed = json.dumps(arguments, ensure_ascii=False, default=str), arguments
    return Call(
        name="" if name is None else str(name),
        arguments=text,
        id=None if id is None else str(id),
        is_valid=is_valid and isinstance(parsed, dict) and bool(name),
    )
