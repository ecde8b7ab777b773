"""Mathematics benchmarks by name, through ``datasets``: from a hub, or from a local copy.

``benchmark:gsm8k`` asks the hub (or its cache); ``benchmark:gsm8k@PATH`` reads a copy: a directory written by
``save_to_disk``, a directory with the files of the hub's repository, or one JSONL or Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from diagnostics.errors import ProblemError
from diagnostics.tasks import nearest_names
from diagnostics.tasks.files import Row, problem_of_row, read_rows
from diagnostics.types import Problem
from diagnostics.verifiers import Verifiers
from diagnostics.verifiers.extraction import hash_answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """Where a benchmark lies and how its fields are read.

    ``answer_form``: "plain", the answer itself; "hashes", after ``####``; "list", items to be joined by commas.
    """

    path: str
    split: str
    prompt: str
    answer: str
    config: str | None = None
    answer_form: Literal["plain", "hashes", "list"] = "plain"
    difficulty: str | None = None


BENCHMARKS: Mapping[str, Benchmark] = {
    "aime24": Benchmark(path="HuggingFaceH4/aime_2024", split="train", prompt="problem", answer="answer"),
    "aime25": Benchmark(path="math-ai/aime25", split="test", prompt="problem", answer="answer"),
    "amc23": Benchmark(path="math-ai/amc23", split="test", prompt="question", answer="answer"),
    "gsm8k": Benchmark(
        path="openai/gsm8k", config="main", split="test", prompt="question", answer="answer", answer_form="hashes"
    ),
    "math500": Benchmark(
        path="HuggingFaceH4/MATH-500", split="test", prompt="problem", answer="answer", difficulty="level"
    ),
    "minerva": Benchmark(path="math-ai/minervamath", split="test", prompt="question", answer="answer"),
    "olympiadbench": Benchmark(
        path="Hothan/OlympiadBench",
        config="OE_TO_maths_en_COMP",
        split="train",
        prompt="question",
        answer="final_answer",
        answer_form="list",
    ),
}


def benchmark_problems(argument: str, *, limit: int | None = None) -> tuple[Problem, ...]:
    """The problems of ``NAME`` or ``NAME@PATH``, in the benchmark's order.

    Nobody can mend a published benchmark, so what would be an error in a file of the user's own is not one here: an
    answer that "math" cannot read is graded by "exact" (the problem's ``verifier`` says so), and a problem that comes
    up again is left out.
    """
    name, _, local = argument.partition("@")
    if name not in BENCHMARKS:
        asked, known = f"benchmark:{name}", (f"benchmark:{known}" for known in BENCHMARKS)
        raise ProblemError(f"task {asked!r} is unknown; {nearest_names(asked, known)}")
    benchmark = BENCHMARKS[name]
    rows = _local_rows(Path(local).expanduser(), name) if local else _hub_rows(name)
    problems: dict[tuple[str, str], Problem] = {}
    with Verifiers() as verifiers:
        for row in islice(rows, limit):
            problem = problem_of_row(_translated(row, benchmark), f"benchmark:{name}")
            try:
                verifiers.check_gold(problem)
            except ProblemError:
                problem = replace(problem, verifier="exact")
            problems.setdefault((problem.prompt, problem.gold), problem)
    return tuple(problems.values())


def benchmark_answer(value: Any, form: str) -> str | None:
    r"""The gold out of a benchmark's answer field; None if it does not have the expected form.

    >>> benchmark_answer("6 + 7 = 13\n#### 1,300", "hashes"), benchmark_answer(["$5$"], "list")
    ('1300', '$5$')
    """
    if form == "list":
        return ", ".join(str(item) for item in value) if isinstance(value, list) and value else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # some tables keep 27 as 27.0
    text = str(value)
    if form == "plain":
        return text
    found = hash_answer(text)
    return found.replace(",", "") if found else None


def _translated(row: Row, benchmark: Benchmark) -> Row:
    """The row under the names that problem files use. Other columns (solutions, images) stay behind."""
    for column in (benchmark.prompt, benchmark.answer):
        if column not in row.fields:
            columns = ", ".join(sorted(row.fields))
            raise ProblemError(
                f'{row.where}: no column "{column}" among {columns}; is this a copy of {benchmark.path}?'
            )
    answer = benchmark_answer(row.fields[benchmark.answer], benchmark.answer_form)
    if answer is None:
        raise ProblemError(
            f'{row.where}: "{benchmark.answer}" does not hold an answer ({benchmark.answer_form}); '
            f"is this a copy of {benchmark.path}?"
        )
    fields: dict[str, Any] = {"prompt": row.fields[benchmark.prompt], "answer": answer}
    if benchmark.difficulty is not None:
        fields["difficulty"] = row.fields.get(benchmark.difficulty)
    return Row(where=row.where, place=row.place, fields=fields)


def _local_rows(path: Path, name: str) -> Iterator[Row]:
    if not path.exists():
        raise ProblemError(f"{path}: no local copy of {name} there; {_how_to_copy(name)}")
    if path.is_file():
        return read_rows(path)
    datasets = _datasets()
    benchmark = BENCHMARKS[name]
    try:
        if any((path / marker).exists() for marker in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(str(path))
            if isinstance(loaded, datasets.DatasetDict):
                loaded = _split_of(loaded, benchmark.split, path)
        else:
            loaded = datasets.load_dataset(str(path), benchmark.config, split=benchmark.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ProblemError(
            f"{path}: cannot be read as a data set ({_one_line(error)}); {_how_to_copy(name)}"
        ) from error
    return _numbered(loaded, str(path))


def _hub_rows(name: str) -> Iterator[Row]:
    datasets = _datasets()
    benchmark = BENCHMARKS[name]
    try:
        loaded = datasets.load_dataset(benchmark.path, benchmark.config, split=benchmark.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ProblemError(f"benchmark:{name} cannot be fetched ({_one_line(error)}); {_how_to_copy(name)}") from error
    return _numbered(loaded, f"benchmark:{name}")


def _datasets() -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise ProblemError(f"benchmarks need the package datasets ({error}); run: pip install datasets") from error


def _split_of(splits: Mapping[str, Any], split: str, path: Path) -> Any:
    if split not in splits:
        raise ProblemError(f'{path}: no split "{split}" among {", ".join(sorted(splits))}; save that split')
    return splits[split]


def _numbered(rows: Iterable[Mapping[str, Any]], source: str) -> Iterator[Row]:
    for number, fields in enumerate(rows, start=1):
        yield Row(where=f"{source} row {number}", place=f"row {number}", fields=fields)


def _how_to_copy(name: str) -> str:
    benchmark = BENCHMARKS[name]
    config = f', "{benchmark.config}"' if benchmark.config else ""
    return (
        f"where there is a network, run: python -c 'from datasets import load_dataset; load_dataset("
        f'"{benchmark.path}"{config}, split="{benchmark.split}").save_to_disk("{name}")\' '
        f"and use --task benchmark:{name}@{name}"
    )


def _one_line(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:160]
