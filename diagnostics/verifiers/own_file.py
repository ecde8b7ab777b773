"""Verifier for a function in the user's file: ``--verifier reward.py:function``.

The function looks like this:

def function(response, answer):  # and prompt, meta, if it has such parameters
        return float(response.strip() == answer)

It returns the reward (a number or a bool; 1 is correct), or the reward and the final answer. It may be a coroutine
function. If its parameters are ``responses``, ``answers``, ``prompts`` and ``metas``, it takes lists and returns a list
of rewards. If it raises an error, takes too long or ends its process, only that response is not graded. If it raises
``oversharp.RetryLater``, it is called again later. Worker processes (``own_workers``) load the file and call the
function.

Only a flag can load a file. A name in a problem file or in a store loads nothing. The verifier's name consists of the
file's name without its folder, the function's name and the file's hash: ``reward.py:function@3f2a…``, followed by
``>=`` and the file's ``CORRECT_AT``, if it has one. So changed code is a different verifier. The workers load the
content that was hashed, even if the file has changed since. Modules that the file imports are not part of the hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.files import read_small
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.own_workers.worker import MAX_ANSWER_CHARACTERS, storable

if TYPE_CHECKING:
    from oversharp.diagnostics.verifiers.killable import Outcome
    from oversharp.diagnostics.verifiers.own_workers.pool import GraderPool
    from oversharp.diagnostics.verifiers.own_workers.round import Reward

_SPEC = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)(?:@(?P<code>[0-9a-f]+)(?:>=.+)?)?", re.DOTALL)
_HASH_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class _Named:
    """A function that the user passed with a flag, and its workers, which later stages reuse."""

    spec: str
    file: Path
    workers: GraderPool
    asked: tuple[str, ...]
    is_batch: bool
    correct_at: float


#: Functions that the user passed with a flag, by verifier name. No other file is loaded.
_NAMED: dict[str, _Named] = {}
#: Names of environments that this process runs, which grade their own trajectories.
_ENVIRONMENTS: set[str] = set()


def register_environment(name: str) -> None:
    """Accept an environment's name as that of a verifier, in this process."""
    _ENVIRONMENTS.add(name)


def is_environment(name: str) -> bool:
    """Return whether ``name`` is that of a registered environment."""
    return name in _ENVIRONMENTS


def is_own(given: str) -> bool:
    """Return whether ``given`` is FILE.py:function, and not the name of an installed verifier.

    >>> is_own("math"), is_own("code/reward.py:grade"), is_own("reward.py:grade@3f2a00112233")
    (False, True, True)
    """
    return _SPEC.fullmatch(given) is not None


def pinned(given: str) -> str:
    """Return ``given`` with the hash of the file's content.

    Raises ``ConfigError`` for a file that cannot be read, or whose hash differs from the hash in ``given``.
    """
    return pin_spec(given)[0]


def named_by_user(given: str, limits: GraderLimits | None = None) -> str:
    """Load a function and return its verifier's name, which is valid in this process.

    With ``limits`` None, the limits are the function's earlier limits, else the default. Raises ``ConfigError`` like
    ``pinned``, for a file that cannot be loaded, and for a function that is missing or has a required parameter that is
    not in ``ARGUMENTS``.
    """
    spec, source = pin_spec(given)
    path, function, code = split_spec(spec)
    pinned_name = f"{path.name}:{function}@{code}"
    name, before = next(
        ((name, named) for name, named in _NAMED.items() if name.split(">=")[0] == pinned_name), (pinned_name, None)
    )
    file = path.absolute()  # the same content in another folder may import other modules
    if before is not None and before.file == file and limits in (None, before.workers.limits):
        return name
    from oversharp.diagnostics.verifiers.own_workers.pool import GraderPool  # loads multiprocessing, which is slow

    workers = GraderPool(name=spec, path=str(path), source=source, function=function, limits=limits or GraderLimits())
    loaded = _load(workers, spec)
    correct_at = float(loaded["correct_at"])
    name = pinned_name if correct_at == 1.0 else f"{pinned_name}>={correct_at:g}"
    _NAMED[name] = _Named(
        spec=spec,
        file=file,
        workers=workers,
        asked=tuple(loaded["asked"]),
        is_batch=bool(loaded["is_batch"]),
        correct_at=correct_at,
    )
    if before is not None:
        before.workers.close()
    return name


class EnvironmentVerifier:
    """Rewards of an environment. Only the process that ran a trajectory can give its reward."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check_gold(self, problem: Problem) -> None:
        """Accept any problem: the environment interprets it."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return grades with the state ``error``."""
        reason = "not a trajectory that the environment ran"
        return [Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="error", reason=reason) for _ in items]


class OwnFileVerifier:
    """Grade with a function in the user's file.

    Raises ``ConfigError`` for a name that was not passed with a flag.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        named = _NAMED.get(name)
        if named is None:
            raise ConfigError(
                f"verifier {name!r} is user code, which a data file cannot load; pass it with "
                "--verifier FILE.py:function"
            )
        self._named = named
        self._was_called = False

    @property
    def most_calls(self) -> int:
        """Largest number of calls at a time."""
        return self._named.workers.limits.workers

    def check_gold(self, problem: Problem) -> None:
        """Call the function once, with the first problem's answer as the response; a batch function with two.

        Raises ``ConfigError`` if the call fails, because the fault is in the function and not in this problem.
        """
        if self._was_called:
            return
        self._was_called = True
        grade, *_ = self.grade([(problem, problem.gold)] * (2 if self._named.is_batch else 1))
        if grade.state != "ok":
            raise ConfigError(
                f"--verifier {self._named.spec}: fails with the first problem's answer as the response "
                f"({grade.reason}); fix the function, or return 0 for a response that it cannot parse"
            )

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order.

        The state is ``error`` if the function raises an error or ends its process, ``timeout`` if it takes too long.
        """
        outcomes = self._named.workers.map([self._call(problem, text) for problem, text in items])
        correct_at = self._named.correct_at
        return [grade_outcome(text, outcome, correct_at) for (_, text), outcome in zip(items, outcomes, strict=True)]

    def interrupt(self, *, is_on: bool) -> None:
        """Make a ``grade`` of another thread raise ``VerifierError`` soon, until it is called with False."""
        self._named.workers.interrupt(is_on=is_on)

    def _call(self, problem: Problem, text: str) -> dict[str, object]:
        given = {"response": text, "answer": problem.gold, "prompt": problem.prompt, "meta": dict(problem.meta)}
        return {name: given[name] for name in self._named.asked}


def grade_outcome(text: str, outcome: Outcome[Reward], correct_at: float) -> Grade:
    """Return the grade of a response from the outcome of the user's function, or why there is none."""
    if outcome.value is None:
        assert outcome.state != "ok"
        return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state=outcome.state, reason=outcome.reason)
    reward, answer = outcome.value
    if answer is None:
        from oversharp.diagnostics.verifiers.exact import exact_answer  # compiles many patterns

        answer = storable(exact_answer(text) or "", MAX_ANSWER_CHARACTERS)
    return Grade(answer=answer or NO_ANSWER, mode=None, reward=reward, correct_at=correct_at)


def pin_spec(given: str, flag: str = "--verifier") -> tuple[str, bytes]:
    """Return the spec with the file's hash, and the file's content. Raises ``ConfigError``."""
    path, function, code = split_spec(given, flag)
    try:
        source = read_small(path)
    except OSError as error:
        raise ConfigError(f"{flag} {given}: {path} cannot be read ({error.strerror})") from error
    digest = sha256(source).hexdigest()[:_HASH_DIGITS]
    if code is not None and code != digest:
        raise ConfigError(
            f"{flag} {given}: {path} has changed since (hash {digest}); leave out @{code}, or restore the file"
        )
    return f"{path}:{function}@{digest}", source


def split_spec(given: str, flag: str = "--verifier") -> tuple[Path, str, str | None]:
    """Return file, function or class, and hash (None without one). Raises ``ConfigError``."""
    match = _SPEC.fullmatch(given)
    if match is None:
        kind = "function" if flag == "--verifier" else "Class"
        raise ConfigError(f"{flag} {given}: not FILE.py:{kind}")
    return Path(match["file"]).expanduser(), match["function"], match["code"]


def _load(workers: GraderPool, spec: str) -> Mapping[str, Any]:
    """Return the names in ``ARGUMENTS`` that the function takes, whether it takes lists of them, and its threshold."""
    loaded = workers.load()
    if "asked" in loaded:
        return loaded
    path, function, _ = split_spec(spec)
    if "unknown_argument" in loaded:
        taken = loaded["unknown_argument"]
        raise ConfigError(
            f"--verifier {spec}: requires the parameter {taken!r}; allowed are {', '.join(loaded['allowed'])}"
        )
    if "known" in loaded:
        hint = nearest_names(function, loaded["known"]) if loaded["known"] else "it defines none"
        raise ConfigError(f"--verifier {spec}: no function {function} in that file; {hint}")
    raise ConfigError(f"--verifier {spec}: {path} {loaded['fault']}")
