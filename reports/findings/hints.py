"""Hints on how to measure a missing value, as commands.

Some reasons in the store end with a hint, which is split off. Other reasons get a hint here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oversharp.diagnostics.ways.contract import MOST_SAMPLES
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import Missing

#: (Ending of a stored reason, hint). AUDIT and AGAIN in a hint stand for the phrases below.
_ENDINGS = (
    (r"; run the audit (?:again )?with (?P<flags>[^;()]*[^;() ])", r"AUDIT with \g<flags>"),
    (r"; (?:the audit needs a teacher-forced pass)", "AUDIT with --entropy-samples 16"),
    (r"(?:; |, )?run the audit again to complete them", "AGAIN, which adds the missing parts"),
    (r"; run the audit again", "AGAIN, which adds the missing parts"),
    (r"; audit it again", "AUDIT with --panel 4 --kernel-problems 8"),
    (r"; audit them with `oversharp audit` to have it", "`oversharp audit` of the checkpoints themselves"),
    (
        r"; `oversharp regrade` grades the same samples by another, as a separate series",
        "`oversharp regrade STORE --verifier NAME` with another verifier",
    ),
    (
        r"; `oversharp regrade` does that",
        "`oversharp import` of a dump that has rewards, then `oversharp regrade STORE --verifier math`",
    ),
    (r"; draw more samples", "AUDIT with a larger --n"),
    (r"; (?P<what>give them a field .*? unrelated)", r"\g<what>"),
)
#: (Part of a stored reason that has no such ending, hint).
_HINTS_BY_PART = (
    ("do not list every accepted response", "audit problems that list every accepted response (their field modes)"),
    ("another tool graded", "`oversharp regrade STORE --verifier math`"),
    ("graded by one verifier", "`oversharp regrade STORE --verifier NAME` with another verifier"),
    ("finish reason", "a dump that has it (`oversharp import --map …,finish_reason=FIELD`), or AUDIT"),
    ("sharpened base is known only up to k =", "AUDIT with a larger --control-n"),
    ("token count", "a dump that has it (`oversharp import --map …,n_tokens=FIELD`), or AUDIT"),
    ("greedy response", "AUDIT, which samples a greedy response to every problem"),
    ("contains no rollouts", "AUDIT of a run directory that has rollouts"),
    ("correct mode", "problems whose verifier distinguishes correct answers, such as countdown or programs"),
    ("named mode", "problems whose verifier distinguishes correct answers, such as countdown or programs"),
    ("was parsed for its way", f"AUDIT with a larger --n, or of no more than {MOST_SAMPLES:,} samples"),
    ("log-probability from its sampler", "AUDIT at --temperature 1, without --top-p and --top-k"),
    ("several turns or tool calls", "an audit with --environment FILE.py:Class, or `oversharp import` of trajectories"),
    ("recorded rewards", "`oversharp import` of a dump that has rewards"),
    ("no graded samples", "AGAIN, until it finishes"),
    ("no finding of", "AGAIN, which computes the missing findings"),
)
_BY_DEFAULT = re.compile(r"AUDIT with --(?:panel|kernel-problems|entropy-samples) .*")
_NUMBER = re.compile(r"\d[\d.,]*")
_AUDITED = {"AUDIT": "the same audit", "AGAIN": "the same audit again"}
_IMPORTED = {
    "AUDIT": "`oversharp audit` of the checkpoints",
    "AGAIN": "the same `oversharp import` again",
}


def missing_value(source: Source, title: str, why: Sequence[str], *, unmeasured: str = "") -> Missing:
    """Return the block of a measure without a value: its reasons, and a hint on how to measure it.

    A measured quantity may have no value, such as k* if pass@k does not fall. It has no hint and the label "no value".
    Its reason does not begin with ``unmeasured``, which is the measure's reason for missing data.
    """
    split_reasons = [split_reason(reason) for reason in why]
    words = _AUDITED
    if all(
        series.is_recorded for series in source.series
    ):  # the samples were imported; an audit of the checkpoints would measure this by default
        words, split_reasons = (
            _IMPORTED,
            [(reason, _BY_DEFAULT.sub("AUDIT themselves", hint)) for reason, hint in split_reasons],
        )
    how = tuple(dict.fromkeys(_in_words(hint, words) for _, hint in split_reasons if hint))
    is_unmeasured = bool(how) or (bool(unmeasured) and any(reason.startswith(unmeasured) for reason in why))
    return Missing(
        title=title,
        why=_merge_reasons([reason for reason, _ in split_reasons]),
        how="; or ".join(how),
        label="not measured" if is_unmeasured else "no value",
    )


def _merge_reasons(why: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct reasons. Reasons that differ only in numbers become the first one and a count of the others.

    >>> _merge_reasons(["12.1 of 31 do (step 20)", "none does", "9 of 31 do (step 40)"])
    ('12.1 of 31 do (step 20), and 1 more like it', 'none does')
    """
    alike: dict[str, list[str]] = {}
    for reason in dict.fromkeys(why):
        alike.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    return tuple(first if not more else f"{first}, and {len(more)} more like it" for first, *more in alike.values())


def split_reason(why: str) -> tuple[str, str]:
    """Split a stored reason into reason and hint. The hint is "" if there is nothing to do.

    >>> split_reason("no panel; run the audit with --panel 4 (step 20)")
    ('no panel (step 20)', 'AUDIT with --panel 4')
    >>> split_reason("pass@k does not fall below the base up to k = 128")
    ('pass@k does not fall below the base up to k = 128', '')
    """
    for ending, hint in _ENDINGS:
        if (match := re.search(ending, why)) is not None:
            return why[: match.start()] + why[match.end() :].rstrip(), match.expand(hint).strip()
    return why, next((hint for part, hint in _HINTS_BY_PART if part in why), "")


def _in_words(hint: str, words: Mapping[str, str]) -> str:
    return re.sub("|".join(words), lambda match: words[match[0]], hint)
