"""Find the problem of an imported sample in a problem file, which has the tests or golds that the dump lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from oversharp.diagnostics.verifiers.code.task import META_KEY

NOT_BY_TEXT = "its prompt contains no prompt of --problems; if the tool's ids are the ids of that file, pass --match id"
NOT_BY_ID = "its id is not in --problems"
ALONE = (
    "its prompt contains a prompt of --problems, but the text around it is around no other problem, so it may be "
    "another problem; if the tool's ids are the ids of that file, pass --match id"
)
TWICE = (
    "its prompt contains the same problem as another prompt of this step; if the tool's ids are the ids of the file of "
    "--problems, pass --match id"
)
#: Fields with the statement of a code task, which the tools embed in prompts of their own.
_STATEMENTS = ("prompt", "text", "question_content", "question")
#: Text before and after a prompt. A statement is followed by tests, so only the beginning of that text counts.
_Around = tuple[str, str]
_EXACT: _Around = ("", "")
_AFTER_STATEMENT = 12


class ProblemFile:
    """The problems of a file, found by prompt or by id.

    ``verifier`` replaces the verifiers in the file. Without it, all problems must have one verifier.

    Raises:
        ProblemError: the file cannot be read, a problem cannot be graded, or two have one id or one prompt.
        ConfigError: the problems have several verifiers.
    """

    def __init__(self, path: Path, *, verifier: str | None, by_id: bool) -> None:
        self.path = path
        self.by_id = by_id
        self._problems: dict[str, Problem] = {}
        #: Prompts and statements without white space at the ends, and with single spaces → problem.
        self._prompts: dict[str, Problem] = {}
        self._statements: dict[str, Problem | None] = {}  # None: the statement of several problems
        self._found: dict[str, Problem | str] = {}
        places: dict[str, str] = {}
        with closing(read_rows(path)) as rows, Verifiers() as verifiers:
            for row in rows:
                problem = parse_problem(row, path.stem)
                try:
                    problem = problem if verifier is None else replace_verifier(problem, verifier)
                    verifiers.check_gold(problem)
                    self._add(problem, row.fields, row.place, places)
                except (ProblemError, VerifierError) as error:
                    raise ProblemError(f"{row.where}: {error}") from error
        if not self._problems:
            raise ProblemError(f"{path}: contains no problems")
        self.verifier = self._common_verifier()

    def _add(self, problem: Problem, fields: Mapping[str, Any], place: str, places: dict[str, str]) -> None:
        """Add a problem. ``places`` has the lines of the ids and prompts so far.

        Raises ``ProblemError`` if another problem has its id or its prompt.
        """
        prompt = _collapse(problem.prompt)
        if prompt in self._prompts and self._prompts[prompt].problem_id == problem.problem_id:
            return
        for kind, key in (("id", problem.source_id), ("prompt", prompt)):
            if key is not None and f"{kind} {key}" in places:
                what = f"id {key!r}" if kind == "id" else "prompt, with another answer,"
                raise ProblemError(f"the same {what} as {places[f'{kind} {key}']}; remove or change one")
            places[f"{kind} {key}"] = place
        self._problems[problem.source_id or problem.problem_id] = problem
        self._prompts[prompt] = problem
        if META_KEY in problem.meta:
            texts = [fields[name] for name in _STATEMENTS if isinstance(fields.get(name), str) and fields[name].strip()]
            for text in dict.fromkeys(map(_collapse, texts)):
                self._statements[text] = None if text in self._statements else problem

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

    def learn(self, prompts: Iterable[tuple[int, str]]) -> None:
        """Find the problems of all prompts of a series, given as (step, prompt).

        A prompt equals that of its problem, or contains it, as chat templates and examples in the prompt do. The text
        around it must be around at least two problems: an example in the prompt of a problem that is not in the file
        has text around it that no other problem has. The statement of a code task is enough, unless two tasks have it.
        If several prompts of a step have one problem, the equal one counts, else the one whose surrounding text is
        around most problems.
        """
        steps: dict[str, set[int]] = {}
        for step, prompt in prompts:
            steps.setdefault(_collapse(prompt), set()).add(step)
        places = {prompt: list(self._places(prompt)) for prompt in steps}
        users: dict[_Around, set[str]] = {}
        for found in places.values():
            for problem, around in found:
                users.setdefault(around, set()).add(problem.problem_id)
        least = min(2, len(self._problems))
        chosen: dict[str, tuple[Problem, _Around]] = {}
        for prompt, found in places.items():
            shared = [one for one in found if one[1] == _EXACT or len(users[one[1]]) >= least]
            if shared:
                chosen[prompt] = max(shared, key=lambda one: (one[1] == _EXACT, len(users[one[1]])))
                self._found[prompt] = chosen[prompt][0]
            else:
                self._found[prompt] = ALONE if found else NOT_BY_TEXT
        rivals: dict[tuple[int, str], list[str]] = {}
        for prompt, (problem, _) in chosen.items():
            for step in steps[prompt]:
                rivals.setdefault((step, problem.problem_id), []).append(prompt)
        for several in rivals.values():
            ranks = [(chosen[one][1] == _EXACT, len(users[chosen[one][1]])) for one in several]
            for one, rank in zip(several, ranks, strict=True):
                if rank < max(ranks) or ranks.count(rank) > 1:
                    self._found[one] = TWICE

    def find(self, item: Recorded) -> Problem | Fault:
        """Return the problem of a sample, or why it has none. By text, ``learn`` must have got its prompt."""
        if self.by_id:
            problem = self._problems.get(item.problem or "")
            return Fault(item.line, NOT_BY_ID) if problem is None else problem
        found = self._found.get(_collapse(item.prompt), NOT_BY_TEXT)
        return Fault(item.line, found) if isinstance(found, str) else found

    def _places(self, prompt: str) -> Iterator[tuple[Problem, _Around]]:
        """Yield the problems whose prompt or statement is in a prompt, with the text around it."""
        exact = self._prompts.get(prompt) or self._statements.get(prompt)
        if exact is not None:
            yield exact, _EXACT
            return
        for text, problem in self._prompts.items():
            for start, end in _places_in(prompt, text):
                yield problem, (prompt[:start], prompt[end:])
        for text, of_statement in self._statements.items():
            if of_statement is not None:
                for start, end in _places_in(prompt, text):
                    yield of_statement, (prompt[:start], prompt[end:][:_AFTER_STATEMENT])


def graded_by(problem: Problem, verifier: str) -> Problem:
    """Return the problem with ``verifier``; its modes are kept only for the verifier "modes"."""
    return replace(problem, verifier=verifier, modes=problem.modes if verifier == "modes" else ())


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _places_in(prompt: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each place of a text that is not inside a longer word or number.

    >>> list(_places_in("Q: 1+1? A: 2 Q: 11+1? A:", "1+1?"))
    [(3, 7)]
    """
    start = prompt.find(text)
    while start >= 0:
        end = start + len(text)
        if not _splits_word(prompt, start) and not _splits_word(prompt, end):
            yield start, end
        start = prompt.find(text, start + 1)


def _splits_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
