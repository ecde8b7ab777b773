"""Environments in the user's file: ``--environment FILE.py:Class``.

The class has ``reset(self, **problem) -> str | None`` and tools: all other public methods, with typed arguments and a
docstring with a section Args. ``get_reward(self) -> float`` is optional. This is the form of TRL's
``environment_factory``. Worker processes load the file. Only a flag can load a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.samplers.agents.process import EnvironmentProcess
from oversharp.diagnostics.verifiers.own_file import pin_spec, register_environment, split_spec
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

FLAG = "--environment"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A class of the user's file.

    ``name`` identifies it in samples and grades: ``FILE.py:Class@hash``, and ``>=`` with the file's ``CORRECT_AT`` if
    it has one. ``task`` is the first message to its processes. ``tools`` are JSON schemas in OpenAI's form.
    """

    given: str
    name: str
    task: Mapping[str, Any]
    tools: tuple[Mapping[str, Any], ...]
    has_reward: bool
    correct_at: float
    limits: GraderLimits

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools."""
        return tuple(tool["function"]["name"] for tool in self.tools)


def load_environment(given: str, limits: GraderLimits) -> Environment:
    """Load a class that the user passed with a flag, and accept its name as a verifier.

    Raises ``ConfigError`` for a file that cannot be read or loaded, and for a class that is missing, has another form,
    or has a tool without types or docstring.
    """
    spec, source = pin_spec(given, FLAG)
    path, class_name, code = split_spec(spec, FLAG)
    task = {
        "path": str(path),
        "source": source,
        "class": class_name,
        "memory_bytes": int(limits.memory_gib * (1 << 30)),
        "width": 1,
    }
    process = EnvironmentProcess(task, limits)
    try:
        loaded = process.start(with_tools=True)
    finally:
        process.end()
    if "fault" in loaded:
        raise ConfigError(f"{FLAG} {given}: {path} {loaded['fault']}")
    if not loaded["tools"]:
        raise ConfigError(f"{FLAG} {given}: {class_name} has no tools; add a public method with types and a docstring")
    correct_at = float(loaded["correct_at"])
    name = f"{path.name}:{class_name}@{code}" + ("" if correct_at == 1.0 else f">={correct_at:g}")
    register_environment(name)
    return Environment(
        given=given,
        name=name,
        task=task,
        tools=tuple(loaded["tools"]),
        has_reward=bool(loaded["has_reward"]),
        correct_at=correct_at,
        limits=limits,
    )


def require_reset(environment: Environment, problem: Problem) -> None:
    """Raise ``ConfigError`` if the environment cannot be reset to a problem."""
    process = EnvironmentProcess(environment.task, environment.limits)
    try:
        reply = process.start()
        if "fault" not in reply:
            reply = process.ask({"do": "reset", "instance": 0, "fields": problem_fields(problem)})
    finally:
        process.end()
    if "fault" in reply:
        raise ConfigError(
            f"{FLAG} {environment.given}: reset fails for the first problem ({reply['fault']}); correct it"
        )


def problem_fields(problem: Problem) -> dict[str, Any]:
    """Return the arguments of ``reset``: prompt, answer, meta, and the fields of meta with other names.

    >>> problem = Problem(task="t", prompt="2 + 3", gold="5", verifier="exact", meta={"level": 1})
    >>> problem_fields(problem)
    {'level': 1, 'prompt': '2 + 3', 'answer': '5', 'meta': {'level': 1}}
    """
    meta = dict(problem.meta)
    return {**meta, "prompt": problem.prompt, "answer": problem.gold, "meta": meta}
