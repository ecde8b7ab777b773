"""Checkpoints that a server may have confused, by their fingerprints in the store."""

from __future__ import annotations

import pytest

from oversharp.diagnostics.engine.sampler_reports import confused_checkpoints
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.samplers.endpoint.fingerprint import FINGERPRINT_STAGE, AnswerFingerprint, GreedyAnswer
from oversharp.diagnostics.store import Store


class Stored:
    """A store with nothing but the fingerprints of a series, as the query returns them."""

    def __init__(self, rows: list[tuple[str, str, list[AnswerFingerprint]]]) -> None:
        import pandas as pd

        self._rows = pd.DataFrame(
            [(name, name, [one.as_json() for one in notes]) for name, _, notes in rows],
            columns=["checkpoint_id", "label", "notes"],
        )

    def frame(self, sql: str, **bound: object):  # type: ignore[no-untyped-def]
        return self._rows if bound["stage"] == FINGERPRINT_STAGE else self._rows.iloc[:0]


def fingerprint(token: int, logp: float | None) -> AnswerFingerprint:
    logps = None if logp is None else (logp,)
    return AnswerFingerprint(answers=(GreedyAnswer(prompt="p", text="", token_ids=(token,), logps=logps),))


def find(*notes: list[AnswerFingerprint]) -> tuple[str, ...]:
    rows = [(name, name, fingerprints) for name, fingerprints in zip("abc", notes, strict=False)]
    key = AuditKey.__new__(AuditKey)
    for name in ("series", "settings_id"):
        object.__setattr__(key, name, "x")
    store: Store = Stored(rows)  # type: ignore[assignment]
    return confused_checkpoints(store, key)


@pytest.mark.parametrize("logp", [None, -0.1])
def test_equal_responses_without_log_probabilities_count_only_if_all_checkpoints_have_them(logp: float | None) -> None:
    same, other = fingerprint(3, logp), fingerprint(4, None if logp is None else -0.2)
    assert len(find([same], [same], [same])) == 2
    assert len(find([other], [same], [same])) == (0 if logp is None else 1)
    assert find([other], [same]) == ()


def test_other_responses_than_in_any_earlier_run_are_found_though_the_last_are_the_first() -> None:
    first, other = fingerprint(3, -0.1), fingerprint(4, -0.1)
    (text,) = find([first, other, first])
    assert text.startswith("a: the server's greedy responses differ from those of an earlier run")
    assert find([first, first]) == ()
