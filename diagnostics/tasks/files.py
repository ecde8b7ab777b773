"""Load problems from a JSON Lines or Parquet file.

Required fields: ``prompt`` and ``answer`` (text or number). Optional: ``modes`` (every accepted response), ``id``,
``verifier``, ``task``, ``difficulty`` (number), ``cluster``. All other fields are stored in ``meta``, where a verifier
can use them.

Problems of one ``cluster`` (text or number), such as variants of a template, do not count as independent in a verdict.
The cluster is not part of a problem's identity, so you can add it later and keep the samples. ``group`` replaces a
missing ``cluster``. The gradient kernel also uses ``group`` to find related problems; without it, problems of one task
are related.

Rows with the fields of HumanEval, MBPP, LiveCodeBench or APPS, or with ``tests``, are code tasks. Their ``answer`` may
be missing. See ``verifiers/code/fields.py``.

If ``verifier`` is missing, a problem is graded by "modes" if it lists modes, else by "math". Modes override
``verifier``: a response is correct if and only if it is one of them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import START_BYTES, ProblemError, VerifierError, detect_stand_in
from oversharp.diagnostics.records.files import require_regular
from oversharp.diagnostics.records.types import Problem, content_hash
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.code.fields import read_code_fields
from oversharp.diagnostics.verifiers.code.task import PASSES
from oversharp.diagnostics.verifiers.extraction import collapse_whitespace
from oversharp.diagnostics.verifiers.reading.golds import any_of

_FIELDS = frozenset({"prompt", "answer", "modes", "id", "verifier", "task", "difficulty", "cluster"})
# names of the fields prompt and answer in other data sets
_OTHER_NAMES = {
    "prompt": ("question", "problem", "input", "query"),
    "answer": ("solution", "gold", "target", "final_answer", "ground_truth", "label"),
}
# json, pickle and copy each have a recursion limit
_MAX_NESTING = 100
_ACCEPTED = (
    'a problem is {"prompt": …, "answer": …} with optional "modes", "id", "verifier", "task", "difficulty", "cluster"'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One record and its location for messages, such as "problems.jsonl line 7"."""

    where: str
    place: str  # "line 7"
    fields: Mapping[str, Any]


def load_problem_file(
    path: Path, *, limit: int | None = None, repeated: list[str] | None = None, verifier: str | None = None
) -> tuple[Problem, ...]:
    """Return the problems of ``path`` in file order. Files not named ``.parquet`` are JSON Lines.

    A duplicate problem is an error. With a list ``repeated``, it is skipped, and its location is added to the list.
    ``verifier`` replaces the verifiers in the file. Raises ``ProblemError`` with the line (JSONL) or row (Parquet) for
    a problem that cannot be graded.
    """
    with closing(read_rows(path)) as rows:  # close the file even if a row raises an error
        return check_rows(islice(rows, limit), source=str(path), task=path.stem, repeated=repeated, verifier=verifier)


def read_rows(path: Path) -> Generator[Row, None, None]:
    """Yield the records of a JSON Lines or Parquet file."""
    if not path.exists():
        raise ProblemError(f"{path}: no such file; give a JSONL or Parquet file of problems")
    if path.is_dir():
        raise ProblemError(f"{path} is a directory; give a JSONL or Parquet file of problems")
    try:
        require_regular(path, or_open_pipe=True)
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror}; write the problems to a regular file") from error
    _refuse_stand_in(path)
    return _parquet_rows(path) if path.suffix.lower() == ".parquet" else _jsonl_rows(path)


def _refuse_stand_in(path: Path) -> None:
    """Raise ``ProblemError`` for a Git LFS pointer or a web page instead of the file.

    Pipes are not checked.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as content:
            why = detect_stand_in(content.read(START_BYTES))
    except OSError:
        return  # reading the file raises this error again
    if why is not None:
        raise ProblemError(f"{path}: {why}")


def check_rows(
    rows: Iterable[Row],
    *,
    source: str,
    task: str,
    repeated: list[str] | None = None,
    verifier: str | None = None,
) -> tuple[Problem, ...]:
    """Return the problems of ``rows``. All can be graded, and none is a duplicate.

    ``task`` is the task of rows without one. See ``load_problem_file`` for ``repeated`` and ``verifier``. Without
    ``repeated`` a duplicate id is an error too.
    """
    problems: list[Problem] = []
    place_of_id: dict[str, str] = {}
    place_of_content: dict[str, str] = {}
    with Verifiers() as verifiers:
        for row in rows:
            problem = parse_problem(row, task)
            content = content_hash(problem.prompt, problem.gold, problem.modes)
            if repeated is not None and content in place_of_content:
                repeated.append(f"{row.place} is {place_of_content[content]} again")
                continue
            _refuse_duplicate(place_of_content, content, row, "problem")
            if problem.source_id is not None and repeated is None:
                _refuse_duplicate(place_of_id, problem.source_id, row, f"id {problem.source_id!r}")
            try:
                problem = problem if verifier is None else replace_verifier(problem, verifier)
                verifiers.check_gold(problem)
            except (ProblemError, VerifierError) as error:
                raise ProblemError(f"{row.where}: {error}") from error
            problems.append(problem)
    if not problems:
        raise ProblemError(f"{source}: contains no problems; {_ACCEPTED}")
    return tuple(problems)


def _jsonl_rows(path: Path) -> Generator[Row, None, None]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where = f"{path} line {number}"
                try:
                    fields = json.loads(line, parse_constant=_refuse_constant)
                except RecursionError as error:
                    raise ProblemError(f"{where}: nested too deeply; flatten it") from error
                except ValueError as error:
                    raise ProblemError(f"{where}: {_not_read(error)}") from error
                if not isinstance(fields, dict):
                    raise ProblemError(f"{where}: is {_kind(fields)}, not an object; {_ACCEPTED}")
                yield Row(where=where, place=f"line {number}", fields=fields)
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path}: not UTF-8 text (byte {error.object[error.start]:#04x}); save it as UTF-8, "
            "or name it .parquet if it is Parquet"
        ) from error
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read ({error.strerror})") from error


def _parquet_rows(path: Path) -> Generator[Row, None, None]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(where=f"{path} row {number}", place=f"row {number}", fields=fields)
    except (pyarrow.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise ProblemError(f"{path}: not a readable Parquet file ({_first_words(error)})") from error


def replace_verifier(problem: Problem, verifier: str) -> Problem:
    """Return the problem with another verifier.

    Raises ``ProblemError`` if the problem lists its modes.
    """
    if problem.modes:
        raise ProblemError(f"the problem lists its modes, which override any verifier; leave out --verifier {verifier}")
    return replace(problem, verifier=verifier)


def parse_problem(row: Row, task: str) -> Problem:
    """Return the problem of a row. Its fields are checked, but not whether its gold can be parsed."""
    fields = {name: value for name, value in row.fields.items() if value is not None}
    for name, value in fields.items():
        _refuse_unstorable(row, name, (name, value))
    fields = _with_tests(row, fields)
    modes = _modes(row, fields.get("modes"))
    prompt = _required(row, fields, "prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ProblemError(f'{row.where}: "prompt" is {_kind(prompt)}; give the prompt as text')
    answer = _gold(row, _required(row, fields, "answer"))
    if not answer.strip():
        raise ProblemError(f'{row.where}: "answer" is blank; give the accepted final answer')
    for name in ("verifier", "task"):
        if name in fields and not (isinstance(fields[name], str) and fields[name]):
            raise ProblemError(f'{row.where}: "{name}" is {_kind(fields[name])}; give a name in quotes')
    return Problem(
        task=fields.get("task", task),
        prompt=prompt,
        gold=answer,
        verifier="modes" if modes else fields.get("verifier", "math"),
        modes=modes,
        source_id=_text(row, "id", fields["id"]) if "id" in fields else None,
        difficulty=_difficulty(row, fields.get("difficulty")),
        meta=_meta(row, fields),
        cluster=_text(row, "cluster", fields["cluster"]) if "cluster" in fields else None,
    )


def _with_tests(row: Row, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a code task in this module's form; other fields as they are."""
    try:
        code = read_code_fields(fields)
    except ProblemError as error:
        raise ProblemError(f"{row.where}: {error}") from error
    return fields if code is None else {**code, "answer": code["answer"] or PASSES}


def _required(row: Row, fields: Mapping[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    other = next((other for other in _OTHER_NAMES[name] if other in fields), None)
    hint = f'rename "{other}" to "{name}"' if other else _ACCEPTED
    raise ProblemError(f'{row.where}: no "{name}"; {hint}')


def _text(row: Row, name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise ProblemError(f'{row.where}: "{name}" is {_kind(value)}; give text or a number')
    return str(value)


def _gold(row: Row, value: Any) -> str:
    """Return the gold. A list becomes a gold that accepts any of its members."""
    if not isinstance(value, list):
        return _text(row, "answer", value)
    if not value:
        raise ProblemError(f'{row.where}: "answer" is an empty list; give the accepted final answer')
    return any_of([_text(row, "answer", member) for member in value])


def _modes(row: Row, modes: Any) -> tuple[str, ...]:
    if modes is None:
        return ()
    if not isinstance(modes, list) or not modes or not all(isinstance(mode, str) and mode.strip() for mode in modes):
        raise ProblemError(f'{row.where}: "modes" must be a list of accepted responses, each a text that is not blank')
    seen: dict[str, int] = {}
    for index, mode in enumerate(modes, start=1):
        first = seen.setdefault(collapse_whitespace(mode), index)
        if first != index:
            raise ProblemError(f'{row.where}: "modes" {first} and {index} are the same response; remove one')
    return tuple(modes)


def _difficulty(row: Row, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(f'{row.where}: "difficulty" is {_kind(value)}; give a number')
    try:
        difficulty = float(value)
    except OverflowError:
        difficulty = math.inf
    if not math.isfinite(difficulty):
        raise ProblemError(f'{row.where}: "difficulty" exceeds the range of floats; give a finite number')
    return difficulty


def _meta(row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in fields.items() if name not in _FIELDS}
    try:
        # Parquet has types that JSON lacks, but the store saves meta as JSON
        return dict(json.loads(json.dumps(meta, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ProblemError(
            f"{row.where}: an additional field cannot be stored as JSON ({error}); remove or convert it"
        ) from error


def _refuse_unstorable(row: Row, name: str, value: Any, depth: int = 0) -> None:
    """Raise ``ProblemError`` for a lone surrogate, which UTF-8 cannot encode, or for deep nesting."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(value[error.start]):04x}"
            raise ProblemError(
                f"{row.where}: {name!a} is not valid Unicode ({half} is a lone surrogate); remove or replace it"
            ) from error
    elif isinstance(value, dict | list | tuple):
        if depth > _MAX_NESTING:
            raise ProblemError(f"{row.where}: {name!a} is nested deeper than {_MAX_NESTING} levels; flatten it")
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_unstorable(row, name, part, depth + 1)


def _refuse_duplicate(places: dict[str, str], key: str, row: Row, kind: str) -> None:
    first = places.setdefault(key, row.place)
    if first != row.place:
        raise ProblemError(f"{row.where}: the same {kind} as {first}; remove or change one")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _not_read(error: ValueError) -> str:
    """Return the fault of an unreadable line. A number that is too long for Python is valid JSON."""
    if "digits" in str(error) and not isinstance(error, json.JSONDecodeError):
        return f"a number of more than {sys.get_int_max_str_digits():,} digits; write it as text, in quotes"
    return f"not valid JSON ({_first_words(error)}); one object per line"


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "blank" if not value.strip() else "text"
    words = {"NoneType": "null", "bool": "true or false", "int": "a number", "float": "a number", "list": "a list"}
    return words.get(type(value).__name__, "an object" if isinstance(value, dict) else type(value).__name__)


def _first_words(error: BaseException) -> str:
    return str(error).partition("\n")[0][:100]
