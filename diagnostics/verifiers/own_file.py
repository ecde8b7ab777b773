"""Code of the user's own as a verifier: ``--verifier reward.py:function``.

    def function(response, answer):      # and prompt, meta, if it names them
        return float(response.strip() == answer)

It gives the reward, a number or True and False, or the reward and the final answer; 1 is correct. What it raises makes
that response an ungraded one. It runs in this process and without a time limit: the user's word is enough, as for any
script, and only a flag is that. A name in a problem file or in a store loads nothing.

The name is the file's without its folder, the function's, and the hash of the file, as ``reward.py:function@3f2a…``:
changed code is another verifier. What the file imports is not part of that.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from diagnostics.records.errors import ConfigError, ProblemError
from diagnostics.records.files import read_small
from diagnostics.records.names import nearest_names
from diagnostics.records.types import NO_ANSWER, Grade, Problem
from diagnostics.verifiers.exact import exact_answer

_SPEC = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)(?:@(?P<code>[0-9a-f]+))?", re.DOTALL)
_HASH_DIGITS = 12
#: What a function may ask for by the names of its arguments.
ARGUMENTS = ("response", "answer", "prompt", "meta")
#: What the user of this process named by a flag, by the verifier's name. Nothing else is ever loaded.
_NAMED: dict[str, str] = {}


def is_own(given: str) -> bool:
    """Whether this names a function in a file, and not a verifier that is installed.

    >>> is_own("math"), is_own("code/reward.py:grade"), is_own("reward.py:grade@3f2a00112233")
    (False, True, True)
    """
    return _SPEC.fullmatch(given) is not None


def pinned(given: str) -> str:
    """The same with the hash of the file's content, which must be the one named if one is.

    Raises ``ConfigError`` for a file that cannot be read, or has changed.
    """
    path, function, code = _parts(given)
    try:
        found = sha256(read_small(path)).hexdigest()[:_HASH_DIGITS]
    except OSError as error:
        raise ConfigError(f"--verifier {given}: {path} cannot be read ({error.strerror})") from error
    if code is not None and code != found:
        raise ConfigError(f"--verifier {given}: {path} has changed since ({found}); leave @{code} out, or restore it")
    return f"{path}:{function}@{found}"


def named_by_user(given: str) -> str:
    """The name of the verifier, which can be made from here on in this process.

    Raises ``ConfigError`` as ``pinned``, for a file that cannot be loaded, and for a function that is not there or asks
    for something else than ``ARGUMENTS``.
    """
    spec = pinned(given)
    path, function, code = _parts(spec)
    name = f"{path.name}:{function}@{code}"
    _NAMED[name] = spec
    OwnFileVerifier(name)
    return name


class OwnFileVerifier:
    """Grades by a function of a file that the user named. Raises ``ConfigError`` where that cannot work."""

    def __init__(self, name: str) -> None:
        self.name = name
        spec = _NAMED.get(name)
        if spec is None:
            raise ConfigError(
                f"verifier {name!r} is code of somebody's own, which no file of data can load; name it by "
                "--verifier FILE.py:function"
            )
        self._function, self._asked = _loaded(spec)
        self._was_called = False

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the function does not work: it is called once, with an answer as the response."""
        if self._was_called:
            return
        self._was_called = True
        grade = self._grade(problem, problem.gold)
        if grade.state == "error":
            raise ProblemError(f"--verifier {self.name} fails with its answer as the response: {grade.reason}")

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order; ``error`` where the function raises."""
        return [self._grade(problem, text) for problem, text in items]

    def _grade(self, problem: Problem, text: str) -> Grade:
        told = {"response": text, "answer": problem.gold, "prompt": problem.prompt, "meta": dict(problem.meta)}
        try:
            reward, answer = _read(self._function(**{name: told[name] for name in self._asked}))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user, which may raise anything
            reason = f"{type(error).__name__}: {error}{_where(error)}"
            return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="error", reason=reason[:200])
        found = exact_answer(text) if answer is None else answer
        return Grade(answer=found or NO_ANSWER, mode=None, reward=reward)


def _parts(given: str) -> tuple[Path, str, str | None]:
    match = _SPEC.fullmatch(given)
    if match is None:
        raise ConfigError(f"--verifier {given}: not FILE.py:function")
    return Path(match["file"]).expanduser(), match["function"], match["code"]


@cache  # a file may load a model of its own, and many parts of an audit grade
def _loaded(spec: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a pinned ``spec``, and the arguments that it takes."""
    path, name, _ = _parts(spec)
    function = _function(_module(path, spec), name, spec)
    return function, _asked(function, spec)


def _module(path: Path, given: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"oversharp_verifier_{path.stem}", path)
    if found is None or found.loader is None:
        raise ConfigError(f"--verifier {given}: {path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look their module up
    try:
        # the loader would take cached bytecode of a file that changed within a second to one of the same size
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:  # whatever the file does when it is read
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(f"--verifier {given}: {path} cannot be loaded ({why}{_where(error)})") from error
    return module


def _function(module: ModuleType, name: str, given: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        known = [other for other, held in vars(module).items() if inspect.isfunction(held)]
        hint = nearest_names(name, known) if known else "it defines none"
        raise ConfigError(f"--verifier {given}: no function {name} in that file; {hint}")
    return function  # type: ignore[no-any-return]


def _asked(function: Callable[..., Any], given: str) -> tuple[str, ...]:
    """The arguments that it takes of those there are."""
    taken = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken):
        return ARGUMENTS
    for one in taken:
        if one.name not in ARGUMENTS and one.default is inspect.Parameter.empty:
            raise ConfigError(f"--verifier {given}: asks for {one.name!r}; it may ask for {', '.join(ARGUMENTS)}")
    return tuple(one.name for one in taken if one.name in ARGUMENTS)


def _read(given: Any) -> tuple[float, str | None]:
    """Reward and final answer. Raises ``TypeError`` or ``ValueError`` for what is none."""
    reward, answer = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(reward, Mapping | str | bytes) or reward is None or not (answer is None or isinstance(answer, str)):
        raise TypeError(f"gave {type(reward).__name__}, not a number, or a number and a text")
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"gave {number}, not a finite number")
    return number, answer


def _where(error: BaseException) -> str:
    """The line of the user's file that raised, where it is known."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("oversharp_verifier_"):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f", line {lines[-1]}" if lines else ""
