"""The texts of ``oversharp explain``: words of console and report, measures, benchmarks, presets."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from oversharp.diagnostics.measures import all_measures, explanation, get_measure
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.tasks.benchmark_sources import how_to_copy
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS, Benchmark, get_benchmark
from oversharp.diagnostics.tasks.presets import PRESET_SETTINGS, PRESETS, PromptPreset

#: Meanings of the words, and the page that has more.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "over-sharpening": "Training raised the success rate of often solved problems and lost rarely solved ones: "
        "pass@1 rises, and pass@k at larger k, or the probability of correct answers, falls below the base. "
        "docs/verdict.md",
        "base": "The checkpoint that the others are compared with, before RLVR: the lowest step, or the one of --base.",
        "pass@k": "The probability that at least one of k responses to a problem is correct, averaged over problems; "
        "estimated without bias from n samples (arXiv:2107.03374). pass@1 is accuracy.",
        "k": "How many responses to a problem pass@k allows. Each value of k has its own row or column.",
        "n": "Samples per problem and checkpoint.",
        "coverage": "pass@k at large k: the problems that the model can solve at all with many samples.",
        "points": "Probabilities times 100, and their differences: a pass@1 of 25.5 points is 25.5 %, a change of +3.0 "
        "is 3 percentage points. Brackets after a number are its 95 % confidence interval.",
        "verdict": "The conclusion about one run, from counts of correct samples alone: a label, and the claims that "
        "were tested, each with its error rate. docs/verdict.md",
        "coverage lost": "Heading of a verdict: pass@k, or correct answers outside the dominant mode, fell, and no "
        "other explanation is left. Attributes say where, on which problems, and what happened to pass@1. "
        "docs/verdict.md",
        "over-sharpened": "Coverage lost while pass@1 rose. docs/verdict.md",
        "degraded": "Coverage lost while pass@1 fell. docs/verdict.md",
        "no loss (within 2 points)": "Heading of a verdict: a fall of pass@k by 2 points or more is excluded at every "
        "k, with 95 % confidence. docs/verdict.md",
        "not shown": "Heading of a verdict: the data neither show a fall of pass@k nor exclude one of 2 points, or "
        "they show a fall that false accepts or the answer format may explain. `oversharp plan` computes how many "
        "problems and samples would settle it. docs/verdict.md",
        "no verdict": "Heading of a verdict: nothing could be tested, or the base's samples chose the problems. The "
        "sentence after it gives the reason.",
        "scope": "The problems that a verdict is about: the population they were sampled from, or these problems only. "
        "On the console also where a loss is concentrated.",
        "selection": "Problems that were kept because of the base samples they are compared by, such as those that the "
        "base solved sometimes. An unchanged model seems to lose on them. docs/verdict.md",
        "window": "The last third of the checkpoints, whose samples the verdict pools. Tables call it late.",
        "step": "The training step of a checkpoint; 0 is the base where the base has none.",
        "checkpoint": "The weights of a model at one training step.",
        "store": "The audit.duckdb file that holds samples, grades and findings of all its series. docs/store.md",
        "series": "The checkpoints of one training run, with their base, under one name in the store.",
        "problem": "One question with its accepted answer; problems of equal content are the same problem.",
        "mode": "One way of being correct that a verifier distinguishes from others, such as 3 * (4 + 1) and 15; a "
        "problem with one accepted answer has one mode, and measures of modes are empty for it.",
        "mode collapse": "Correct answers outside of each problem's most frequent one became rarer, though pass@k did "
        "not fall significantly.",
        "panel": "Responses that were sampled once from the base and that every checkpoint scores. Their change of "
        "log-probability shows what training moved, without new samples.",
        "frontier": "pass@1 against pass@k of the base at lower temperatures, which raise pass@1 and lower pass@k "
        "without training. A run above it is better than sharpening. docs/frontier.md",
        "sharper": "Whether a run is better than its base sampled at a lower temperature, or only as sharp: a lower "
        "temperature raises pass@1 and lowers pass@k without any training. docs/frontier.md",
        "better than sharpening": "With the same pass@k, pass@1 is above that of the base at a lower temperature.",
        "sharpening only": "The base at a lower temperature reaches the same pass@1 and pass@k, to within 2 points.",
        "worse than sharpening": "With the same pass@1, pass@k is below that of the base at a lower temperature.",
        "control": "Samples at other temperatures, for the frontier: the base at lower ones, a checkpoint at higher "
        "ones.",
        "t": "Temperature of the samples, where it is not the one of the audit.",
        "ship": "The eligible checkpoint with the highest pass@1, with its guarantee. A checkpoint is eligible if no "
        "pass@k fell significantly, or by more than 2 points in the estimate. docs/guides/checkpoints.md",
        "guarantee": "Bounds that hold together for the recommended checkpoint with 95 % confidence: the least gain of "
        "pass@1, and the largest fall of pass@k at any k. They account for the choice among all checkpoints.",
        "recommended": "The checkpoint that `oversharp ship` recommends. A triangle marks its row.",
        "worst pass@k": "The change of pass@k at the k where it is lowest against its error, with an interval for all "
        "checkpoints and k together. It decides whether a checkpoint is out.",
        "out": "A checkpoint that is not eligible: pass@k fell significantly, the verdict tested it as lost (verdict), "
        "it fell by more than is allowed in the estimate (estimate) or the expectation (expected), its samples are too "
        "few for the largest k (unseen), or pass@k fell on the held-out problems (veto).",
        "status": "Whether a checkpoint is recommended, out, or has a significantly lower pass@1 than the best one.",
        "estimate": "The number itself, without its interval. Out, estimate: pass@k fell by more than 2 points in it, "
        "not significantly.",
        "expected": "The mean of the posterior over all checkpoints, which corrects for luck in the highest of them. "
        "Out, expected: the fall of pass@k at the worst k is above 2 points in it.",
        "toss-up": "The eligible checkpoint with the highest pass@1 is better than the base with a posterior "
        "probability below 0.8. The base is recommended.",
        "unseen": "Too few samples at a temperature to estimate pass@k at the largest k; --control-n draws more.",
        "veto": "With --held-out: pass@k fell significantly on the problems that were not used for the choice.",
        "not to choose": "A checkpoint that could not be compared; the reason is below the table.",
        "lower pass@1": "An eligible checkpoint whose pass@1 is significantly below that of the best one.",
        "significant": "Chance alone gives such a difference in at most 5 % of audits, corrected for all tests of the "
        "same table. Reports and sentences also say *surely*.",
        "luck": "A difference that sampling the same problems again could give without any change of the model. The "
        "verdict tests the sum over all problems, which can be significant where no single problem is.",
        "made of": "The decomposition of the change of pass@k from the base to the last checkpoint, by how often the "
        "base solved the problems. For a rarely solved problem alone the data do not distinguish chance from a loss.",
        "cause": "What else would explain a loss: truncated, unparsed or misread samples, false accepts of the grader, "
        "an equal loss on every problem. docs/why.md",
        "caveat": "A limit of this verdict; --explain prints it. Warnings, which change the reading, are always "
        "printed.",
        "next": "The command that answers the next question.",
        "modes": "Less frequent correct answers became rarer, in addition to the verdict.",
        "worst step": "The checkpoint with the largest loss of pass@k, with an interval for all checkpoints and k "
        "together.",
        "simultaneous": "An interval that contains all values of its table at once in 95 % of audits.",
        "cluster": "Problems that are variants of one another. They rise and fall together, so that an interval counts "
        "clusters; name the field with --cluster.",
        "look": "A verdict on another set of checkpoints or samples of the same run. Many looks raise the chance of a "
        "false alarm, so the level is divided among them. docs/verdict.md",
        "claim": "A statement that the verdict tests, with its null hypothesis, p and level. It holds if p is at most "
        "the level; otherwise it is not shown, which does not make it false.",
        "level": "The largest p at which a claim holds. The levels of all claims add up to the chance of any false "
        "claim.",
        "p": "How likely data like these are if the null hypothesis is true. Adjusted: corrected for the number of "
        "tests (Holm).",
        "null hypothesis": "The statement that a test tries to refute, as a rule that nothing changed.",
        "pass@k fell here": "Claim: the mean pass@k of these very problems fell at some k.",
        "pass@k fell": "Claim: pass@k fell at some k on the population that these problems were sampled from.",
        "minority modes lost": "Claim: correct answers outside of each problem's most frequent one became rarer.",
        "a checkpoint lost": "Claim: pass@k of some single checkpoint is below the base's at some k.",
        "some problem lost": "Claim: the success rate of some single problem fell, tested for each problem (Holm).",
        "pass@k fell in the tail": "Claim: pass@k fell at some k above those of the verdict, where only the samples of "
        "the pooled checkpoints reach.",
        "no fall that matters": "Claim: at no k did pass@k fall by 2 points or more.",
        "kernel": "Inner products of the gradients of log-probabilities of responses: how a step on one moves another. "
        "docs/kernel.md",
        "interference": "How much a correct answer loses in log-probability because other problems were trained on.",
        "lost": "No sample of the problem is correct any more. Rarely solved problems are also lost by chance; "
        "`oversharp lost` tests them. A checkpoint is lost if pass@k fell significantly at some k.",
        "gained": "The first correct sample of a problem that the base never solved.",
        "fell": "Solved less often than at the base, and not lost.",
        "rose": "Solved more often than at the base, and solved there already.",
        "unchanged": "Solved as often as at the base.",
        "kept": "A checkpoint is kept if pass@k fell by at most 2 points at every k (95 % confidence).",
        "open": "A checkpoint is open if the data neither show a loss of pass@k nor exclude one of 2 points.",
        "left out": "A checkpoint or record that was not used; the reason is printed next to it.",
        "confirmed": "On fresh samples the problem fell or rose significantly (Fisher's exact test, Holm over all).",
        "seemed": "Whether the audit's own samples made the problem look lost or gained.",
        "fresh samples": "Samples that `oversharp confirm` draws to test problems that were chosen for their change.",
        "most between": "The most correct samples at any checkpoint between the base and the last.",
        "none at step": "The checkpoints at which no sample of the problem is correct.",
        "success": "Share of a problem's samples that are correct.",
        "correct": "Samples that the verifier accepted.",
        "k*": "The k above which pass@k of the window stays below the base: where the two curves cross.",
        "detected by": "The first checkpoint with whose samples the verdict would have been the same.",
        "decline began": "The step from which pass@k fell, with its 95 % confidence interval.",
        "format": "A fall that samples without a readable answer explain: answers are written otherwise, or truncated.",
        "guessing": "A fall that wrong answers would explain which the grader accepted at the base.",
        "truncated": "The response reached the token limit before it ended.",
        "not parsed": "The response has no answer that the verifier can read. It counts as wrong.",
        "ambiguous": "The response states several answers, and the verifier does not know which is meant.",
        "out of time": "The verifier reached its time limit. The sample counts as wrong.",
        "weights hash": "A hash of all tensors of a checkpoint, which identifies it in the store.",
        "stage": "A part of an audit that is timed separately: sampling, scoring, grading, measuring.",
        "rows written": "Rows that a stage added to the store.",
        "wall time": "Seconds that a stage took on the clock.",
        "core hours": "Hours of one CPU core; several cores share them.",
        "diffuse": "In `oversharp plan`, a loss in which rarely solved problems become rarer.",
        "concentrated": "In `oversharp plan`, a loss in which a few problems are never solved again.",
        "power": "The chance that an audit of that size finds a loss that is there.",
        "same text": "Prompts that are equal to one that was trained on, apart from spaces and letter case.",
        "same words": "Prompts with the words of one that was trained on, numbers included.",
        "shared run": "Prompts that share a long run of words with one that was trained on; --words sets how many.",
        "note": "Something about these problems or samples that may mislead.",
        "state": "Whether a problem was lost, gained, fell or rose. *or chance*: not significantly.",
        "repair": "Weights between the base and a checkpoint, which may restore what training lost. docs/repair.md",
    }
)

#: Other spellings, as in tables and sentences.
ALSO: Mapping[str, str] = MappingProxyType(
    {
        "a run of": "shared run",
        "at k": "k",
        "also": "ship",
        "audits": "power",
        "better": "better than sharpening",
        "better, or only sharper": "sharper",
        "caveats": "caveat",
        "cells": "power",
        "change": "points",
        "cheapest": "power",
        "difference": "points",
        "controls": "control",
        "cut off": "truncated",
        "earlier": "verdict",
        "gain": "gained",
        "grades": "verdict",
        "holds": "claim",
        "in words": "verdict",
        "intervals": "simultaneous",
        "hours": "core hours",
        "hours, at least": "core hours",
        "last": "step",
        "late": "window",
        "lowest change": "worst pass@k",
        "mean change": "points",
        "only sharper": "sharper",
        "path": "checkpoint",
        "prompts": "problem",
        "reason": "ship",
        "report": "verdict",
        "samples": "n",
        "sharpening": "over-sharpening",
        "shipped": "ship",
        "size": "points",
        "steps": "step",
        "surely": "significant",
        "the base": "base",
        "this store": "store",
        "truncation": "truncated",
        "warning": "note",
        "unsolved": "lost",
        "better or only sharper: not shown": "sharper",
        "whether better or only sharper is not shown": "sharper",
        "why": "made of",
        "worst": "worst pass@k",
    }
)


#: Parts of a heading that are not the word: unit, k, value.
_UNIT = re.compile(r"(, [^,]+| \([^)]*\))$")
_VALUE = re.compile(r"( =)? \d[\d,.]*( words)?$")
_AT = re.compile(r"@\d+\b")
_HYPHENATED = re.compile(r"\s*[\u2010-\u2014]\s*")
#: Number of words that an error lists if no name is similar.
_FIRST_WORDS = 12


def find_meaning(name: str) -> str:
    """Return the meaning of ``name``. Raises ``ConfigError`` with the nearest names if there is none.

    >>> print(find_meaning("Coverage"))
    coverage: pass@k at large k: the problems that the model can solve at all with many samples.
    >>> print(find_meaning("aime25").splitlines()[0])
    benchmark:aime25: AIME 2025, I and II
    """
    measures = all_measures()
    titles = {measure.title.lower(): measure.name for measure in measures.values()}
    for word in _spellings(name):
        if text := WORDS.get(known := ALSO.get(word, word)):
            return f"{known}: {text}"
        if measure := titles.get(word, word.replace(" ", "_") if word.replace(" ", "_") in measures else ""):
            return explanation(get_measure(measure))
    if name.lower() in BENCHMARKS:
        name = f"benchmark:{name.lower()}"
    if text := task_explanation(name):
        return text
    word = next(_spellings(name))
    candidates = {word: word for word in (*WORDS, *ALSO, *BENCHMARKS)} | {
        name.replace("_", " "): name for name in measures
    }
    nearest = [candidates[match] for match in difflib.get_close_matches(word, candidates)]
    hint = f"did you mean {', '.join(nearest)}?" if nearest else f"words: {', '.join(list(WORDS)[:_FIRST_WORDS])}, …;"
    raise ConfigError(f"nothing is called {name!r}; {hint} `oversharp explain` lists words, measures and benchmarks")


def _spellings(name: str) -> Iterator[str]:
    """Yield the spellings of a word in headings, labels and questions, the closest to ``name`` first.

    >>> list(_spellings("Worst pass@8, points"))
    ['worst pass@8, points', 'worst-pass@8,-points', 'worst pass@k', 'worst-pass@k']
    """
    whole = _HYPHENATED.sub("-", " ".join(name.lower().replace("_", " ").split()).strip(" .:?!◀▼▲"))
    short = _VALUE.sub("", _UNIT.sub("", _AT.sub("@k", whole)))
    bare = short.removeprefix("adjusted ").removeprefix("surely ").removeprefix("problems ")
    for word in dict.fromkeys((whole, short, bare, bare.removesuffix("s"))):
        yield word
        if " " in word:
            yield word.replace(" ", "-")


def list_entries() -> list[dict[str, str]]:
    """Return every word, measure, benchmark and preset with its ``name``, ``kind`` and ``text``."""
    entries = [
        *(("measure", measure.name, measure.title) for measure in all_measures().values()),
        *_task_titles(),
        *(("word", word, text) for word, text in WORDS.items()),
    ]
    return [{"name": name, "kind": kind, "text": text} for kind, name, text in entries]


def listing_text() -> str:
    """Return one line per measure, benchmark and preset, and the words."""
    flags = {"benchmark": "", "preset": " [--preset]"}
    words = textwrap.wrap(", ".join(WORDS), 96, break_on_hyphens=False)
    return "\n".join(
        (
            *(f"{measure.name:24} {measure.title} [{measure.unit}]" for measure in all_measures().values()),
            *(f"{name:24} {title}{flags[kind]}" for kind, name, title in _task_titles()),
            *(f"{'' if row else 'words':24} {text}" for row, text in enumerate(words)),
        )
    )


def _task_titles() -> list[tuple[str, str, str]]:
    """Return kind, name and title of each benchmark and each preset."""
    benchmarks = [("benchmark", f"benchmark:{name}", benchmark.title) for name, benchmark in BENCHMARKS.items()]
    return [*benchmarks, *(("preset", name, preset.title) for name, preset in PRESETS.items())]


def task_explanation(name: str) -> str | None:
    """Return the description of a benchmark (``benchmark:NAME``) or preset; None for any other name.

    Raises ``ProblemError`` for an unknown benchmark.

    >>> print(task_explanation("benchmark:aime25"))
    benchmark:aime25: AIME 2025, I and II
    data set   math-ai/aime25, split test, 30 problems
    commit     563bb8404243c5f09de6ec262f2db674fe5bce9b
    columns    problem, answer
    verifier   math
    offline    on a machine with a network, run: python -c 'from datasets import load_dataset; ...
    """
    if name.startswith("benchmark:"):
        return _benchmark_text(name, get_benchmark(name.removeprefix("benchmark:")))
    return _preset_text(name, PRESETS[name]) if name in PRESETS else None


def _benchmark_text(name: str, benchmark: Benchmark) -> str:
    data = benchmark.data
    config = f", configuration {data.config}" if data.config else ""
    lines = [
        f"{name}: {benchmark.title}",
        f"data set   {data.path}{config}, split {data.split}, {benchmark.n_problems:,} problems",
        f"commit     {data.revision}",
        f"columns    {', '.join(benchmark.columns)}",
        f"verifier   {benchmark.verifier}",
    ]
    if benchmark.limit_draws:
        lines.append("--limit    draws problems at random, by --seed")
    lines.append(f"offline    {how_to_copy(name.removeprefix('benchmark:'), data)}")
    return "\n".join(lines)


def _preset_text(name: str, preset: PromptPreset) -> str:
    settings = (f"{setting:16} {getattr(preset, setting)!r}" for setting in PRESET_SETTINGS)
    return "\n".join((f"--preset {name}: {preset.title}", *settings, f"Source: {preset.source}"))
