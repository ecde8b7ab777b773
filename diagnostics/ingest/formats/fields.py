"""Convert fields of other tools' records. Unusable fields raise ``BadField``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from oversharp.diagnostics.records.types import FinishReason
from oversharp.diagnostics.series.folders import run_and_step
from oversharp.diagnostics.series.step_names import named_step
from oversharp.diagnostics.verifiers.reading.golds import any_of

#: Largest accepted step, count and index: the store has 32-bit integers.
LARGEST_WHOLE = 2**31 - 1
#: Largest accepted absolute score, so that sums and squares of scores stay finite.
LARGEST_NUMBER = 1e100

# Usual field types in classes for ``typed_records``. The functions below also accept other types, such as the text
# "1.0".
FilledText = Annotated[str, Meta(min_length=1)]
PlainNumber = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)] | bool
PlainWhole = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]

#: Words for right and wrong in CSV files.
_WORDS = {"true": 1.0, "false": 0.0}


class BadField(ValueError):  # noqa: N818 - never leaves an importer: it becomes a Fault
    """An unusable field. The message becomes the reason of a ``Fault``."""


def get_text(fields: Mapping[str, Any], name: str) -> str:
    """Return a text, or the joined texts of chat messages.

    Raises ``BadField`` if the field is missing or of another type.
    """
    value = fields.get(name)
    if isinstance(value, str):
        return value
    if value is None:
        raise BadField(f"no {name}")
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        return join_chat(value, name)
    raise BadField(f"{name} is not text")


def get_response(fields: Mapping[str, Any], name: str, reward: float | None) -> str:
    """Return a response as ``get_text`` does; if a response with a reward is missing or null, return "".

    A sample with a reward was generated and scored, so it must be counted. Raises ``BadField`` as ``get_text`` does.

    >>> get_response({"output": None}, "output", 0.0), get_response({"output": "4"}, "output", None)
    ('', '4')
    """
    if reward is not None and _is_missing(fields.get(name)):
        return ""
    return get_text(fields, name)


def _is_missing(value: object) -> bool:
    """Return whether a response is null, or a chat without content."""
    if isinstance(value, list):
        return all(isinstance(message, Mapping) and message.get("content") is None for message in value)
    return value is None


def join_chat(messages: list[Mapping[str, Any]], name: str) -> str:
    """Return the content of a single message, or the contents of all messages with their roles.

    >>> join_chat([{"role": "user", "content": "2+2?"}], "prompt")
    '2+2?'
    >>> join_chat([{"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}], "prompt")
    'system: Add.\\n\\nuser: 2+2?'
    """
    contents = [message_text(message.get("content"), name) for message in messages]
    if len(messages) == 1:
        return contents[0]
    roles = [message.get("role", "?") for message in messages]
    return "\n\n".join(f"{role}: {content}" for role, content in zip(roles, contents, strict=True))


def find_final_turn(messages: Any) -> int | None:
    """Return the index of the assistant's last message; None if there is none, or the value is not a chat.

    >>> find_final_turn([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}])
    1
    """
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return None
    return next(
        (place for place in range(len(messages) - 1, -1, -1) if messages[place].get("role") in _ASSISTANT), None
    )


_ASSISTANT = ("assistant", "model")


def message_text(content: Any, name: str) -> str:
    """Return the text of a message: the joined texts of its parts."""
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        content = "\n".join(texts) if texts else None
    if not isinstance(content, str):
        raise BadField(f"{name} has a message without text")
    return content


def _value(fields: Mapping[str, Any], name: str | None) -> Any:
    return None if name is None else fields.get(name)


def get_optional_text(fields: Mapping[str, Any], name: str | None) -> str | None:
    """Return a text or number as text; None if missing or empty.

    A list of one element counts as that element.
    """
    value = _value(fields, name)
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value or None
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value.normalize():f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return str(value) if math.isfinite(value) else None
    except (OverflowError, ValueError):  # integers of hundreds of digits
        return None


def get_gold(fields: Mapping[str, Any], name: str | None) -> str | None:
    """Return a gold as ``get_optional_text`` does.

    A list becomes a text that accepts any of its golds.

    >>> get_gold({"gold": ["4", "four"]}, "gold"), get_gold({"gold": [4, 4]}, "gold"), get_gold({}, "gold")
    ('["4", "four"]', '4', None)
    """
    value = _value(fields, name)
    if not isinstance(value, list):
        return get_optional_text(fields, name)
    golds = [gold for member in value if (gold := get_optional_text({"gold": member}, "gold")) is not None]
    return any_of(golds) if golds else None


def get_number(fields: Mapping[str, Any], name: str | None) -> float | None:
    """Return a number; None if missing.

    Accepts truth values, numbers written as text, and lists with one number per token, of which the last is returned.
    Raises ``BadField`` for other values, and for absolute values above ``LARGEST_NUMBER``.

    >>> get_number({"score": "True"}, "score"), get_number({"score": [0.0, 0.0, 1.0]}, "score"), get_number({}, "score")
    (1.0, 1.0, None)
    """
    value = _value(fields, name)
    if type(value) is float and -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        return value
    if isinstance(value, list):
        value = value[-1] if value else None
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            raise BadField(f"{name} is text, not a number") from None
    if not isinstance(value, int | float | Decimal):
        raise BadField(f"{name} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadField(f"{name} is NaN or infinite")
    if abs(number) > LARGEST_NUMBER:
        raise BadField(f"{name} is beyond {LARGEST_NUMBER:g}")
    return number


def parse_flag(value: object, name: str) -> bool | None:
    """Return a truth value; None if missing. Accepts true, false, 1 and 0, also as text.

    Raises ``BadField`` for other values.

    >>> [parse_flag(value, "pilot") for value in (True, 0, "True", "1.0", "", None)]
    [True, False, True, True, None, None]
    """
    try:
        number = math.nan if isinstance(value, list) else get_number({name: value}, name)
    except BadField:
        number = math.nan
    if number not in (None, 0.0, 1.0):
        raise BadField(f"{name} is not a boolean; use true or false")
    return None if number is None else number == 1.0


def get_reward(fields: Mapping[str, Any], chosen: str | None, usual: str) -> float | None:
    """Return the reward in the field ``chosen`` by the user, else in the ``usual`` field.

    Raises ``BadField`` as ``get_number`` does, and if the chosen field is missing.

    >>> get_reward({"score": 1.5, "acc": True}, "acc", "score"), get_reward({}, None, "score")
    (1.0, None)
    """
    if chosen is not None and chosen not in fields:
        raise BadField(f"no {chosen}")
    return get_number(fields, usual if chosen is None else chosen)


def get_whole(fields: Mapping[str, Any], name: str | None) -> int | None:
    """Return a whole number of at least 0; None if missing. Accepts text and floats such as 40.0.

    Raises ``BadField`` for other values, and above ``LARGEST_WHOLE``.
    """
    value = _value(fields, name)
    if value is None or value == "":
        return None
    if type(value) is int and 0 <= value <= LARGEST_WHOLE:
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        raise BadField(f"{name} is not a whole number") from None
    if isinstance(value, bool) or number != number or (math.isfinite(number) and not number.is_integer()):
        raise BadField(f"{name} is not a whole number")
    if number < 0:
        raise BadField(f"{name} is below 0")
    if number > LARGEST_WHOLE:
        raise BadField(f"{name} is above {LARGEST_WHOLE:,}")
    return int(number)


#: Words of tools for a response that ended with an end token, or was truncated.
_FINISHED: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "truncated": "length",
}


def get_finish_reason(fields: Mapping[str, Any], name: str | None) -> FinishReason | None:
    """Return the finish reason for the word of any tool; None if unknown.

    >>> get_finish_reason({"status": "truncated"}, "status"), get_finish_reason({"status": "abort"}, "status")
    ('length', None)
    """
    return parse_finish(_value(fields, name))


def parse_finish(value: object) -> FinishReason | None:
    """Return the finish reason for the word of a tool; None if unknown."""
    return _FINISHED.get(value.lower()) if isinstance(value, str) else None


#: Names of boolean fields that mark truncated responses, or responses that ended with an end token.
_CUT_NAMES = re.compile(r"trunc|cut|clip|overlong|too_long|length|exceed|max_tok|aborted", re.IGNORECASE)
_ENDED_NAMES = re.compile(r"finished|complete|ended|done|eos|stopped|terminated", re.IGNORECASE)


def parse_ending(value: object, name: str) -> FinishReason | None:
    """Return the finish reason for the word of any tool, or for a boolean field such as ``truncated``.

    Raises ``BadField`` for a boolean field with an unknown name.

    >>> parse_ending("EOS", "why"), parse_ending(True, "truncated"), parse_ending("False", "is_finished")
    ('stop', 'length', 'length')
    """
    if isinstance(value, str) and value.lower() in _WORDS:
        value = bool(_WORDS[value.lower()])
    if not isinstance(value, bool):
        return parse_finish(value)
    if _CUT_NAMES.search(name):
        return "length" if value else "stop"
    if _ENDED_NAMES.search(name):
        return "stop" if value else "length"
    raise BadField(f"{name} is true or false, but its meaning is unknown; rename the field to truncated or finished")


def parse_step(value: object, name: str) -> int | None:
    """Return the step from a whole number or a name such as ``step_100``, ``checkpoint-200``, ``base``.

    Raises ``BadField`` for other values.

    >>> [parse_step(value, "step") for value in (40, "40.0", "step_100", "base", None)]
    [40, 40, 100, 0, None]
    """
    if not isinstance(value, str) or _is_number(value):
        return get_whole({name: value}, name)
    step = named_step(value)
    if step is None:
        raise BadField(f"{name} is neither a number nor a name with a step, such as checkpoint-200 or base")
    return step


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


_STEP = re.compile(r"\d{1,9}", re.ASCII)


def parse_step_name(name: str, prefix: str) -> int | None:
    """Return N from a name of the form ``prefix`` + N; None for other names.

    >>> parse_step_name("global_step_40", "global_step_"), parse_step_name("40", ""), parse_step_name("latest", "")
    (40, 40, None)
    """
    number = name.removeprefix(prefix)
    return int(number) if name.startswith(prefix) and _STEP.fullmatch(number) else None


_END_TOKEN = re.compile(r"(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>)\s*\Z")


def remove_end_token(response: str) -> str:
    """Remove a decoded end token from a response, so that it does not become part of the final answer.

    >>> remove_end_token("It is 4.<|im_end|>")
    'It is 4.'
    """
    end = _END_TOKEN.search(response, max(0, len(response) - 64))
    return response[: end.start()] if end else response


def inner(fields: Any, name: str) -> Mapping[str, Any]:
    """Return the object in a field of another object; empty if missing or not an object."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, dict) else {}


def finite(value: object) -> float | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def get_sampling_settings(fields: Mapping[str, Any], **theirs: str) -> dict[str, float | int]:
    """Return the numeric sampling settings in ``fields``.

    ``theirs`` maps our names to the tool's, where they differ.

    >>> get_sampling_settings({"temperature": 1, "top_p": None, "longest": 512}, max_tokens="longest")
    {'temperature': 1.0, 'max_tokens': 512}
    """
    values: dict[str, float | int | None] = {}
    for read, names in ((get_number, ("temperature", "top_p")), (get_whole, ("top_k", "max_tokens", "seed"))):
        for name in names:
            try:
                values[name] = read(fields, theirs.get(name, name))
            except BadField:
                continue
    return {name: value for name, value in values.items() if value is not None}


def split_folders(folder: Path, name: str) -> tuple[Path | None, str]:
    """Return the path above the last folder ``name``, and the path below it.

    Without such a folder, return None and the last folder.

    >>> split_folders(Path("/out/details/org/model"), "details"), split_folders(Path("/out/model"), "details")
    ((PosixPath('/out'), 'org/model'), (None, 'model'))
    """
    parts = folder.parts
    if name not in parts:
        return None, folder.name
    last = len(parts) - 1 - parts[::-1].index(name)
    return Path(*parts[:last]), "/".join(parts[last + 1 :])


#: Number of parent folders that are searched for a step.
_MOST_FOLDERS = 6


def find_run_above(folder: Path) -> tuple[str | None, int | None]:
    """Return run and step of the nearest folder with a step in its name, else (None, None).

    >>> find_run_above(Path("/runs/lucky/step_40/eval-results/aime24")), find_run_above(Path("/runs/lucky"))
    (('lucky', 40), (None, None))
    """
    parents = (folder.absolute(), *folder.absolute().parents)
    for folder_above in parents[:_MOST_FOLDERS]:
        run, step = run_and_step(folder_above.name)
        if step is not None:
            return run or folder_above.parent.name or None, step
    return None, None
