"""Fields of other tools' records, and the ways in which they can be wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta

from oversharp.diagnostics.records.types import FinishReason
from oversharp.diagnostics.series.step_names import named_step
from oversharp.diagnostics.verifiers.reading.golds import any_of

#: A larger number is no step, count or index, and no column holds it.
LARGEST_WHOLE = 2**31 - 1
#: Sums and squares of larger ones are infinite.
LARGEST_NUMBER = 1e100

# The types of fields as tools write them, for classes of ``typed_records``. What else is accepted, such as numbers in
# quotes, the functions below accept.

#: A text that is not empty.
FilledText = Annotated[str, Meta(min_length=1)]
#: A number up to that, true or false.
PlainNumber = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)] | bool
PlainWhole = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]

#: Words for right and wrong in CSV files.
_WORDS = {"true": 1.0, "false": 0.0}


class BadField(ValueError):  # noqa: N818 - never leaves an importer: it becomes a Fault
    """A field that cannot be used; the message is the fault's."""


def text(fields: Mapping[str, Any], name: str) -> str:
    """Return a text, or the texts of chat messages. Raises ``BadField`` where it is missing or of another kind."""
    value = fields.get(name)
    if isinstance(value, str):
        return value
    if value is None:
        raise BadField(f"no {name}")
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        return chat_text(value, name)
    raise BadField(f"{name} is not text")


def response_text(fields: Mapping[str, Any], name: str, reward: float | None) -> str:
    """Return a response as ``text`` does; empty where it is null, missing or a chat without content.

    Only a sample with a reward may lack its text: the tool drew and scored it, so it must count. Raises ``BadField``
    as ``text`` does, and without text and reward.

    >>> response_text({"output": None}, "output", 0.0), response_text({"output": "4"}, "output", None)
    ('', '4')
    """
    if reward is not None and _is_missing(fields.get(name)):
        return ""
    return text(fields, name)


def _is_missing(value: object) -> bool:
    """Return whether a response is null, or a chat whose messages have no content."""
    if isinstance(value, list):
        return all(isinstance(message, Mapping) and message.get("content") is None for message in value)
    return value is None


def chat_text(messages: list[Mapping[str, Any]], name: str) -> str:
    """Return one message's content, or all with their roles before them.

    >>> chat_text([{"role": "user", "content": "2+2?"}], "prompt")
    '2+2?'
    >>> chat_text([{"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}], "prompt")
    'system: Add.\\n\\nuser: 2+2?'
    """
    contents = [message_text(message.get("content"), name) for message in messages]
    if len(messages) == 1:
        return contents[0]
    roles = [message.get("role", "?") for message in messages]
    return "\n\n".join(f"{role}: {content}" for role, content in zip(roles, contents, strict=True))


def final_turn(messages: Any) -> int | None:
    """Return the place of the assistant's last message in a chat; None where there is none, or no chat.

    >>> final_turn([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]), final_turn("4")
    (1, None)
    """
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return None
    return next(
        (place for place in range(len(messages) - 1, -1, -1) if messages[place].get("role") in _ASSISTANT), None
    )


_ASSISTANT = ("assistant", "model")


def message_text(content: Any, name: str) -> str:
    """Return a message's text; of its parts, such as texts and images, the texts."""
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        content = "\n".join(texts) if texts else None
    if not isinstance(content, str):
        raise BadField(f"{name} holds a message without text")
    return content


def _value(fields: Mapping[str, Any], name: str | None) -> Any:
    return None if name is None else fields.get(name)


def optional_text(fields: Mapping[str, Any], name: str | None) -> str | None:
    """Return a text or a number as text, also as the only one of a list; None where it is missing or empty."""
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
    except (OverflowError, ValueError):  # whole numbers of hundreds of digits
        return None


def gold_text(fields: Mapping[str, Any], name: str | None) -> str | None:
    """As ``optional_text``; of a list of golds the text that accepts any of them.

    >>> gold_text({"gold": ["4", "four"]}, "gold"), gold_text({"gold": [4, 4]}, "gold"), gold_text({}, "gold")
    ('["4", "four"]', '4', None)
    """
    value = _value(fields, name)
    if not isinstance(value, list):
        return optional_text(fields, name)
    golds = [gold for member in value if (gold := optional_text({"gold": member}, "gold")) is not None]
    return any_of(golds) if golds else None


def numeric(fields: Mapping[str, Any], name: str | None) -> float | None:
    """Return a number, true or false, also as text; None where it is missing. The last of a list by token.

    Raises ``BadField`` for anything else, and beyond ``LARGEST_NUMBER``.

    >>> numeric({"score": "True"}, "score"), numeric({"score": [0.0, 0.0, 1.0]}, "score"), numeric({}, "score")
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


def chosen_reward(fields: Mapping[str, Any], chosen: str | None, usual: str) -> float | None:
    """Return the reward in the field that the user chose, which must be there, else in the usual one.

    Raises ``BadField``: as ``numeric``, and where the chosen field is missing.

    >>> chosen_reward({"score": 1.5, "acc": True}, "acc", "score"), chosen_reward({}, None, "score")
    (1.0, None)
    """
    if chosen is not None and chosen not in fields:
        raise BadField(f"no {chosen}")
    return numeric(fields, usual if chosen is None else chosen)


def whole(fields: Mapping[str, Any], name: str | None) -> int | None:
    """Return a whole number of at least 0, also where it is written as text or 40.0; None where it is missing.

    Raises ``BadField`` for anything else, and above ``LARGEST_WHOLE``.
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


#: How tools say that a response ended by itself, and that it was cut short.
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


def finish_reason(fields: Mapping[str, Any], name: str | None) -> FinishReason | None:
    """Return how a response ended, in any tool's word for it; None where that is not known.

    >>> finish_reason({"status": "truncated"}, "status"), finish_reason({"status": "abort"}, "status")
    ('length', None)
    """
    return known_finish(_value(fields, name))


def known_finish(value: object) -> FinishReason | None:
    """Return the finish reason for a tool's word; None for an unknown one."""
    return _FINISHED.get(value.lower()) if isinstance(value, str) else None


#: Names of fields that say of a response whether it was cut short, or whether it ended by itself.
_CUT_NAMES = re.compile(r"trunc|cut|clip|overlong|too_long|length|exceed|max_tok|aborted", re.IGNORECASE)
_ENDED_NAMES = re.compile(r"finished|complete|ended|done|eos|stopped|terminated", re.IGNORECASE)


def ending(value: object, name: str) -> FinishReason | None:
    """Return how a response ended, in any tool's word for it, or as true or false where the field's name says of what.

    Raises ``BadField`` for true or false under another name.

    >>> ending("EOS", "why"), ending(True, "truncated"), ending("False", "is_finished"), ending("abort", "why")
    ('stop', 'length', 'length', None)
    """
    if isinstance(value, str) and value.lower() in _WORDS:
        value = bool(_WORDS[value.lower()])
    if not isinstance(value, bool):
        return known_finish(value)
    if _CUT_NAMES.search(name):
        return "length" if value else "stop"
    if _ENDED_NAMES.search(name):
        return "stop" if value else "length"
    raise BadField(f"{name} is true or false, and its name does not say of what; rename it to truncated or finished")


def step_number(value: object, name: str) -> int | None:
    """Return a step: a whole number, as in ``whole``, or a name such as ``step_100``, ``checkpoint-200`` or ``base``.

    Raises ``BadField`` for anything else.

    >>> [step_number(value, "step") for value in (40, "40.0", "step_100", "base", None)]
    [40, 40, 100, 0, None]
    """
    if not isinstance(value, str) or _is_number(value):
        return whole({name: value}, name)
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


def step_named(name: str, prefix: str) -> int | None:
    """Return the step in the name of a file or folder that is ``prefix`` and a number; None for any other.

    >>> step_named("global_step_40", "global_step_"), step_named("40", ""), step_named("latest", "")
    (40, 40, None)
    """
    number = name.removeprefix(prefix)
    return int(number) if name.startswith(prefix) and _STEP.fullmatch(number) else None


_END_TOKEN = re.compile(r"(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>)\s*\Z")


def without_end_token(response: str) -> str:
    """Return a response whose end token was decoded with it, without it: a final answer must not depend on it.

    >>> without_end_token("It is 4.<|im_end|>")
    'It is 4.'
    """
    end = _END_TOKEN.search(response, max(0, len(response) - 64))
    return response[: end.start()] if end else response


def inner(fields: Any, name: str) -> Mapping[str, Any]:
    """Return an object inside another; empty where it is missing or none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, dict) else {}


def finite(value: object) -> float | None:
    """Return a finite number; None for anything else, without a fault."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def sampling_settings(fields: Mapping[str, Any], **theirs: str) -> dict[str, float | int]:
    """Return the sampling settings among ``fields``, those that are no numbers left out; ``theirs`` names what differs.

    >>> sampling_settings({"temperature": 1, "top_p": None, "longest": 512}, max_tokens="longest")
    {'temperature': 1.0, 'max_tokens': 512}
    """
    values: dict[str, float | int | None] = {}
    for read, names in ((numeric, ("temperature", "top_p")), (whole, ("top_k", "max_tokens", "seed"))):
        for name in names:
            try:
                values[name] = read(fields, theirs.get(name, name))
            except BadField:
                continue
    return {name: value for name, value in values.items() if value is not None}
