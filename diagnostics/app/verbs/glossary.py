"""``oversharp explain``: words of the reports and the console, measures, benchmarks and presets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from diagnostics.records.errors import ConfigError

#: What the words mean here, and the page that has more.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "over-sharpening": "A run became surer of what it solves often, and lost what it solved rarely: pass@1 rises, "
        "and pass@k at larger k, or the probability of correct answers, falls below the base. docs/verdict.md",
        "base": "The checkpoint that the others are compared with, before RLVR: the lowest step, or the one of --base.",
        "pass@k": "The chance that at least one of k responses to a problem is correct, averaged over problems; "
        "estimated without bias from n samples (arXiv:2107.03374). pass@1 is accuracy.",
        "coverage": "pass@k at large k: what the model can reach at all when it is drawn often.",
        "verdict": "What the audit concludes of one run, from counts of correct samples alone: a label, one sentence "
        "and the claims that were tested, each with the rate at which it is wrong. docs/verdict.md",
        "window": "The last third of the checkpoints, whose samples the verdict pools.",
        "mode": "One way of being correct that a verifier can tell from others, such as 3 * (4 + 1) beside 15; where a "
        "problem has one accepted answer there is one mode, and nothing can be said of modes.",
        "mode collapse": "Correct answers outside of each problem's most frequent one became rarer, though pass@k did "
        "not surely fall.",
        "panel": "Responses that the base drew once and that every checkpoint scores: what they lose in "
        "log-probability shows what training moved, without new samples.",
        "frontier": "What the base reaches when it is only drawn at lower temperatures: pass@1 against pass@k. A run "
        "above it is better than sharpening. docs/frontier.md",
        "control": "Samples at another temperature that the frontier is made of: the base colder, a checkpoint hotter.",
        "ship": "The checkpoint with the highest pass@1 among those that lost nothing that is shown or estimated; "
        "`oversharp ship` names it, with what is sure of it. docs/guides/checkpoints.md",
        "surely": "More than luck explains, in 95 % of audits, after a correction for all that was looked at in the "
        "same table.",
        "cluster": "Problems that are variants of one another. They rise and fall together, so that an interval counts "
        "clusters; name the field with --cluster.",
        "look": "A verdict on another set of checkpoints or samples of the same run. Looking often finds losses that "
        "are none; levels are spent over looks. docs/verdict.md",
        "kernel": "Inner products of the gradients of log-probabilities of responses: how a step on one moves another. "
        "docs/kernel.md",
        "interference": "How much a correct answer loses in log-probability because other problems were trained on.",
        "lost": "No sample of the problem is correct any more. A rarely solved one is lost by chance too: `oversharp "
        "lost` says which surely fell.",
        "gained": "The first correct sample of a problem that the base never solved.",
        "format": "A fall that samples without a readable answer explain: answers are written otherwise, or cut off.",
        "guessing": "A fall that wrong answers would explain which the grader accepted at the base.",
        "repair": "Weights between the base and a checkpoint, which may give back what training lost. docs/repair.md",
    }
)


def explained(name: str) -> str:
    """What ``name`` is. Raises ``ConfigError`` with the nearest names where nothing is called so.

    >>> print(explained("Coverage"))
    coverage: pass@k at large k: what the model can reach at all when it is drawn often.
    >>> print(explained("aime25").splitlines()[0])
    benchmark:aime25: AIME 2025, I and II
    """
    from diagnostics.measures import all_measures, explanation, get_measure
    from diagnostics.tasks.benchmarks import BENCHMARKS
    from diagnostics.tasks.listing import task_explanation

    word = name.strip().lower().replace("_", " ")
    if text := WORDS.get(word) or WORDS.get(word.replace(" ", "-")):
        called = word if word in WORDS else word.replace(" ", "-")
        return f"{called}: {text}"
    if name.lower() in BENCHMARKS:
        name = f"benchmark:{name.lower()}"
    if told := task_explanation(name):
        return told
    try:
        return explanation(get_measure(name))
    except ConfigError as error:
        near = difflib.get_close_matches(
            word, [*WORDS, *BENCHMARKS, *(one.replace("_", " ") for one in all_measures())]
        )
        names = [one if one in WORDS else one.replace(" ", "_") for one in near]
        hint = f"did you mean {', '.join(names)}?" if names else f"the words: {', '.join(WORDS)}."
        everything = "`oversharp explain` lists measures, benchmarks and presets too"
        raise ConfigError(f"nothing is called {name!r}; {hint} {everything}") from error


def entries() -> list[dict[str, str]]:
    """Every word, measure, benchmark and preset by ``name``, with its ``kind`` and a ``text`` of one line or more."""
    from diagnostics.measures import all_measures
    from diagnostics.tasks.listing import task_titles

    measures = [{"name": one.name, "kind": "measure", "text": one.title} for one in all_measures().values()]
    tasks = [{"name": name, "kind": kind, "text": title} for kind, name, title in task_titles()]
    return [*measures, *tasks, *({"name": word, "kind": "word", "text": text} for word, text in WORDS.items())]


def listing() -> str:
    """A line for every word, measure, benchmark and preset."""
    from diagnostics.measures import all_measures
    from diagnostics.tasks.listing import task_listing

    measures = (f"{known.name:24} {known.title} [{known.unit}]" for known in all_measures().values())
    return "\n".join((*measures, task_listing(), f"{'words':24} {', '.join(WORDS)}"))
