"""What those who grade are called where people read it."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.records.types import COUNTS_ALONE

#: ``verifier`` of grades that a tool gave begins with this; the tool's name follows.
RECORDED = "recorded:"


def grader_name(verifier: str) -> str:
    """A verifier by its name, the reward of another tool in words.

    >>> grader_name("math"), grader_name("recorded:verl"), grader_name("recorded:counts")
    ('math', 'the reward that verl recorded', 'the imported counts')
    """
    if verifier == f"{RECORDED}{COUNTS_ALONE}":
        return "the imported counts"
    if verifier.startswith(RECORDED):
        return f"the reward that {verifier.removeprefix(RECORDED)} recorded"
    return verifier


def listed_graders(verifiers: Sequence[str]) -> str:
    """Verifiers by name, as part of a sentence.

    >>> listed_graders(["choice", "exact", "math"]), listed_graders([])
    ('choice, exact and math', 'an unnamed grader')
    """
    names = [grader_name(verifier) for verifier in verifiers] or ["an unnamed grader"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def correct_means(verifiers: Sequence[str]) -> str:
    """What makes a response correct, as part of a sentence.

    >>> correct_means(("exact", "math"))
    'correct is what exact and math accepted'
    >>> correct_means(("recorded:verl",))
    'correct is told by the reward that verl recorded'
    """
    listed = listed_graders(verifiers)
    if any(verifier.startswith(RECORDED) for verifier in verifiers):
        return f"correct is told by {listed}"
    return f"correct is what {listed} accepted"
