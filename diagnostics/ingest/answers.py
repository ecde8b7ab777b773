r"""Find the final answers of many responses at once.

Most responses end with one ``\boxed{…}``, and then only this end determines the answer. The ends are found in the
concatenated bytes of all responses, and each distinct end is parsed once. ``exact_answer`` parses the other responses.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int64, UInt8
from pyarrow import compute

from oversharp.diagnostics.ingest.formats.columns import text_bytes
from oversharp.diagnostics.verifiers.exact import SHORT_END, answer_of_box, exact_answer

_BOX = b"\\boxed{"
#: Position of the letter x in ``\boxed{``. It is rarer in a text than the other letters.
_X = _BOX.index(b"x")
#: Bytes that may start a tag, a special token or a delimiter of thinking.
_MARKS = (b"<", b"]")


def exact_answers(texts: pa.StringArray) -> pa.StringArray:
    r"""Return ``exact_answer`` of each text; null where it states none. The texts have no nulls.

    >>> exact_answers(pa.array([r"It is \boxed{7}.", "Answer: 8", " "])).to_pylist()
    ['7', '8', None]
    """
    if not len(texts):
        return pa.array([], pa.string())
    bytes_B, lengths_N = text_bytes(texts)
    ends_N = np.cumsum(lengths_N, dtype=np.int64)
    box_N = _last_boxes(bytes_B, ends_N)
    places_M = np.flatnonzero(box_N >= 0)
    distinct = _slices(bytes_B, box_N[places_M], ends_N[places_M]).dictionary_encode()
    found = [answer_of_box(end) for end in distinct.dictionary.to_pylist()]
    is_closed_M = np.array([answer is not None for answer in found], dtype=bool)[distinct.indices.to_numpy()]
    by_end = pa.array([None if answer is None else answer[0] for answer in found], pa.string())
    answers = by_end.take(distinct.indices)
    if len(places_M) == len(texts) and is_closed_M.all():
        return answers
    is_parsed_N = np.ones(len(texts), dtype=bool)
    is_parsed_N[places_M[is_closed_M]] = False
    parsed = [exact_answer(text) for text in texts.filter(pa.array(is_parsed_N)).to_pylist()]
    whole = pa.nulls(len(texts), pa.string())
    whole = compute.replace_with_mask(whole, pa.array(~is_parsed_N), answers.filter(pa.array(is_closed_M)))
    return compute.replace_with_mask(whole, pa.array(is_parsed_N), pa.array(parsed, pa.string()))


def _last_boxes(bytes_B: UInt8[np.ndarray, " byte"], ends_N: Int64[np.ndarray, " text"]) -> Int64[np.ndarray, " text"]:
    r"""Return where the last ``\boxed{`` of each text begins; -1 if the text before it may change the answer.

    The text before it has no effect in an ASCII text without marks, if every "box" is part of a ``\boxed{``, and the
    last one is at most ``SHORT_END`` characters before the end of the text. ``exact_answer`` has the same conditions.
    """
    box_N = np.full(len(ends_N), -1, dtype=np.int64)
    x_K = np.flatnonzero(bytes_B == _BOX[_X])
    x_K = x_K[x_K >= 2]
    x_K = x_K[(bytes_B[x_K - 2] == ord("b")) & (bytes_B[x_K - 1] == ord("o"))]
    is_whole_K = (x_K >= _X) & (x_K < len(bytes_B) - (len(_BOX) - 1 - _X))
    starts_M = x_K[is_whole_K] - _X
    is_box_M = np.ones(len(starts_M), dtype=bool)
    for offset, letter in enumerate(_BOX):
        is_box_M &= bytes_B[starts_M + offset] == letter
    is_whole_K[is_whole_K] = is_box_M
    boxes_M = starts_M[is_box_M]
    box_N[np.searchsorted(ends_N, boxes_M, side="right")] = boxes_M  # the last of several boxes is assigned last
    is_long_N = ends_N - box_N > SHORT_END
    is_open_N = ends_N - box_N < len(_BOX)  # the match continues in the next text
    box_N[is_long_N | is_open_N] = -1
    box_N[np.searchsorted(ends_N, x_K[~is_whole_K], side="right")] = -1
    box_N[_is_marked(bytes_B, ends_N)] = -1
    return box_N


def _is_marked(bytes_B: UInt8[np.ndarray, " byte"], ends_N: Int64[np.ndarray, " text"]) -> Bool[np.ndarray, " text"]:
    """Return which texts contain a mark, or a character that is not ASCII."""
    is_marked_N = np.zeros(len(ends_N), dtype=bool)
    joined = bytes_B.tobytes()
    hits = [bytes_B == ord(mark) for mark in _MARKS if mark in joined]
    if not joined.isascii():
        hits.append(bytes_B > 127)
    for is_hit_B in hits:
        is_marked_N[np.searchsorted(ends_N, np.flatnonzero(is_hit_B), side="right")] = True
    return is_marked_N


def _slices(
    bytes_B: UInt8[np.ndarray, " byte"], starts_M: Int64[np.ndarray, " text"], ends_M: Int64[np.ndarray, " text"]
) -> pa.StringArray:
    """Return the texts between the starts and the ends."""
    lengths_M = ends_M - starts_M
    offsets = np.zeros(len(lengths_M) + 1, dtype=np.int32)
    np.cumsum(lengths_M, out=offsets[1:])
    place_B = np.repeat(starts_M - offsets[:-1], lengths_M) + np.arange(offsets[-1])
    return pa.StringArray.from_buffers(len(lengths_M), pa.py_buffer(offsets), pa.py_buffer(bytes_B[place_B]))
