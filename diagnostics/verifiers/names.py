"""Names of verifiers and recorded rewards, as printed in messages and reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oversharp.diagnostics.records.types import COUNTS_ALONE

#: Prefix of ``verifier`` for grades that another tool recorded. The tool's name follows.
RECORDED = "recorded:"
#: A judge's file, and the hash of its content.
JUDGE_SPEC = re.compile(r"judge:(?P<file>.+\.toml)(?:@(?P<code>[0-9a-f]+))?", re.DOTALL)


def is_judge(verifier: str) -> bool:
    """Return whether ``verifier`` is ``judge:FILE.toml``, with or without a hash.

    >>> is_judge("judge:rubric.toml"), is_judge("judge:a/rubric.toml@3f2a00112233"), is_judge("math")
    (True, True, False)
    """
    return JUDGE_SPEC.fullmatch(verifier) is not None


def grader_name(verifier: str) -> str:
    """Return the printed name of a verifier. Another tool's recorded reward is described in words.

    >>> grader_name("math"), grader_name("recorded:verl"), grader_name("recorded:counts")
    ('math', 'the reward that verl recorded', 'the imported counts')
    """
    if verifier == f"{RECORDED}{COUNTS_ALONE}":
        return "the imported counts"
    if verifier.startswith(RECORDED):
        return f"the reward that {verifier.removeprefix(RECORDED)} recorded"
    return verifier


def listed_graders(verifiers: Sequence[str]) -> str:
    """Return verifiers' names joined with commas and "and".

    >>> listed_graders(["choice", "exact", "math"]), listed_graders([])
    ('choice, exact and math', 'an unnamed grader')
    """
    names = [grader_name(verifier) for verifier in verifiers] or ["an unnamed grader"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def correct_means(verifiers: Sequence[str]) -> str:
    """Return a clause that states how responses were graded.

    >>> correct_means(("exact", "math"))
    'responses were graded by exact and math'
    >>> correct_means(("recorded:verl",))
    'responses were graded by the reward that verl recorded'
    """
    return f"responses were graded by {listed_graders(verifiers)}"
