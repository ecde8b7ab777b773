"""Paths into records: ``doc.question``, ``code[0]``, ``rollouts[].text``.

A path may have several values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from oversharp.diagnostics.ingest.formats.fields import BadField

#: Path component that matches every element of a list. Each element is a sample.
EACH = "[]"
_BRACKETS = re.compile(r"\[(-?\d*)\]")
_INDEX = re.compile(r"-?\d{1,9}", re.ASCII)
#: Fields of a sample. If the responses are a list, these fields may be lists too.
_OF_SAMPLES = ("reward", "index", "answer", "n_tokens", "finish_reason", "greedy", "step", "correct", "share")

#: Values at the end of a path, by position: the indices of the lists on the path.
Values = dict[tuple[int, ...], Any]


@cache
def parts_of(path: str) -> tuple[str, ...]:
    """Split a path into names and indices.

    >>> parts_of("doc.question"), parts_of("code[0]"), parts_of("rollouts[].text")
    (('doc', 'question'), ('code', '0'), ('rollouts', '[]', 'text'))
    """
    return tuple(part for part in _BRACKETS.sub(lambda match: f".{match[1] or EACH}.", path).split(".") if part)


def is_plain(path: str) -> bool:
    """Return whether a path is just a field name.

    >>> is_plain("question"), is_plain("doc.question"), is_plain("code[0]")
    (True, False, False)
    """
    return "." not in path and "[" not in path


def values_at(record: Mapping[str, Any], path: str) -> Values:
    """Return the values at the end of a path, by position; None where the path does not exist.

    A field whose name equals the whole path has priority.

    >>> values_at({"runs": [{"text": "a"}, {"text": "b"}]}, "runs.text")
    {(0,): 'a', (1,): 'b'}
    >>> values_at({"code": ["a", "b"]}, "code[1]"), values_at({"doc": "text"}, "doc.question")
    ({(): 'b'}, {(): None})
    """
    if path in record:
        return {(): record[path]}
    return dict(_walk(record, parts_of(path), ()))


def _walk(value: Any, parts: Sequence[str], place: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    for number, part in enumerate(parts):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and _INDEX.fullmatch(part):
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        elif isinstance(value, list):
            rest = parts[number + (part == EACH) :]
            for index, element in enumerate(value):
                yield from _walk(element, rest, (*place, index))
            return
        else:
            value = None
            break
    yield place, value


def has_value(record: Mapping[str, Any], path: str) -> bool:
    """Return whether a record has the field, or a value at the end of the path."""
    return path in record or any(value is not None for value in values_at(record, path).values())


def samples_in(record: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each sample of a record, by our names, in the order of the responses.

    ``names`` maps our names, ``response`` included, to paths. If the path of the response ends at or passes through a
    list, each element is a sample. Values that are not lists apply to all samples. Raises ``BadField`` if such lists
    are empty or differ in length.

    >>> record = {"q": "2+2?", "runs": [{"text": "4", "ok": True}, {"text": "5", "ok": False}]}
    >>> list(samples_in(record, {"prompt": "q", "response": "runs.text", "reward": "runs.ok"}))
    [{'prompt': '2+2?', 'response': '4', 'reward': True}, {'prompt': '2+2?', 'response': '5', 'reward': False}]
    >>> list(samples_in({"a": ["4", "5"], "s": [1, 0]}, {"response": "a", "reward": "s"}))
    [{'response': '4', 'reward': 1}, {'response': '5', 'reward': 0}]
    """
    values = {ours: values_at(record, path) for ours, path in names.items()}
    if any(_is_response_list(value) for value in values["response"].values()):
        _spread_lists(values)
    places = list(values["response"])
    if not places:
        raise BadField(f"{names['response']} is an empty list")
    depth = len(max(places, key=len))
    for ours in _OF_SAMPLES:
        if ours in values:  # responses and scores are separate lists
            above = {place: value for place, value in values[ours].items() if len(place) < depth}
            _spread(values, ours, above)
    for ours, by_place in values.items():
        if any(len(place) > depth for place in by_place):
            values[ours] = _gather_inner(by_place, depth, ours, names)
    taken = {ours: [_place_in(by_place, place) for place in places] for ours, by_place in values.items()}
    for ours, by_place in values.items():
        if None in taken[ours] or set(taken[ours]) != by_place.keys():
            raise BadField(f"{names[ours]} and {names['response']} are lists of different lengths")
        if ours == "reward" and len(places) > 1 and any(len(key) < depth for key in by_place):
            raise BadField(f"{names[ours]} is a single value, {names['response']} a list")
    for number in range(len(places)):
        yield {ours: by_place[taken[ours][number]] for ours, by_place in values.items()}  # type: ignore[index]


def _is_response_list(value: Any) -> bool:
    """Return whether a value is a list of responses, not the messages of a chat."""
    return isinstance(value, list) and not (value and all(isinstance(element, Mapping) for element in value))


def _spread_lists(values: dict[str, Values]) -> None:
    """Expand a list of responses, and the lists of corresponding values, to one value per sample."""
    lists = {place: value for place, value in values["response"].items() if _is_response_list(value)}
    _spread(values, "response", lists)
    for ours in _OF_SAMPLES:
        if ours in values:
            _spread(values, ours, lists)
    of_problem = [*values.get("prompt", {}).values(), *values.get("problem", {}).values()]
    if any(map(_is_response_list, of_problem)):  # columnar layout: prompts are a list too
        for ours in ("prompt", "gold", "problem", "task", "cluster"):
            if ours in values:
                _spread(values, ours, lists)


def _spread(values: dict[str, Values], ours: str, lists: Values) -> None:
    values[ours] = {
        key: element
        for place, value in values[ours].items()
        for key, element in (
            [((*place, index), element) for index, element in enumerate(value)]
            if place in lists and _is_response_list(value)
            else [(place, value)]
        )
    }


def _gather_inner(by_place: Values, depth: int, ours: str, names: Mapping[str, str]) -> Values:
    """Merge values from lists nested deeper than the responses. Only golds may have several values."""
    gathered: dict[tuple[int, ...], list[Any]] = {}
    for place, value in by_place.items():
        gathered.setdefault(place[:depth], []).append(value)
    if ours != "gold" and any(len(members) > 1 for members in gathered.values()):
        raise BadField(f"{names[ours]} has several values for one {names['response']}")
    return {place: members if len(members) > 1 else members[0] for place, members in gathered.items()}


def _place_in(by_place: Values, place: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return ``place`` or its longest prefix that has a value; None if there is none."""
    return next((place[:end] for end in range(len(place), -1, -1) if place[:end] in by_place), None)
