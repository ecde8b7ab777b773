"""Benchmarks by name, loaded with ``datasets`` from the hub at a pinned commit, or from a local copy.

``benchmark:gsm8k`` uses the copy in the directory of OVERSHARP_BENCHMARKS, else the hub or its cache.
``benchmark:gsm8k=PATH`` uses the copy at PATH. docs/benchmarks.md lists data sets, commits and fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, Literal

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.benchmark_sources import HubData, data_rows
from oversharp.diagnostics.tasks.files import Row, parse_problem
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.extraction import hash_answer, last_boxed

#: Last sentence of every multiple-choice prompt.
LETTER_REQUEST = "Answer with the letter of the correct option."

AnswerForm = Literal["plain", "hashes", "boxed", "list"]

_E_NOTATION = re.compile(r"(-?\d+(?:\.\d+)?)[eE]([+-]?\d+)", re.ASCII)
# Minerva has golds such as -1./3 and np.arcsin(10/13), which math-verify cannot parse
_POINT_WITHOUT_DIGITS = re.compile(r"(?<=\d)\.(?=/)")
_OF_NUMPY = re.compile(r"\bnp\.(arcsin|arccos|arctan|sin|cos|tan|exp|log)(?=\()")
# a few solutions of MATH end with "\boxed 2$"
_BOX_WITHOUT_BRACES = re.compile(r"\\boxed\s+([^{}$]+)\$")
_LEVEL = re.compile(r"(?:Level )?(\d+)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """Source of a benchmark, and the meaning of its columns.

    ``question``, ``answer``, ``options``, ``context``, ``difficulty`` are names of columns. ``answer_form`` is the form
    of the answer column: "plain" (the answer alone), "hashes" (after ``####``), "boxed" (in the last box of a
    solution), or "list" (items to be joined by commas). With ``options`` the question is multiple choice, and the
    answer is the label of an option. ``limit_draws``: with a limit, problems are sampled at random. Used if the first
    problems have the same subject, or the papers sample at random.
    """

    title: str
    data: HubData
    n_problems: int
    question: str
    answer: str
    answer_form: AnswerForm = "plain"
    options: str | None = None
    context: str | None = None
    difficulty: str | None = None
    limit_draws: bool = False

    @property
    def verifier(self) -> str:
        """Name of the verifier: "choice" for letters of options, else "math"."""
        return "math" if self.options is None else "choice"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a local copy must have."""
        return (self.question, self.answer) if self.options is None else (self.question, self.options, self.answer)


BENCHMARKS: Mapping[str, Benchmark] = {
    "aime24": Benchmark(
        title="AIME 2024, I and II",
        data=HubData(
            path="HuggingFaceH4/aime_2024", revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a", split="train"
        ),
        n_problems=30,
        question="problem",
        answer="answer",
    ),
    "aime25": Benchmark(
        title="AIME 2025, I and II",
        data=HubData(path="math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b", split="test"),
        n_problems=30,
        question="problem",
        answer="answer",
    ),
    "amc23": Benchmark(
        title="AMC 12 2023",
        data=HubData(path="math-ai/amc23", revision="80815d37005feb82cd7f8fbc6901d5d3eff43057", split="test"),
        n_problems=40,
        question="question",
        answer="answer",
    ),
    "arc_c": Benchmark(
        title="ARC, challenge set",
        data=HubData(
            path="allenai/ai2_arc",
            config="ARC-Challenge",
            revision="210d026faf9955653af8916fad021475a3f00453",
            split="test",
        ),
        n_problems=1172,
        question="question",
        answer="answerKey",
        options="choices",
        limit_draws=True,
    ),
    "gsm8k": Benchmark(
        title="GSM8K",
        data=HubData(
            path="openai/gsm8k", config="main", revision="740312add88f781978c0658806c59bc2815b9866", split="test"
        ),
        n_problems=1319,
        question="question",
        answer="answer",
        answer_form="hashes",
    ),
    "math": Benchmark(
        title="MATH, all 5,000 test problems (LightEval's copy)",
        data=HubData(
            path="DigitalLearningGmbH/MATH-lighteval",
            config="default",
            revision="0530c78699ea5e8eb5530600900e1f328b48acad",
            split="test",
        ),
        n_problems=5000,
        question="problem",
        answer="solution",
        answer_form="boxed",
        difficulty="level",
        limit_draws=True,
    ),
    "math500": Benchmark(
        title="MATH-500",
        data=HubData(path="HuggingFaceH4/MATH-500", revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", split="test"),
        n_problems=500,
        question="problem",
        answer="answer",
        difficulty="level",
    ),
    "minerva": Benchmark(
        title="Minerva math (undergraduate science)",
        data=HubData(path="math-ai/minervamath", revision="ee46ddc498933b1977577953250ca5c66be64f96", split="test"),
        n_problems=272,
        question="question",
        answer="answer",
    ),
    "mmlu_pro": Benchmark(
        title="MMLU-Pro",
        data=HubData(path="TIGER-Lab/MMLU-Pro", revision="b189ec765aa7ed75c8acfea42df31fdae71f97be", split="test"),
        n_problems=12032,
        question="question",
        answer="answer",
        options="options",
        limit_draws=True,
    ),
    "olympiadbench": Benchmark(
        title="OlympiadBench, open-ended mathematics in English without images",
        data=HubData(
            path="Hothan/OlympiadBench",
            config="OE_TO_maths_en_COMP",
            revision="91184b52131e7fc9455fef848035173aea8cc01a",
            split="train",
        ),
        n_problems=674,
        question="question",
        answer="final_answer",
        answer_form="list",
        context="context",
    ),
}


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark called ``name``.

    Raises ``ProblemError`` with the nearest known names.
    """
    if name not in BENCHMARKS:
        asked, known = f"benchmark:{name}", (f"benchmark:{known}" for known in BENCHMARKS)
        raise ProblemError(f"task {asked!r} is unknown; {nearest_names(asked, known)}")
    return BENCHMARKS[name]


def benchmark_problems(argument: str, *, limit: int | None = None, seed: int = 0) -> tuple[Problem, ...]:
    """Return all problems of ``NAME`` or ``NAME=PATH`` in order, or ``limit`` distinct ones.

    A limit keeps the first problems, or samples them by ``seed`` if ``limit_draws``. A larger limit contains the
    problems of a smaller one. A published benchmark cannot be fixed, so some faults that are errors in a user's file
    are accepted here. Problems with an answer that "math" cannot parse get the verifier "exact", and duplicates are
    skipped.
    """
    name, _, local = argument.partition("=")
    benchmark = get_benchmark(name)
    problems: dict[tuple[str, str], Problem] = {}
    with (
        closing(data_rows(name, benchmark.data, Path(local).expanduser() if local else None)) as rows,
        Verifiers() as verifiers,
    ):
        drawn = _shuffle_rows(rows, seed) if benchmark.limit_draws and limit is not None else rows
        for row in drawn:
            if limit is not None and len(problems) == limit:
                break
            problem = parse_problem(_translate_row(row, benchmark), f"benchmark:{name}")
            key = (problem.prompt, problem.gold)
            if key not in problems:
                problems[key] = _gradable(problem, verifiers)
    return tuple(problems.values())


def text_answers_note(task: str, problems: Sequence[Problem]) -> str | None:
    """Return a note on golds that "math" cannot parse, so that they are compared as text, or None."""
    kind, _, argument = task.partition(":")
    name = argument.partition("=")[0]
    places = [place for place, problem in enumerate(problems, start=1) if problem.verifier == "exact"]
    if kind != "benchmark" or get_benchmark(name).verifier != "math" or not places:
        return None
    shown = ", ".join(map(str, places[:10])) + (", …" if len(places) > 10 else "")
    return (
        f"{len(places)} of {len(problems)} golds of benchmark:{name} cannot be parsed as mathematics and are "
        f"compared as text, so a correct answer that is worded differently counts as wrong: problem {shown}"
    )


def benchmark_answer(value: Any, form: AnswerForm) -> str | None:
    r"""Return the gold from a benchmark's answer column; None if the text does not have the expected form.

    >>> benchmark_answer("6 + 7 = 13\n#### 1,300", "hashes"), benchmark_answer(["$5$"], "list")
    ('1300', '$5$')
    >>> benchmark_answer(r"Thus $\boxed{\frac{1}{2}}$.", "boxed"), benchmark_answer("4.5e33", "plain")
    ('\\frac{1}{2}', '4.5 \\times 10^{33}')
    >>> benchmark_answer("-1./3", "plain"), benchmark_answer("np.arcsin(10/13)", "plain")
    ('-1/3', '\\arcsin(10/13)')
    """
    if form == "list":
        return ", ".join(str(item) for item in value) if isinstance(value, list) and value else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # some tables store 27 as 27.0
    text = str(value)
    if form == "boxed":
        return _boxed_answer(text)
    if form == "hashes":
        answer = hash_answer(text)
        return answer.replace(",", "") if answer else None
    number = _E_NOTATION.fullmatch(text.strip())
    if number:  # math-verify parses the e as Euler's number
        return f"{number.group(1)} \\times 10^{{{int(number.group(2))}}}"
    return _OF_NUMPY.sub(r"\\\1", _POINT_WITHOUT_DIGITS.sub("", text))


def lettered_options(value: Any) -> dict[str, str] | None:
    """Return the text of each option by label, in order; None if ``value`` contains no options.

    A list is labelled A, B, …; a mapping must have "label" and "text".

    >>> lettered_options(["red", "blue"]), lettered_options({"text": ["red", "blue"], "label": ["1", "2"]})
    ({'A': 'red', 'B': 'blue'}, {'1': 'red', '2': 'blue'})
    """
    texts = value.get("text") if isinstance(value, Mapping) else value
    if not isinstance(texts, list) or not 2 <= len(texts) <= len(ascii_uppercase):
        return None
    labels = value.get("label") if isinstance(value, Mapping) else list(ascii_uppercase[: len(texts)])
    if not isinstance(labels, list) or len(labels) != len(texts):
        return None
    return {str(label): str(text).strip() for label, text in zip(labels, texts, strict=True)}


def multiple_choice_prompt(question: str, options: Iterable[str]) -> str:
    r"""Return the question, its options with letters, and a request for a letter.

    >>> multiple_choice_prompt("Which is warm?", ["red", "blue"])
    'Which is warm?\n\nA. red\nB. blue\n\nAnswer with the letter of the correct option.'
    """
    lines = (f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False))
    return "\n\n".join((question.strip(), "\n".join(lines), LETTER_REQUEST))


def _shuffle_rows(rows: Iterable[Row], seed: int) -> Iterator[Row]:
    shuffled = list(rows)
    Random(seed).shuffle(shuffled)
    return iter(shuffled)


def _gradable(problem: Problem, verifiers: Verifiers) -> Problem:
    try:
        verifiers.check_gold(problem)
    except ProblemError:
        return replace(problem, verifier="exact")
    return problem


def _translate_row(row: Row, benchmark: Benchmark) -> Row:
    """Return the row with the field names of problem files, without other columns (solutions, images)."""
    for column in benchmark.columns:
        if column not in row.fields:
            columns = ", ".join(sorted(row.fields))
            raise ProblemError(
                f'{row.where}: no column "{column}", only {columns}; pass a copy of {benchmark.data.path}'
            )
    translate = _open_question if benchmark.options is None else _multiple_choice
    prompt, gold, form = translate(row.fields, benchmark)
    if gold is None:
        raise ProblemError(
            f'{row.where}: "{benchmark.answer}" is not an answer ({form}); pass a copy of {benchmark.data.path}'
        )
    fields: dict[str, Any] = {"prompt": prompt, "answer": gold, "verifier": benchmark.verifier}
    level = _LEVEL.fullmatch(str(row.fields.get(benchmark.difficulty))) if benchmark.difficulty else None
    if level:
        fields["difficulty"] = int(level.group(1))
    return Row(where=row.where, place=row.place, fields=fields)


def _open_question(fields: Mapping[str, Any], benchmark: Benchmark) -> tuple[Any, str | None, str]:
    """Return prompt, gold (None without one) and the expected form of the answer."""
    question = fields[benchmark.question]
    context = fields.get(benchmark.context) if benchmark.context else None
    gold = benchmark_answer(fields[benchmark.answer], benchmark.answer_form)
    return f"{context}\n\n{question}" if context else question, gold, benchmark.answer_form


def _multiple_choice(fields: Mapping[str, Any], benchmark: Benchmark) -> tuple[Any, str | None, str]:
    """Return prompt, gold (None without one) and the expected form of the answer."""
    assert benchmark.options is not None
    question, label = fields[benchmark.question], str(fields[benchmark.answer])
    options = lettered_options(fields[benchmark.options]) or {}
    prompt = multiple_choice_prompt(question, options.values()) if isinstance(question, str) else question
    gold = ascii_uppercase[list(options).index(label)] if label in options else None
    return prompt, gold, f"the label of one of {len(options)} options"


def _boxed_answer(solution: str) -> str | None:
    solution = solution.replace("\\fbox", "\\boxed")
    answer = last_boxed(solution)
    if answer is None:
        bare = _BOX_WITHOUT_BRACES.findall(solution)
        answer = bare[-1].strip() if bare else None
    return answer or None
