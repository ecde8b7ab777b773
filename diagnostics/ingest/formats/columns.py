"""Convert whole columns of Parquet.

``text_column`` and the other functions convert a column as the functions of ``fields`` convert single values
(``get_text``). They return None if any value has an unusual type or is not UTF-8. Then the rows are converted
individually, which yields a fault for each bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int32, UInt8
from pyarrow import compute

from oversharp.diagnostics.ingest.formats.contract import RecordedRows, text_offsets
from oversharp.diagnostics.ingest.formats.fields import (
    LARGEST_NUMBER,
    LARGEST_WHOLE,
    BadField,
    parse_finish,
    parse_step,
)


def differs(rows: RecordedRows, name: str) -> Bool[np.ndarray, " row-1"]:
    """Return for each row after the first whether the field ``name`` differs from the previous row."""
    column = rows.columns.get(name)
    if column is None:
        return np.zeros(len(rows) - 1, dtype=bool)
    if column.null_count:  # safe replacements: texts are never empty here, and numbers never negative
        column = column.fill_null("" if pa.types.is_string(column.type) else -1)
    unequal = compute.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    return np.asarray(unequal.to_numpy(zero_copy_only=False), dtype=bool)


def text_bytes(texts: pa.StringArray) -> tuple[UInt8[np.ndarray, " byte"], Int32[np.ndarray, " text"]]:
    """Return the bytes of all texts, concatenated, and the length of each text."""
    if not len(texts):
        return np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int32)
    offsets_N = text_offsets(texts)
    buffer = texts.buffers()[2]
    all_bytes = np.empty(0, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)
    return all_bytes[offsets_N[0] : offsets_N[-1]], np.diff(offsets_N)


def plain_column(column: pa.Array) -> pa.Array:
    """Decode a dictionary-encoded column."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def text_column(column: pa.Array) -> pa.Array | None:
    """Convert texts like ``get_text``."""
    return None if column.null_count else _as_text(column)


def optional_text_column(column: pa.Array) -> pa.Array | None:
    """Convert texts or integers like ``get_optional_text``."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    texts = _as_text(column)
    if texts is None:
        return None
    is_empty = compute.equal(texts, "")
    return compute.if_else(is_empty, pa.scalar(None, pa.string()), texts) if compute.any(is_empty).as_py() else texts


def _as_text(column: pa.Array) -> pa.Array | None:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    try:
        texts = column.cast(pa.string())
        texts.validate(full=True)  # the file may contain invalid UTF-8
    except pa.ArrowInvalid:
        return None
    return texts


def numeric_column(column: pa.Array) -> pa.Array | None:
    """Return a column of numbers or booleans as float64; None for another type, NaN or values that are too large."""
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.float64(), safe=False)
    if not (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return None
    numbers = column.cast(pa.float64(), safe=False)
    is_usual = compute.less_equal(compute.abs(numbers), LARGEST_NUMBER)  # false for NaN
    return numbers if compute.all(is_usual).as_py() in (True, None) else None


def whole_column(column: pa.Array) -> pa.Array | None:
    """Return an integer column as int32; None for another type, or for values outside 0 to ``LARGEST_WHOLE``."""
    if not pa.types.is_integer(column.type):
        return None
    ends = compute.min_max(column).as_py()
    if ends["min"] is not None and (ends["min"] < 0 or ends["max"] > LARGEST_WHOLE):
        return None
    return column.cast(pa.int32())


def step_column(column: pa.Array) -> pa.Array | None:
    """Convert steps or step names like ``parse_step``."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return whole_column(column)
    names = column.cast(pa.string()).dictionary_encode()
    try:
        steps = pa.array([parse_step(name, "") for name in names.dictionary.to_pylist()], pa.int32())
    except (BadField, UnicodeDecodeError):
        return None
    return steps.take(names.indices)


def greedy_column(column: pa.Array) -> pa.Array | None:
    """Return for each number whether it is 1; False for missing numbers."""
    numbers = numeric_column(column)
    return None if numbers is None else compute.equal(numbers, 1.0).fill_null(False)


def finish_column(column: pa.Array) -> pa.Array | None:
    """Convert finish reasons like ``parse_finish``."""
    texts = optional_text_column(column)
    if texts is None:
        return None
    words = texts.dictionary_encode()
    reasons = pa.array([parse_finish(word) for word in words.dictionary.to_pylist()], pa.string())
    return reasons.take(words.indices)


#: Column converter of each field.
READ_COLUMN: Mapping[str, Callable[[pa.Array], pa.Array | None]] = {
    "prompt": text_column,
    "response": text_column,
    "gold": optional_text_column,
    "reward": numeric_column,
    "step": step_column,
    "problem": optional_text_column,
    "index": whole_column,
    "answer": optional_text_column,
    "greedy": greedy_column,
    "n_tokens": whole_column,
    "finish_reason": finish_column,
    "task": optional_text_column,
    "cluster": optional_text_column,
}


# ---------------------------------------------------------------- lists of values

_NUMBERS = frozenset({"reward", "logp_sum", "entropy_sum"})
_WHOLE_NUMBERS = frozenset({"step", "index", "n_tokens"})


def rows_from_lists(first: int, lists: Mapping[str, Sequence[Any]]) -> RecordedRows:
    """Return rows with these lists of values as columns.

    The values have the types of ``Recorded``, except that texts may be integers, and numbers integers or booleans.
    """
    columns = {name: _list_column(name, values) for name, values in lists.items()}
    columns.setdefault("greedy", pa.repeat(False, len(columns["response"])))
    return RecordedRows(first=first, columns=columns)


def _list_column(name: str, values: Sequence[Any]) -> pa.Array:
    if name in _WHOLE_NUMBERS:
        return pa.array(values, pa.int32())
    if name == "greedy":
        return pa.array([value == 1.0 for value in values], pa.bool_())
    kind, convert = (pa.float64(), float) if name in _NUMBERS else (pa.string(), str)
    try:
        return pa.array(values, kind)
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # a value has another type
        return pa.array([None if value is None else convert(value) for value in values], kind)
