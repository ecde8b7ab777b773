"""Read the fields of HumanEval, MBPP, LiveCodeBench and APPS, and the field ``tests`` of your own problems."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.verifiers.code.names import remote_names, require_python
from oversharp.diagnostics.verifiers.code.task import META_KEY, CodeTask

#: Largest test file of a LiveCodeBench problem after decompression.
_MOST_TEST_BYTES = 256 << 20
#: Imports that LeetCode gives to solutions, before a class Solution.
_COMMON_IMPORTS = """
import bisect, collections, copy, functools, heapq, itertools, json, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
from builtins import pow
"""
_READS_INPUT = "Read the input from standard input, and print the output."
#: Fields that are read here or that state the solution. All other fields of a row are kept.
_TAKEN = frozenset(
    {
        *("prompt", "answer", "verifier", "id", "difficulty", "tests", "context", "in_place", "entry_point"),
        *("task_id", "test", "canonical_solution"),
        *("text", "code", "test_list", "challenge_test_list", "test_setup_code", "test_imports"),
        *("question_id", "question_title", "question_content", "starter_code", "metadata", "public_test_cases"),
        *("private_test_cases", "problem_id", "question", "input_output", "solutions"),
    }
)
_ID_FIELDS = ("id", "task_id", "question_id", "problem_id")


def read_code_fields(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a row's fields with ``prompt``, ``answer``, ``verifier`` and ``code``; None if it is no code task.

    Raises ``ProblemError`` for tests that cannot be read.

    >>> row = {"task_id": 3, "text": "Double x.", "code": "def f(x): return 2 * x", "test_list": ["assert f(1) == 2"]}
    >>> read_code_fields(row)["code"]["remote"], read_code_fields({"prompt": "6 * 7?", "answer": "42"})
    (['f'], None)
    """
    reader = next((read for name, read in _READERS.items() if fields.get(name) is not None), None)
    if reader is None or fields.get("verifier", "code") != "code":
        return None
    if reader is _read_own and fields.get("verifier") is None and not _is_own(fields["tests"]):
        return None
    prompt, gold, task = reader(fields)
    given = {name: value for name, value in fields.items() if name not in _TAKEN}
    identity = next((fields[name] for name in _ID_FIELDS if fields.get(name) is not None), None)
    if identity is not None:
        given["id"] = identity
    difficulty = fields.get("difficulty")
    if difficulty is not None:  # a word in LiveCodeBench and APPS
        given["level" if isinstance(difficulty, str) else "difficulty"] = difficulty
    return {**given, "prompt": prompt, "answer": gold, "verifier": "code", META_KEY: dict(task.to_meta())}


def _read_humaneval(fields: Mapping[str, Any]) -> tuple[str, str, CodeTask]:
    prompt, entry, tests = (_text(fields, name) for name in ("prompt", "entry_point", "test"))
    helpers = re.split(rf"^(?=def[ \t]+{re.escape(entry)}\b)", prompt, maxsplit=1, flags=re.MULTILINE)[0]
    # the prompt ends in the function's docstring, which is Python
    context = next((code for code in (prompt, f"{prompt}\n    pass\n", helpers) if require_python(code, None)), "")
    script = f"{tests}\n\ncheck({entry})\n"
    task = CodeTask(
        form="script",
        entry=entry,
        tests=script,
        remote=sorted({entry, *remote_names(script, context, '"test"')}),
        test_context=context,
        context=helpers if helpers != prompt else "",
        prefix=prompt,
    )
    solution = fields.get("canonical_solution")
    return prompt, f"{prompt}{solution}" if solution else "", task


def _read_mbpp(fields: Mapping[str, Any]) -> tuple[str, str, CodeTask]:
    asserts = fields["test_list"]
    if not isinstance(asserts, list) or not asserts or not all(isinstance(line, str) for line in asserts):
        raise ProblemError('"test_list" must be a list of asserts, such as ["assert f(1) == 2"]')
    asserts = [*asserts, *(fields.get("challenge_test_list") or [])]
    setup = "\n".join([*(fields.get("test_imports") or []), fields.get("test_setup_code") or ""]).strip()
    script = "\n".join(asserts)
    remote = remote_names(script, setup, '"test_list"', str(fields.get("code") or ""))
    if not remote:
        raise ProblemError('"test_list" calls no function that the program could define; check its asserts')
    statement = _text(fields, "prompt" if fields.get("prompt") is not None else "text")
    task = CodeTask(
        form="script", entry=remote[0] if len(remote) == 1 else "", tests=script, remote=remote, test_context=setup,
        context=setup,
    )  # fmt: skip
    # the name and the arguments are only in the asserts; the others stay hidden
    return f"{statement}\nYour code should pass this test:\n{asserts[0]}\n", str(fields.get("code") or ""), task


def _read_livecodebench(fields: Mapping[str, Any]) -> tuple[str, str, CodeTask]:
    tests = []
    for name in ("public_test_cases", "private_test_cases"):
        if fields.get(name) is not None:
            tests += _decode_tests(fields[name], name)
    starter = str(fields.get("starter_code") or "")
    metadata = _parse_json(fields.get("metadata") or "{}", "metadata")
    entry = metadata.get("func_name") if isinstance(metadata, dict) else None
    statement = _text(fields, "question_content" if fields.get("question_content") is not None else "prompt")
    kinds = {test.get("testtype", "functional" if entry else "stdin") for test in tests}
    if kinds == {"stdin"}:
        return _prompt(statement, starter), "", _stdio([(test["input"], test["output"]) for test in tests])
    if kinds != {"functional"} or not isinstance(entry, str) or not entry:
        raise ProblemError('the tests need "testtype" stdin, or functional with "func_name" in "metadata"')
    cases = []
    for test in tests:
        lines = [line for line in test["input"].split("\n") if line.strip()]
        arguments = [_parse_json(line, "input of a test") for line in lines]
        cases.append([arguments, [_parse_json(test["output"], "output of a test")]])
    return _prompt(statement, starter), "", _calls(cases, entry, starter)


def _read_apps(fields: Mapping[str, Any]) -> tuple[str, str, CodeTask]:
    tests = _parse_json(fields["input_output"], "input_output")
    inputs, outputs = (tests.get(name) if isinstance(tests, dict) else None for name in ("inputs", "outputs"))
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ProblemError('"input_output" must have "inputs" and "outputs", two lists of equal length, not empty')
    starter = str(fields.get("starter_code") or "")
    entry = tests.get("fn_name")
    prompt = _prompt(_text(fields, "question" if fields.get("question") is not None else "prompt"), starter, entry)
    if not entry:
        return prompt, "", _stdio(list(zip(map(_join_lines, inputs), map(_join_lines, outputs), strict=True)))
    cases = []
    for given, wanted in zip(inputs, outputs, strict=True):
        if not isinstance(given, list):
            raise ProblemError('"inputs" of a function must be lists of arguments')
        # some outputs are in a list of one, which the data set's own checker accepts too
        is_wrapped = isinstance(wanted, list) and len(wanted) == 1
        cases.append([given, [wanted, wanted[0]] if is_wrapped else [wanted]])
    return prompt, "", _calls(cases, str(entry), starter)


def _read_own(fields: Mapping[str, Any]) -> tuple[str, str, CodeTask]:
    tests, entry = fields["tests"], fields.get("entry_point") or ""
    prompt, gold = _text(fields, "prompt"), str(fields.get("answer") or "")
    context, in_place = str(fields.get("context") or ""), fields.get("in_place", False)
    if not isinstance(in_place, bool):
        raise ProblemError('"in_place" must be true or false')
    require_python(context, '"context"')
    if isinstance(tests, str):
        remote = sorted({*([entry] if entry else []), *remote_names(tests, context, '"tests"')})
        task = CodeTask(
            form="script", entry=entry, tests=tests, remote=remote, test_context=context, context=context,
            in_place=in_place,
        )  # fmt: skip
        return prompt, gold, task
    if not _is_own(tests):
        raise ProblemError(
            '"tests" must be asserts as text, a list of {"input": …, "output": …}, or with "entry_point" a list of '
            '{"args": […], "result": …}'
        )
    if "input" in tests[0]:
        return prompt, gold, _stdio([(_field(test, "input"), _field(test, "output")) for test in tests])
    if not entry:
        raise ProblemError('"tests" with "args" need "entry_point", the name of the function')
    cases = [[_field(test, "args"), [_field(test, "result")]] for test in tests]
    if not all(isinstance(arguments, list) for arguments, _ in cases):
        raise ProblemError('"args" of a test must be a list of arguments')
    return prompt, gold, CodeTask(form="calls", entry=entry, cases=cases, context=context, in_place=in_place)


#: Field → function that reads the tests of its format.
_READERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, str, CodeTask]]] = MappingProxyType(
    {
        "test": _read_humaneval,
        "test_list": _read_mbpp,
        "private_test_cases": _read_livecodebench,
        "public_test_cases": _read_livecodebench,
        "input_output": _read_apps,
        "tests": _read_own,
    }
)


def _is_own(tests: object) -> bool:
    return (
        isinstance(tests, list)
        and bool(tests)
        and all(
            isinstance(test, Mapping) and ({"input", "output"} <= test.keys() or {"args", "result"} <= test.keys())
            for test in tests
        )
    )


def _stdio(cases: list[tuple[Any, Any]]) -> CodeTask:
    for number, case in enumerate(cases, start=1):
        if not all(isinstance(part, str) for part in case):
            raise ProblemError(f"test {number}: its input and output must be text")
    return CodeTask(form="stdio", cases=[list(case) for case in cases])


def _calls(cases: list[list[Any]], entry: str, starter: str) -> CodeTask:
    return CodeTask(form="calls", cases=cases, entry=entry, context=_COMMON_IMPORTS if "Solution" in starter else "")


def _prompt(statement: str, starter: str, entry: object = None) -> str:
    if not starter.strip():
        return f"{statement}\n\n{f'Write a Python function named {entry}.' if entry else _READS_INPUT}\n"
    return f"{statement}\n\nComplete this code:\n```python\n{starter.rstrip()}\n```\n"


def _decode_tests(value: Any, name: str) -> list[dict[str, str]]:
    """Return the tests of a LiveCodeBench field: JSON, or base64 of a zlib-compressed pickle of JSON."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = _unpack_tests(value, name)
    tests = _parse_json(value, name) if isinstance(value, str) else value
    if not isinstance(tests, list) or not all(
        isinstance(test, dict) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
        for test in tests
    ):
        raise ProblemError(f'"{name}" must be a list of {{"input": text, "output": text}}')
    return tests


def _unpack_tests(text: str, name: str) -> Any:
    try:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(base64.b64decode(text, validate=True), _MOST_TEST_BYTES)
        if decompressor.unconsumed_tail:
            raise ProblemError(f'"{name}" exceeds {_MOST_TEST_BYTES >> 20} MiB after decompression; remove the problem')
        return _TextUnpickler(io.BytesIO(content)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f'"{name}" is neither JSON nor a compressed pickle of text ({error})') from error


class _TextUnpickler(pickle.Unpickler):
    """Unpickler that creates no objects of classes, because a pickle may run any code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it contains {module}.{name}")


def _parse_json(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f'"{name}" is not valid JSON ({error})') from error


def _join_lines(value: Any) -> Any:
    return "\n".join(map(str, value)) if isinstance(value, list) else value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ProblemError(f'no "{name}"; give it as text')
    return value


def _field(test: Mapping[str, Any], name: str) -> Any:
    if name not in test:
        raise ProblemError(f'a test has no "{name}"; all tests need the same fields')
    return test[name]
