"""Find the problem of an imported sample in a problem file, which has the tests or golds that the dump lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.records.errors import ConfigError, ProblemError, VerifierError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.files import parse_problem, read_rows, replace_verifier
from oversharp.diagnostics.verifiers import Verifiers

NOT_BY_TEXT = "its prompt contains no prompt of --problems; if the tool's ids are the ids of that file, pass --match id"
NOT_BY_ID = "its id is not in --problems"
OTHER_SUFFIX = (
    "its prompt continues after a prompt of --problems, differently from other samples; it may be another problem"
)
#: Fields with the statement of a code task, which the tools embed in prompts of their own.
_STATEMENTS = ("prompt", "text", "question_content", "question")


class ProblemFile:
    """The problems of a file, found by prompt or by id.

    ``verifier`` replaces the verifiers in the file. Without it, all problems must have one verifier.

    Raises:
        ProblemError: the file cannot be read, or a problem cannot be graded.
        ConfigError: the problems have several verifiers.
    """

    def __init__(self, path: Path, *, verifier: str | None, by_id: bool) -> None:
        self.path = path
        self._by_id = by_id
        self._problems: dict[str, Problem] = {}
        #: Prompts and statements without white space at the ends, and with single spaces → problem.
        self._prompts: dict[str, Problem] = {}
        self._statements: dict[str, Problem] = {}
        self._found: dict[str, Problem | str] = {}
        #: Text before and after the first prompt that was found inside a longer one.
        self._around: tuple[str, str] | None = None
        with closing(read_rows(path)) as rows, Verifiers() as verifiers:
            for row in rows:
                problem = parse_problem(row, path.stem)
                try:
                    problem = problem if verifier is None else replace_verifier(problem, verifier)
                    verifiers.check_gold(problem)
                except (ProblemError, VerifierError) as error:
                    raise ProblemError(f"{row.where}: {error}") from error
                self._add(problem, row.fields)
        if not self._problems:
            raise ProblemError(f"{path}: contains no problems")
        self.verifier = self._common_verifier()

    def _add(self, problem: Problem, fields: Mapping[str, Any]) -> None:
        self._problems.setdefault(problem.source_id or problem.problem_id, problem)
        self._prompts.setdefault(_collapse(problem.prompt), problem)
        if problem.verifier == "code":
            texts = [fields.get(name) for name in _STATEMENTS]
            for text in texts:
                if isinstance(text, str) and text.strip():
                    self._statements.setdefault(_collapse(text), problem)

    def _common_verifier(self) -> str:
        verifiers = sorted({problem.verifier for problem in self._problems.values()})
        if len(verifiers) > 1:
            raise ConfigError(
                f"--problems {self.path}: its problems have several verifiers ({', '.join(verifiers)}); pass --verifier"
            )
        return verifiers[0]

    @cached_property
    def content_hash(self) -> str:
        """Hash of the file."""
        return sha256(self.path.read_bytes()).hexdigest()[:16]

    def clusters_by_id(self, verifier: str) -> Mapping[str, str]:
        """Return problem id → cluster, for the problems that have one, if ``verifier`` grades them."""
        return {
            graded_by(problem, verifier).problem_id: problem.cluster
            for problem in self._problems.values()
            if problem.cluster is not None
        }

    def find(self, item: Recorded) -> Problem | Fault:
        """Return the problem of a sample, or why it has none.

        By text, a prompt may contain the problem's prompt, as chat templates and examples in the prompt do. Then the
        problem is the one that ends last. The statement of a code task is enough.
        """
        if self._by_id:
            problem = self._problems.get(item.problem or "")
            return Fault(item.line, NOT_BY_ID) if problem is None else problem
        if item.prompt not in self._found:
            self._found[item.prompt] = self._find_text(_collapse(item.prompt))
        found = self._found[item.prompt]
        return Fault(item.line, found) if isinstance(found, str) else found

    def _find_text(self, prompt: str) -> Problem | str:
        exact = self._prompts.get(prompt) or self._statements.get(prompt)
        if exact is not None:
            return exact
        if self._around is not None:  # most tools put the same text around each problem
            before, after = self._around
            if prompt.startswith(before) and prompt.endswith(after):
                inner = prompt[len(before) : len(prompt) - len(after)]
                if inner in self._prompts:
                    return self._prompts[inner]
        if (last := _last_in(prompt, self._prompts)) is not None:
            start, end = last
            self._around = self._around or (prompt[:start], prompt[end:])
            return self._prompts[prompt[start:end]] if prompt[end:] == self._around[1] else OTHER_SUFFIX
        last = _last_in(prompt, self._statements)
        return NOT_BY_TEXT if last is None else self._statements[prompt[last[0] : last[1]]]


def graded_by(problem: Problem, verifier: str) -> Problem:
    """Return the problem with ``verifier``; its modes are kept only for the verifier "modes"."""
    return replace(problem, verifier=verifier, modes=problem.modes if verifier == "modes" else ())


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _last_in(prompt: str, texts: Iterable[str]) -> tuple[int, int] | None:
    """Return start and end of the text that ends last in the prompt, the longest of several; None if it has none.

    A text inside a longer word or number does not count.

    >>> prompt = "Q: 1+1? A: 2 Q: 11+1? A:"
    >>> start, end = _last_in(prompt, ["1+1?", "11+1?"])
    >>> prompt[start:end]
    '11+1?'
    >>> _last_in("Add 2 and 12", ["Add 2 and 1"]) is None
    True
    """
    found = []
    for text in texts:
        start = prompt.rfind(text)
        end = start + len(text)
        if start >= 0 and not _splits_word(prompt, start) and not _splits_word(prompt, end):
            found.append((start, end))
    return max(found, key=lambda place: (place[1], -place[0]), default=None)


def _splits_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
