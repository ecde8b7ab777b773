"""Grading faults of a series: ungraded samples, and graders that accept all or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers.names import RECORDED, grader_name
from oversharp.diagnostics.verifiers.own_file import is_own

#: Largest share of ungraded samples of a checkpoint with which there is still a verdict.
MAX_UNGRADED = 0.05
#: Above this share of a grader's samples, timeouts are a warning.
NOTABLE_TIMEOUTS = 0.01

_FIRST_FAULT = """
SELECT s.verifier, s.reason
FROM own_samples AS s
JOIN audit_problems AS p USING (audit_id, problem_id)
WHERE s.audit_id = $audit_id AND s.state = 'error' AND NOT s.greedy
ORDER BY s.step, p.position, s.sample_index
LIMIT 1
"""


@dataclass(frozen=True, kw_only=True)
class GradeFault:
    """Grader of a sample that could not be graded (state ``error``), with the reason."""

    verifier: str
    reason: str

    @property
    def text(self) -> str:
        """Grader and reason, as part of a sentence.

        >>> GradeFault(verifier="reward.py:grade@3f2a00112233", reason="ValueError: no box, line 7").text
        'reward.py:grade@3f2a00112233: ValueError: no box, line 7'
        """
        return f"{grader_name(self.verifier)}: {self.reason}"


def first_fault(store: Store, audit_id: str) -> GradeFault | None:
    """Return the grading error of an audit's first ungraded sample, or None."""
    rows = store.frame(_FIRST_FAULT, audit_id=audit_id)
    if rows.empty:
        return None
    return GradeFault(verifier=str(rows["verifier"].iloc[0]), reason=str(rows["reason"].iloc[0]))


def why_no_verdict(counts: pd.DataFrame, fault: GradeFault) -> str | None:
    """Return why ungraded samples prevent a verdict, or None.

    There is no verdict if over 5 % of a checkpoint's samples are ungraded.

    ``counts`` has a row per checkpoint: its name, the number of samples ``n``, and the number ``n_failed`` with state
    ``error``.

    >>> counts = pd.DataFrame({"checkpoint": ["step 0", "step 20"], "n": [100, 100], "n_failed": [0, 12]})
    >>> why_no_verdict(counts, GradeFault(verifier="f.py:g@00", reason="KeyError: 'x', line 3"))
    "12 of 100 samples of step 20 could not be graded (f.py:g@00: KeyError: 'x', line 3): fix the grader and grade the
     same samples again (oversharp regrade)"
    """
    share = counts["n_failed"] / counts["n"]
    n_above = int((share > MAX_UNGRADED).sum())
    if not n_above:
        return None
    worst = counts.loc[share.idxmax()]
    others = f"; more than 5 % at {n_above} of {plural(len(counts), 'checkpoint')}" if n_above > 1 else ""
    return (
        f"{int(worst['n_failed']):,} of {plural(int(worst['n']), 'sample')} of {worst['checkpoint']} could not be "
        f"graded ({fault.text}{others}): fix the grader and grade the same samples again (oversharp regrade)"
    )


def grading_doubts(counts: pd.DataFrame, fault: GradeFault | None) -> Iterator[str]:
    """Yield a sentence about ungraded samples, and about each grader that often times out, or accepts all or none.

    ``counts`` has a row per checkpoint and verifier: ``verifier, n, n_correct, n_failed, n_timed_out``.

    >>> counts = pd.DataFrame({"verifier": "math", "n": [8, 4], "n_correct": [8, 4], "n_failed": 0, "n_timed_out": 0})
    >>> list(grading_doubts(counts, None))
    ['math accepted all 12 samples at every checkpoint: no change can be measured if every response is correct. See what
     it accepts (oversharp view), or use harder problems.']
    """
    n_failed = int(counts["n_failed"].sum())
    if fault is not None and n_failed:
        yield (
            f"{n_failed:,} of {plural(int(counts['n'].sum()), 'sample')} could not be graded and count as wrong "
            f"({fault.text})."
        )
    for verifier, own in counts.groupby("verifier", sort=True):
        n, n_correct, n_own_failed = (int(own[name].sum()) for name in ("n", "n_correct", "n_failed"))
        if n_own_failed == n:
            continue
        n_timed_out = int(own["n_timed_out"].sum())
        if n_timed_out > NOTABLE_TIMEOUTS * n:
            fix = " Raise --grader-timeout, or make the function faster." if is_own(str(verifier)) else ""
            yield (
                f"{n_timed_out:,} of {plural(n, 'sample')} timed out in grading ({grader_name(str(verifier))}) and "
                f"count as wrong.{fix}"
            )
        if n_correct == n:
            yield (
                f"{grader_name(str(verifier))} accepted all {plural(n, 'sample')} at every checkpoint: no change "
                "can be measured if every response is correct. See what it accepts (oversharp view), or use "
                "harder problems."
            )
        elif n_correct == 0:
            recorded = str(verifier).startswith(RECORDED)
            other = ", and the smallest reward of a correct sample (--correct-at)" if recorded else ""
            yield (
                f"{grader_name(str(verifier))} accepted none of {plural(n, 'sample')} at any checkpoint: check "
                f"the responses (oversharp view), and whether the grader can parse their answers{other}."
            )


def partial_rewards(store: Store, verifier: str) -> str | None:
    """Return a sentence about wrong responses with a reward above 0, if a function in a file has no threshold."""
    if not is_own(verifier) or ">=" in verifier:
        return None
    rows = store.frame(
        """
        SELECT count(*) AS n, count(*) FILTER (reward > 0 AND NOT correct) AS n_partial
        FROM grades
        WHERE verifier = $verifier AND state = 'ok'
        """,
        verifier=verifier,
    )
    n, n_partial = int(rows["n"].iloc[0]), int(rows["n_partial"].iloc[0])
    if not n_partial:
        return None
    return (
        f"{n_partial:,} of {plural(n, 'distinct response')} have a reward between 0 and 1 and count as wrong "
        f"({grader_name(verifier)}). For another threshold, set CORRECT_AT in the file to the smallest reward of a "
        "correct response."
    )
