"""Texts of ``oversharp explain``: words, measures, benchmarks and presets."""

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

#: Word → its meaning, with the page that explains more.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "over-sharpening": "Training raised the success rate of problems that were often solved, and lost problems "
        "that were rarely solved. pass@1 rises. pass@k at larger k, or the probability of correct answers, falls "
        "below the base. docs/verdict.md",
        "base": "The checkpoint before RLVR, with which the others are compared: the lowest step, or the one of "
        "--base.",
        "pass@k": "The probability that at least one of k responses to a problem is correct, averaged over problems. "
        "It is estimated without bias from n samples (arXiv:2107.03374). pass@1 is accuracy.",
        "k": "The number of responses to a problem that pass@k allows. Each value of k has its own row or column.",
        "n": "Number of samples per problem and checkpoint.",
        "until solved": "A problem is sampled in rounds that double, up to n samples. It stops after the round that "
        "leaves it with --until-solved correct ones. pass@k stays unbiased. docs/early_stopping.md",
        "first round": "The samples of a problem before the first stop (--first). Measures that need equally many "
        "samples of every problem use only these. docs/early_stopping.md",
        "coverage": "pass@k at large k: the share of problems that the model can solve at all with many samples.",
        "beyond": "The change of pass@k at twice the largest number of samples, as an interval: the smallest and the "
        "largest change among all distributions of the success rates that fit the samples. It has no effect on the "
        "verdict. docs/early_stopping.md",
        "points": "Percentage points. A pass@1 of 25.5 points is 25.5 %, and a change of +3.0 is 3 percentage points. "
        "The brackets after a number contain its 95 % confidence interval.",
        "verdict": "The conclusion about one run: a label, and the claims that were tested, each with its error rate. "
        "It uses only counts of correct samples. docs/verdict.md",
        "coverage lost": "Heading of a verdict: pass@k fell, or correct answers outside the dominant mode became "
        "rarer, and no other explanation is left. Attributes give the place, the problems, and the change of pass@1. "
        "docs/verdict.md",
        "over-sharpened": "Coverage lost while pass@1 rose. docs/verdict.md",
        "degraded": "Coverage lost while pass@1 fell. docs/verdict.md",
        "no loss (within 2 points)": "Heading of a verdict: at every k, the data exclude a fall of pass@k by 2 points "
        "or more, with 95 % confidence. docs/verdict.md",
        "not shown": "Heading of a verdict: the data neither show a fall of pass@k nor exclude one of 2 points. Or "
        "they show a fall that false accepts or the answer format may explain. `oversharp plan` computes how many "
        "problems and samples are needed to decide. docs/verdict.md",
        "no verdict": "Heading of a verdict: nothing could be tested, or the problems were selected by the base's "
        "samples. The next sentence gives the reason.",
        "scope": "The problems that a verdict is about: the population they were sampled from, or these problems "
        "only. On the console, scope also says where a loss is concentrated.",
        "selection": "Problems that were chosen by the same base samples that the audit compares, such as problems "
        "that the base solved sometimes. An unchanged model then seems to lose problems. docs/verdict.md",
        "window": "The last third of the checkpoints. The verdict pools their samples. Tables call it late.",
        "step": "The training step of a checkpoint. A base without a step has step 0.",
        "checkpoint": "The weights of a model at one training step.",
        "store": "The audit.duckdb file with the samples, grades and findings of all series. docs/store.md",
        "series": "The checkpoints of one training run and their base, under one name in the store.",
        "problem": "One question with its accepted answer. Problems with equal content are the same problem.",
        "mode": "A correct answer that the verifier distinguishes from other correct ones, such as 3 * (4 + 1) and "
        "15. A problem with one accepted answer has one mode, and measures of modes are empty for it.",
        "mode collapse": "Correct answers other than each problem's most frequent one became rarer, but pass@k did "
        "not fall significantly.",
        "panel": "Responses sampled once from the base, whose log-probability every checkpoint computes. The change "
        "of log-probability shows the effect of training without new samples.",
        "frontier": "pass@1 against pass@k of the base at lower temperatures. A lower temperature raises pass@1 and "
        "lowers pass@k without training. A run above this curve is better than sharpening. docs/frontier.md",
        "sharper": "Whether a run is better than its base sampled at a lower temperature. A lower temperature raises "
        "pass@1 and lowers pass@k without any training, so it makes the base sharper. docs/frontier.md",
        "better than sharpening": "pass@1 is above that of the base at the lower temperature with the same pass@k.",
        "sharpening only": "The base at a lower temperature has the same pass@1 and pass@k, to within 2 points.",
        "worse than sharpening": "pass@k is below that of the base at the lower temperature with the same pass@1.",
        "control": "Samples at another temperature, for the frontier: of the base at lower temperatures, of a "
        "checkpoint at higher ones.",
        "t": "Sampling temperature, if it differs from the audit's.",
        "ship": "The eligible checkpoint with the highest expected pass@1, and its guarantee. A checkpoint is not "
        "eligible if its pass@k fell significantly, or if the expected fall is above 2 points. "
        "docs/guides/checkpoints.md",
        "guarantee": "Two bounds for the recommended checkpoint, which hold together with 95 % confidence: the "
        "smallest gain of pass@1, and the largest fall of pass@k over all k. They account for the choice among all "
        "checkpoints.",
        "recommended": "The checkpoint that `oversharp ship` recommends. Its row has a triangle.",
        "worst pass@k": "In a verdict: the lowest change of pass@k over k, on average over the late checkpoints. Its "
        "interval is for this k alone. In a choice: the change at the k where it is lowest relative to its standard "
        "error. Its interval covers all checkpoints and k together. It decides whether a checkpoint is out.",
        "out": "A checkpoint that is not eligible, with the reason. significant: pass@k fell significantly. verdict: "
        "the verdict tested it as lost. estimate: the falls in the estimate and the expectation are above the allowed "
        "one. expected: that in the expectation alone is. unseen: too few samples for the largest k. veto: pass@k fell "
        "on the held-out problems.",
        "status": "Whether a checkpoint is recommended, is out, or has a significantly lower pass@1 than the best one.",
        "estimate": "The estimated value, without its interval. As a reason for out: pass@k fell by more than 2 "
        "points in the estimate and in expectation, but not significantly.",
        "expected": "The posterior mean, in which the neighbours of a checkpoint correct its estimate. As a reason "
        "for out: the expected fall of pass@k at the worst k is above 2 points.",
        "toss-up": "The posterior probability that the best eligible checkpoint has a higher pass@1 than the base is "
        "below 0.8. The base is recommended, because it is the safe choice.",
        "unseen": "There are too few samples at a temperature to estimate pass@k at the largest k. Raise --control-n.",
        "veto": "With --held-out: pass@k fell significantly on the problems that were not used to choose the "
        "checkpoint.",
        "not to choose": "A checkpoint that could not be compared; the reason is below the table.",
        "lower pass@1": "An eligible checkpoint whose pass@1 is significantly below that of the best one.",
        "significant": "Without a real difference, chance gives such a result in at most 5 % of audits, corrected for "
        "all tests of the same table. Reports and sentences also say *surely*.",
        "luck": "A difference that could occur by sampling the same problems again from an unchanged model. The "
        "verdict tests the sum over all problems, which can be significant even if no single problem is.",
        "made of": "The decomposition of the change of pass@k from the base to the last checkpoint, by how often the "
        "base solved the problems. For a single rarely solved problem, the data cannot distinguish chance from a "
        "loss.",
        "cause": "Other explanations of a loss: truncated, unparsed or misread samples, false accepts of the grader, "
        "or an equal loss on every problem. docs/why.md",
        "judge": "A model behind a server that grades responses by a rubric, the verifier judge:FILE.toml. "
        "`oversharp judge` measures its errors. docs/judges.md",
        "labels": "Grades by people, 1 correct or 0 incorrect, for randomly drawn responses. They show a judge's "
        "errors and correct pass@k.",
        "judged": "pass@k, or its change since the base in points, by the judge's grades.",
        "corrected": "The same value corrected by labels, with its 95 % interval. docs/judges.md",
        "sets": "Labelled sets: up to k samples of a problem in random order, labelled up to the first correct one.",
        "repeats agree": "Share of responses for which three verdicts of the judge are equal.",
        "planted change": "A change of a response, or of the judge's instruction, that should not change the verdict.",
        "accepted": "Refused responses that the judge accepts after the planted change.",
        "refused": "Accepted responses that the judge refuses after the planted change.",
        "responses": "Number of responses with a verdict before and after the planted change.",
        "shift": "Change of the share of accepted responses in points, with its 95 % interval.",
        "leniency": "Change, from the base to the late checkpoints, of the samples that only the judge accepts and not "
        "the second verifier, in points. The part that follows from the change of accuracy is removed.",
        "caveat": "A limitation of this verdict. --explain prints it. Warnings, which change the conclusion, are "
        "always printed.",
        "next": "The command to run next.",
        "modes": "Correct answers other than each problem's most frequent one became rarer. The size is the fall of "
        "their pass@k.",
        "test": "The null hypothesis that decides the verdict, whether it is rejected at its level, and its p values "
        "for these problems and for the population they were sampled from.",
        "lenient": "pass@1, and the lowest change of pass@k, by a lenient reader's grades of the same samples. It is "
        "printed if the style of the answers changed. docs/grading.md",
        "parsed": "pass@1, and the lowest change of pass@k, among the parsed samples alone. It is printed if "
        "unparsed samples could explain half of a fall. In rows that start with at best, the late unparsed samples "
        "in excess of the base's count as correct.",
        "lost step": "The lost checkpoint with the largest fall, at its k with the most significant fall. The interval "
        "is for the population, and covers all checkpoints and k together.",
        "simultaneous": "Of intervals: in 95 % of audits, all intervals of the table contain their true values at "
        "once.",
        "cluster": "Problems that are variants of each other. Their results are correlated, so intervals treat a "
        "cluster as one unit. Pass the field that identifies the cluster as --cluster.",
        "look": "A verdict on a further set of checkpoints or samples of the same run. Many looks raise the chance of "
        "a false alarm, so the level is divided among them. docs/verdict.md",
        "claim": "A statement that the verdict tests, with null hypothesis, p and level. The claim holds if p is at "
        "most the level. A claim that does not hold is not shown, but may be true.",
        "level": "The largest p at which a claim holds. The sum of the levels of all claims bounds the chance of any "
        "false claim.",
        "p": "The probability of data at least this extreme if the null hypothesis is true. Adjusted: corrected for "
        "the number of tests (Holm).",
        "null hypothesis": "The statement that a test tries to reject, usually that nothing changed.",
        "pass@k fell here": "Claim: the mean pass@k of exactly these problems fell at some k.",
        "pass@k fell": "Claim: pass@k fell at some k on the population from which these problems were sampled.",
        "minority modes lost": "Claim: correct answers other than each problem's most frequent one became rarer.",
        "a checkpoint lost": "Claim: at least one checkpoint has a lower pass@k than the base at some k.",
        "some problem lost": "Claim: the success rate of at least one problem fell. Each problem is tested, with "
        "Holm's correction.",
        "pass@k fell in the tail": "Claim: pass@k fell at some k above those of the verdict. Only the pooled "
        "checkpoints have enough samples for such k.",
        "no fall that matters": "Claim: pass@k did not fall by 2 points or more at any k.",
        "kernel": "Inner products of the gradients of the log-probabilities of two responses: how a gradient step on "
        "one changes the other. docs/kernel.md",
        "interference": "How much log-probability a correct answer loses because other problems were trained.",
        "lost": "Of a problem: it has no correct sample any more. Rarely solved problems are also lost by chance, "
        "which `oversharp lost` tests. Of a checkpoint: pass@k fell significantly at some k.",
        "gained": "Of a problem: it has a correct sample, and the base never solved it.",
        "fell": "Of a problem: solved less often than at the base, but not lost.",
        "rose": "Of a problem: solved more often than at the base, which also solved it.",
        "unchanged": "Of a problem: solved as often as at the base.",
        "kept": "Of a checkpoint: pass@k fell by at most 2 points at every k (95 % confidence).",
        "open": "Of a checkpoint: the data neither show a loss of pass@k nor exclude one of 2 points.",
        "left out": "A checkpoint or record that was not used; the reason is printed next to it.",
        "confirmed": "Of a problem: on fresh samples, its success rate fell or rose significantly (Fisher's exact "
        "test, Holm over all).",
        "seemed": "Whether the problem was lost or gained by the audit's own samples.",
        "fresh samples": "New samples from `oversharp confirm`, which test problems that were selected because they "
        "changed.",
        "most between": "The largest number of correct samples at any checkpoint between the base and the last one.",
        "none at step": "The checkpoints at which the problem has no correct sample.",
        "success": "Share of a problem's samples that are correct.",
        "correct": "Number of samples that the verifier accepted.",
        "k*": "The k at which the pass@k curves of window and base cross. Above it, the window stays below the base.",
        "detected by": "The first checkpoint whose samples are enough for the same verdict.",
        "decline began": "The step from which pass@k fell, with its 95 % confidence interval.",
        "format": "The cause of a fall: samples without a readable answer, because answers are written differently or "
        "truncated.",
        "guessing": "The cause of a fall: the grader may have accepted wrong answers of the base.",
        "truncated": "The response reached the token limit before it ended.",
        "not parsed": "The response has no answer that the verifier can read. It counts as wrong.",
        "ambiguous": "The response contains several answers, and the verifier cannot decide between them.",
        "out of time": "The verifier reached its time limit. The sample counts as wrong.",
        "weights hash": "A hash of all tensors of a checkpoint, which identifies it in the store.",
        "stage": "A part of an audit that is timed separately: sampling, scoring, grading, measuring.",
        "rows written": "Rows that a stage added to the store.",
        "wall time": "Elapsed time of a stage in seconds.",
        "core hours": "Hours of one CPU core. With several cores, the wall time is shorter.",
        "diffuse": "In `oversharp plan`: a loss in which rarely solved problems become rarer.",
        "concentrated": "In `oversharp plan`: a loss in which a few problems are never solved again.",
        "power": "The probability that an audit of that size finds an existing loss.",
        "never solved": "In `oversharp plan`: problems without a correct sample at a checkpoint. They are sampled up "
        "to the largest number of samples.",
        "stop after": "The number of correct samples after which a problem is not sampled further at a checkpoint; "
        "*never*: all problems have n samples. docs/early_stopping.md",
        "times as many": "The samples or tokens of this row, divided by those of the marked one.",
        "same text": "Number of prompts that equal a training prompt, ignoring spaces and letter case.",
        "same words": "Number of prompts with the same words and numbers as a training prompt.",
        "shared run": "Number of prompts that share a long sequence of words with a training prompt. --words sets its "
        "length.",
        "note": "A property of these problems or samples that may mislead the reader.",
        "state": "Whether a problem was lost, gained, fell or rose. *or chance*: the change is not significant.",
        "repair": "Weights interpolated between the base and a checkpoint, which may restore lost problems. "
        "docs/repair.md",
    }
)

#: Other spellings of words, from tables and sentences → the word.
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
        "at best": "parsed",
        "at best @1": "parsed",
        "at best @k": "parsed",
        "late": "window",
        "lenient @1": "lenient",
        "lenient @k": "lenient",
        "lowest change": "worst pass@k",
        "mean change": "points",
        "never": "stop after",
        "only sharper": "sharper",
        "parsed @1": "parsed",
        "parsed @k": "parsed",
        "path": "checkpoint",
        "prompts": "problem",
        "reason": "ship",
        "report": "verdict",
        "samples": "n",
        "sampling": "stop after",
        "sharpening": "over-sharpening",
        "shipped": "ship",
        "size": "points",
        "steps": "step",
        "stopping": "stop after",
        "surely": "significant",
        "the base": "base",
        "this store": "store",
        "timed out": "out of time",
        "truncation": "truncated",
        "unparsed": "not parsed",
        "warning": "note",
        "unsolved": "lost",
        "better or only sharper: not shown": "sharper",
        "whether better or only sharper is not shown": "sharper",
        "why": "made of",
        "worst": "worst pass@k",
    }
)


#: Parts of a table heading that are removed to find the word: unit, k, value.
_UNIT = re.compile(r"(, [^,]+| \([^)]*\))$")
_VALUE = re.compile(r"( =)? \d[\d,.]*( words)?$")
_AT = re.compile(r"@\d+\b")
_HYPHENATED = re.compile(r"\s*[\u2010-\u2014]\s*")
#: Number of words that the error for an unknown name lists if no word is similar.
_FIRST_WORDS = 12


def find_meaning(name: str) -> str:
    """Return the meaning of ``name``.

    Raises ``ConfigError`` with the nearest names if there is none.

    >>> print(find_meaning("Coverage"))
    coverage: pass@k at large k: the share of problems that the model can solve at all with many samples.
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
    raise ConfigError(f"unknown word {name!r}; {hint} `oversharp explain` lists words, measures and benchmarks")


def _spellings(name: str) -> Iterator[str]:
    """Yield possible glossary words for a heading, label or question, the closest first.

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
    """Return the listing of ``oversharp explain``: measures, benchmarks, presets and words."""
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
    """Return kind, name and title of every benchmark and preset."""
    benchmarks = [("benchmark", f"benchmark:{name}", benchmark.title) for name, benchmark in BENCHMARKS.items()]
    return [*benchmarks, *(("preset", name, preset.title) for name, preset in PRESETS.items())]


def task_explanation(name: str) -> str | None:
    """Return the description of a benchmark (``benchmark:NAME``) or preset, or None.

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
