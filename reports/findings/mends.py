"""What would measure that which has no value: told apart from the reason, as a command that the reader can give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oversharp.diagnostics.ways.contract import MOST_SAMPLES
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import Missing

#: Where a stored reason ends in its mend, and the mend as it is told, with the words below.
_ENDINGS = (
    (r"; kernel_certificate says why, or run the audit with (?P<flags>--[^;()]*[^;() ])", r"AUDIT with \g<flags>"),
    (r"; run the audit (?:again )?with (?P<flags>[^;()]*[^;() ])", r"AUDIT with \g<flags>"),
    (r"; (?:the audit needs a teacher-forced pass)", "AUDIT with --entropy-samples 16"),
    (r"(?:; |, )?run the audit again to complete them", "AGAIN, which completes what is there"),
    (r"; run the audit again", "AGAIN, which completes what is there"),
    (r"; audit it again", "AUDIT with --panel 4 --kernel-problems 8"),
    (r"; audit them with `oversharp audit` to have it", "`oversharp audit` of the checkpoints themselves"),
    (r": --controls does(?:, of the last checkpoint)?", "AUDIT with --controls"),
    (
        r"; `oversharp regrade` grades the same samples by another, as a series of its own",
        "`oversharp regrade STORE --verifier NAME`, NAME being another",
    ),
    (
        r"; `oversharp regrade` does that",
        "`oversharp import` of a dump that has rewards, then `oversharp regrade STORE --verifier math`",
    ),
    (r"; draw more samples", "AUDIT with a larger --n"),
    (r"; (?P<what>give them a field .*? unrelated)", r"\g<what>"),
)
#: Of reasons that say no mend.
_BESIDES = (
    ("do not list every accepted response", "audit problems that list every accepted response (their field modes)"),
    ("another tool graded", "`oversharp regrade STORE --verifier math`"),
    ("graded by one verifier", "`oversharp regrade STORE --verifier NAME`, NAME being another"),
    ("tells why it ended", "a dump that tells it (`oversharp import --map …,finish_reason=FIELD`), or AUDIT"),
    ("colder base reaches k =", "AUDIT with a larger --control-n"),
    ("tells how many tokens", "a dump that tells it (`oversharp import --map …,n_tokens=FIELD`), or AUDIT"),
    ("greedy response", "AUDIT, which draws a greedy response of every problem"),
    ("holds no rollouts", "AUDIT of a run directory that holds them"),
    ("correct mode", "problems whose verifier tells correct answers apart, as countdown's does"),
    ("named mode", "problems whose verifier tells correct answers apart, as countdown's does"),
    ("was read for its way", f"AUDIT with a larger --n, or of no more than {MOST_SAMPLES:,} samples"),
    ("recorded rewards", "`oversharp import` of a dump that has rewards"),
    ("no graded samples", "AGAIN, to its end"),
    ("holds no finding of", "AGAIN, which computes what its findings lack"),
)
_BY_DEFAULT = re.compile(r"AUDIT with --(?:panel|kernel-problems|entropy-samples) .*")
_NUMBER = re.compile(r"\d[\d.,]*")
_AUDITED = {"AUDIT": "the same audit", "AGAIN": "the same audit again"}
_IMPORTED = {
    "AUDIT": "`oversharp audit` of the checkpoints",
    "AGAIN": "the same `oversharp import` again",
}


def without_value(source: Source, title: str, why: Sequence[str], *, unmeasured: str = "") -> Missing:
    """The line of what has no value, with what would give one.

    What was measured and has none, such as a k* where pass@k does not fall, is not called unmeasured: there is nothing
    to do, and the reason is not the one that a measure has for lacking data, ``unmeasured``.
    """
    told = [told_apart(one) for one in why]
    words = _AUDITED
    if all(one.recorded for one in source.series):  # there is no audit yet that could lack what one has by default
        words, told = _IMPORTED, [(reason, _BY_DEFAULT.sub("AUDIT themselves", mend)) for reason, mend in told]
    how = tuple(dict.fromkeys(_in_words(mend, words) for _, mend in told if mend))
    is_unmeasured = bool(how) or (bool(unmeasured) and any(one.startswith(unmeasured) for one in why))
    return Missing(
        title=title,
        why=_once([reason for reason, _ in told]),
        how="; or ".join(how),
        label="not measured" if is_unmeasured else "no value",
    )


def _once(why: Sequence[str]) -> tuple[str, ...]:
    """Each reason once; of those that differ in their numbers alone the first, and how many there are.

    >>> _once(["12.1 of 31 do (step 20)", "none does", "9 of 31 do (step 40)"])
    ('12.1 of 31 do (step 20), and 1 more like it', 'none does')
    """
    alike: dict[str, list[str]] = {}
    for one in dict.fromkeys(why):
        alike.setdefault(_NUMBER.sub("#", one), []).append(one)
    return tuple(first if not more else f"{first}, and {len(more)} more like it" for first, *more in alike.values())


def told_apart(why: str) -> tuple[str, str]:
    """A reason without its mend, and the mend; empty where there is nothing to do.

    >>> told_apart("no panel; run the audit with --panel 4 (step 20)")
    ('no panel (step 20)', 'AUDIT with --panel 4')
    >>> told_apart("pass@k does not fall below the base up to k = 128")
    ('pass@k does not fall below the base up to k = 128', '')
    """
    for ending, mend in _ENDINGS:
        if (found := re.search(ending, why)) is not None:
            return why[: found.start()] + why[found.end() :].rstrip(), found.expand(mend).strip()
    return why, next((mend for part, mend in _BESIDES if part in why), "")


def _in_words(mend: str, words: Mapping[str, str]) -> str:
    return re.sub("|".join(words), lambda found: words[found[0]], mend)
