"""Answers of many responses at once."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from oversharp.diagnostics.ingest.answers import _last_boxes, exact_answers
from oversharp.diagnostics.ingest.formats.columns import text_bytes
from oversharp.diagnostics.verifiers.exact import SHORT_END, exact_answer

PIECES = [
    *("\\boxed{", "\\boxed", "box", "\\fbox{", "}", "{", "7", "12 ", "\\", "b", "o", "x", "xed{", "\\bo", "ed{", "\n"),
    *("<think>", "</think>", "]", "é", "Answer: ", " ", "text " * 8, "####", "<answer>3</answer>", "$", ".", ""),
    *(r"\text{a}", r"\boxed{5}", r"\boxed{5}", r"\boxed 7"),
]


def parsed_at_end(*texts: str) -> list[bool]:
    """Return for each text whether only its end is parsed."""
    bytes_B, lengths_N = text_bytes(pa.array(texts, pa.string()))
    return (_last_boxes(bytes_B, np.cumsum(lengths_N, dtype=np.int64)) >= 0).tolist()


def test_a_short_end_with_a_box_is_parsed_without_the_text_before_it() -> None:
    assert parsed_at_end(r"So \boxed{7}.", r"\boxed{1} or \boxed{2}", "no box", "") == [True, True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        r"<think>\boxed{7}",
        r"[THINK] \boxed{7}",
        r"é \boxed{7}",
        r"\fbox{6} \boxed{7}",
        r"boxed{6} \boxed{7}",
        r"\boxed{7} or \boxed 8",
        r"\boxed{7}" + " " * SHORT_END,
        r"\boxed{6} \boxed",
    ],
)
def test_a_text_whose_beginning_may_matter_is_parsed_as_a_whole(text: str) -> None:
    assert parsed_at_end(r"\boxed{1}", text, r"{2} \boxed{3}")[::2] == [True, True]
    assert not parsed_at_end(r"\boxed{1}", text, r"{2} \boxed{3}")[1]


@pytest.mark.slow
def test_many_answers_equal_those_of_each_response() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        texts = ["".join(rng.choices(PIECES, k=rng.randrange(9))) for _ in range(rng.randrange(12))]
        column = pa.array(["not in the slice", *texts], pa.string()).slice(1)
        assert exact_answers(column).to_pylist() == [exact_answer(text) for text in texts]
