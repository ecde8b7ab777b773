"""Static copy of a selection: files that open from disk or from any web server."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.viewer.listing import filter_problems
from oversharp.diagnostics.viewer.page import POLICY, page_files
from oversharp.diagnostics.viewer.records import ProblemSide, ViewSelection, ViewStart
from oversharp.diagnostics.viewer.viewer import Viewer

#: Limits of a static copy: response texts per answer, and answers with texts per problem and checkpoint.
RESPONSES_PER_ANSWER, ANSWERS = 5, 40
_HEAD = '<meta charset="utf-8">'


@dataclass(frozen=True, kw_only=True)
class WrittenBundle:
    """Summary of a written copy: ``n_problems`` of ``n_selected`` problems, and its size in bytes."""

    folder: Path
    n_problems: int
    n_selected: int
    n_responses: int
    n_bytes: int


def require_bundle_place(folder: Path) -> None:
    """Raise ``ConfigError`` if ``folder`` exists and is not an empty directory."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--bundle {folder}: exists and is not an empty directory; choose another path")


def write_bundle(
    viewer: Viewer,
    selection: ViewSelection,
    folder: Path,
    *,
    most: int,
    stage: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
) -> WrittenBundle:
    """Write the first ``most`` problems of a selection to ``folder``, atomically.

    Raises ``ConfigError`` if the selection is empty, or the folder exists and is not empty. Raises ``StoreError`` if
    the folder cannot be written.
    """
    require_bundle_place(folder)
    listed = viewer.problems(selection)
    matching_ids = viewer.matching_problem_ids(selection) if selection.search else None
    chosen = [
        problem
        for problem in filter_problems(listed, selection.only)
        if matching_ids is None or problem.problem_id in matching_ids
    ]
    if not chosen:
        raise ConfigError(f"--bundle {folder}: the selection has no problems; change --only or --search")
    start = ViewStart(
        store=viewer.store_name,
        series=tuple(series for series in viewer.series if series.name == selection.series),
        selection=selection,
        bundle=True,
        note=_note(len(chosen[:most]), len(chosen), len(listed.problems), selection),
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            copy = Path(scratch) / "copy"
            (copy / "data").mkdir(parents=True)
            _write_page(copy)
            _write(copy, "start", start)
            _write(copy, "problems", replace(listed, problems=tuple(chosen[:most])))
            n_responses = 0
            with stage("copy problems", len(chosen[:most])) as advance:
                for number, problem in enumerate(chosen[:most]):
                    n_responses += _write_problem(viewer, selection, copy, f"problem-{number}", problem.problem_id)
                    advance(1)
            n_bytes = sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())
            os.chmod(copy, 0o755)  # temporary directories are private by default
            if folder.is_dir():
                folder.rmdir()
            shutil.move(copy, folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); choose another --bundle") from error
    return WrittenBundle(
        folder=folder, n_problems=len(chosen[:most]), n_selected=len(chosen), n_responses=n_responses, n_bytes=n_bytes
    )


def _note(n: int, n_selected: int, n_all: int, selection: ViewSelection) -> str:
    problems = plural(n, "problem") if n == n_selected else f"the first {n} of {plural(n_selected, 'problem')}"
    by = [f"--only {selection.only}"] if selection.only != "all" else []
    by += [f"--search {selection.search!r}"] if selection.search else []
    chosen = f", selected from {n_all} by {' and '.join(by)}" if by else ""
    return (
        f"A copy of {problems}{chosen}. For each problem and checkpoint, the {ANSWERS} most frequent answers have the "
        f"full text of up to {RESPONSES_PER_ANSWER} distinct responses."
    )


def _write_page(folder: Path) -> None:
    files = page_files()
    policy = f'{_HEAD}\n<meta http-equiv="content-security-policy" content="{POLICY}">'
    files["index.html"] = files["index.html"].replace("<html ", "<html data-bundle ").replace(_HEAD, policy)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _write_problem(viewer: Viewer, selection: ViewSelection, folder: Path, name: str, problem_id: str) -> int:
    """Write one problem with its responses to a file and return the number of responses.

    All turns of a long response are written to a separate file.
    """
    problem = viewer.problem(selection, problem_id)
    first, second = map(_shorten_side, problem.sides)
    problem = replace(problem, sides=(first, second))
    texts = {
        f"{side.key}:{response_id}": text
        for side in problem.sides
        for response_id, text in viewer.responses(
            selection,
            problem_id,
            side.key,
            [response.response_id for group in side.answers for response in group.responses],
        ).items()
    }
    turn_files: dict[str, str] = {}
    for place, text in texts.items():
        trajectory = text.trajectory
        if trajectory is not None and len(trajectory.first) + len(trajectory.last) < trajectory.n_turns:
            turn_files[place] = f"{name}-turns-{len(turn_files)}"
            key, _, response_id = place.partition(":")
            _write(folder, turn_files[place], viewer.turns(selection, problem_id, key, response_id, 1, most=None))
    _write(folder, name, {"problem": problem, "responses": texts, "turn_files": turn_files})
    return len(texts)


def _shorten_side(side: ProblemSide) -> ProblemSide:
    return replace(
        side,
        answers=tuple(
            replace(group, responses=group.responses[:RESPONSES_PER_ANSWER] if place < ANSWERS else ())
            for place, group in enumerate(side.answers)
        ),
    )


def _write(folder: Path, name: str, value: Any) -> None:
    """Write a value as an ASCII script. A page opened from disk can only load data as a script."""
    text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    (folder / "data" / f"{name}.js").write_text(f'oversharpData("{name}",{text});\n', encoding="ascii")
