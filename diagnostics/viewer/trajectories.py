"""Load the turns of responses, in parts if they are long, and find texts in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.trajectories.equality import call_key
from oversharp.diagnostics.trajectories.record import Call, Turn, Turns
from oversharp.diagnostics.viewer.records import (
    PLACES,
    Place,
    TurnHits,
    ViewedCall,
    ViewedObservation,
    ViewedTrajectory,
    ViewedTurn,
)

#: Number of turns at the beginning and at the end of a trajectory that are shown first, and of those in a later part.
FIRST, LAST, MORE = 50, 20, 100
#: Limit of a part in characters.
PART_CHARACTERS = 1 << 20
#: Number of turns that are listed for each place of a search text.
_HITS = 20
_ROWIDS = "SELECT rowid FROM trajectories WHERE list_contains($responses, response_id)"
_TURNS = "SELECT response_id, to_json(turns) AS turns FROM trajectories WHERE rowid IN (SELECT unnest($rows))"
_PLACES = """
SELECT
    response_id,
    len([t.role FOR t IN turns IF t.role <> 'tool'
        AND contains(lower(concat_ws(chr(10), t.reasoning, t.text)), lower($search))]) > 0 AS "text",
    len([t.role FOR t IN turns IF
        len([c.name FOR c IN t.calls IF contains(lower(c.name || '(' || c.arguments || ')'), lower($search))]) > 0
    ]) > 0 AS "call",
    len([t.role FOR t IN turns IF t.role = 'tool' AND contains(lower(t.text), lower($search))]) > 0 AS "observation"
FROM trajectories
WHERE rowid IN (SELECT unnest($rows))
"""


@dataclass(frozen=True)
class LoadedTrajectory:
    """Messages of a response, grouped into turns: a message of the model, and the observations after it."""

    messages: Turns

    @cached_property
    def _starts(self) -> list[int]:
        """Index of the first message of each turn."""
        return [i for i, message in enumerate(self.messages) if i == 0 or message.role == "assistant"]

    @cached_property
    def _answered_calls(self) -> dict[int, tuple[int, int]]:
        """Index of an observation → turn and call that it answers, counted from 1."""
        return {
            call.result: (number, place)
            for number, start in enumerate(self._starts, start=1)
            for place, call in enumerate(self.messages[start].calls, start=1)
            if call.result is not None
        }

    @property
    def n_turns(self) -> int:
        """Number of turns."""
        return len(self._starts)

    def view(self, search: str, answer_parts: Mapping[int, tuple[str, str, str]]) -> ViewedTrajectory:
        """Return the first and the last turns, and the places of a search text."""
        first = self.turns(1, FIRST, answer_parts)
        left = self.n_turns - len(first)
        last = self.turns(self.n_turns - min(LAST, left) + 1, LAST, answer_parts)
        calls = [call for message in self.messages for call in message.calls]
        return ViewedTrajectory(
            n_turns=self.n_turns,
            n_invalid=sum(not call.is_valid for call in calls),
            n_failed=sum(bool(self._is_error(call)) for call in calls),
            call_keys=tuple(tuple(map(call_key, self.messages[start].calls)) for start in self._starts),
            first=first,
            last=last,
            hits=self._find(search.lower()) if search else (),
        )

    def turns(
        self,
        start: int,
        most: int,
        answer_parts: Mapping[int, tuple[str, str, str]],
        limit: int | None = PART_CHARACTERS,
    ) -> tuple[ViewedTurn, ...]:
        """Return at most ``most`` turns from number ``start`` on, with at most ``limit`` characters but at least one.

        ``answer_parts`` has number → text in three parts of the turn that states the answer.
        """
        part: list[ViewedTurn] = []
        n_characters = 0
        for number in range(start, min(start + most, self.n_turns + 1)):
            turn = self._turn(number, answer_parts)
            n_characters += _n_characters(turn)
            if part and limit is not None and n_characters > limit:
                break
            part.append(turn)
        return tuple(part)

    def last_text(self) -> tuple[int, str]:
        """Return number and text of the last turn in which the model wrote a text; (0, "") without."""
        for number in range(self.n_turns, 0, -1):
            message = self.messages[self._starts[number - 1]]
            if message.role == "assistant" and message.text:
                return number, message.text
        return 0, ""

    def _turn(self, number: int, answer_parts: Mapping[int, tuple[str, str, str]]) -> ViewedTurn:
        start, end = self._bounds(number)
        head = self.messages[start] if self.messages[start].role == "assistant" else Turn(role="assistant")
        before, answer, after = answer_parts.get(number, (head.text, "", ""))
        return ViewedTurn(
            number=number,
            reasoning=head.reasoning or "",
            before=before,
            answer=answer,
            after=after,
            calls=tuple(map(self._call, head.calls)),
            observations=tuple(
                ViewedObservation(
                    role=message.role,
                    name=message.name or "",
                    text=message.text,
                    is_error=message.is_error,
                    call=self._answered_calls.get(i),
                )
                for i, message in enumerate(self.messages[start:end], start=start)
                if message.role != "assistant"
            ),
            n_tokens=head.n_tokens,
        )

    def _bounds(self, number: int) -> tuple[int, int]:
        return self._starts[number - 1], self._starts[number] if number < self.n_turns else len(self.messages)

    def _call(self, call: Call) -> ViewedCall:
        return ViewedCall(
            name=call.name,
            arguments=call.arguments,
            fields=_fields(call),
            is_valid=call.is_valid,
            is_error=self._is_error(call),
            has_result=call.result is not None,
            key=call_key(call),
        )

    def _is_error(self, call: Call) -> bool | None:
        return None if call.result is None else self.messages[call.result].is_error

    def _find(self, low: str) -> tuple[TurnHits, ...]:
        turns: dict[Place, list[int]] = {place: [] for place in PLACES}
        for number in range(1, self.n_turns + 1):
            start, end = self._bounds(number)
            for place in {place for message in self.messages[start:end] for place in _places(message, low)}:
                turns[place].append(number)
        return tuple(
            TurnHits(place=place, n=len(numbers), turns=tuple(numbers[:_HITS]))
            for place, numbers in turns.items()
            if numbers
        )


def _places(message: Turn, low: str) -> list[Place]:
    """Return the places of a lower-case text in a message, as ``_PLACES`` does."""
    if message.role == "tool":
        return ["observation"] if low in message.text.lower() else []
    texts = "\n".join(text for text in (message.reasoning, message.text) if text is not None)
    calls = any(low in f"{call.name}({call.arguments})".lower() for call in message.calls)
    return [*(["text"] if low in texts.lower() else []), *(["call"] if calls else [])]  # type: ignore[list-item]


def _fields(call: Call) -> tuple[tuple[str, str], ...]:
    """Return the arguments of a call by name: a text as it is, other values as JSON."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(arguments, dict):
        return ()
    return tuple(
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in arguments.items()
    )


def _n_characters(turn: ViewedTurn) -> int:
    texts = [turn.reasoning, turn.before, turn.after, *(observation.text for observation in turn.observations)]
    return sum(map(len, texts)) + 2 * sum(len(call.arguments) for call in turn.calls)


def load_trajectories(store: Store, response_ids: Sequence[str]) -> dict[str, LoadedTrajectory]:
    """Return the responses among ``response_ids`` that have several turns or tool calls, by id."""
    rows = _rows(store, response_ids)
    loaded = store.frame(_TURNS, rows=rows) if rows else None
    if loaded is None:
        return {}
    return {
        str(row["response_id"]): LoadedTrajectory(msgspec.json.decode(row["turns"], type=Turns))
        for row in loaded.to_dict("records")
    }


def find_places(store: Store, response_ids: Sequence[str], search: str) -> dict[str, tuple[Place, ...]]:
    """Return the places of a search text in those of the responses that have several turns or tool calls, by id."""
    rows = _rows(store, response_ids)
    if not rows:
        return {}
    return {
        str(row["response_id"]): tuple(place for place in PLACES if row[place])
        for row in store.frame(_PLACES, rows=rows, search=search).to_dict("records")
    }


def _rows(store: Store, response_ids: Sequence[str]) -> list[int]:
    """Return rows of the table: a query for rows does not load the turns of the others."""
    return [int(row) for row in store.frame(_ROWIDS, responses=list(response_ids))["rowid"]]
