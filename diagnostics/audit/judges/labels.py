"""The file of gold labels: draw responses to label, and read the labels.

Each line of the JSONL file is one response: ``step``, ``problem`` (id in the store), ``sample`` (index), ``set`` and
``label``: 1 correct, 0 incorrect, null without a label. The lines of a set are in the order of labelling. ``prompt``,
``answer`` and ``response`` are for the reader.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oversharp.diagnostics.audit.judges.grades import JudgedCheckpoint, JudgeGrades
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.files import require_regular
from oversharp.diagnostics.records.types import content_hash, response_id
from oversharp.diagnostics.statistics.labels.correction import draw_sets
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_problems

_TEXTS = """
SELECT DISTINCT problem_id, response_id, text
FROM samples
WHERE list_contains($ids::VARCHAR[], response_id)
"""


@dataclass(frozen=True, kw_only=True)
class LabelledSet:
    """A set of samples of one problem: positions of problem and samples, and the labels up to the first correct one."""

    problem: int
    samples: tuple[int, ...]
    labels: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class CheckpointLabels:
    """Labelled sets of one checkpoint. ``n_unused`` counts sets from the first unfinished one on."""

    sets: tuple[LabelledSet, ...]
    n_unused: int

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return sum(len(one.labels) for one in self.sets)


def write_label_file(
    store: Store, judged: JudgeGrades, path: Path, *, steps: Sequence[int], n_labels: int, k: int
) -> int:
    """Write a file with responses to label, ``n_labels`` expected at each step, and return its number of lines.

    Base and late checkpoints get the same problems. Equal stores give equal files. Raises ``ConfigError`` if the file
    exists, and for a step or ``k`` that the audit does not have.
    """
    if path.exists():
        raise ConfigError(f"--labels {path}: exists; pass another file, or remove it if it has no labels")
    n_samples = judged.base.judge_PN.shape[1]
    if not 1 <= k <= n_samples:
        raise ConfigError(f"--draw-k {k}: must be from 1 to {n_samples}, the samples of each problem")
    lines: list[dict[str, object]] = []
    # the same responses for another judge, so that labels can be used again
    seed = int(content_hash("labels", judged.key.settings_id, *judged.problem_ids)[:15], 16)
    order_P = np.random.default_rng(seed).permutation(len(judged.problem_ids))
    for step in steps:
        checkpoint = judged.by_step.get(step)
        if checkpoint is None:
            raise ConfigError(f"--steps {step}: not a step of {judged.key.series!r}: {_known_steps(judged)}")
        rng = np.random.default_rng([seed, step])
        problem_S, sample_SK = draw_sets(checkpoint.judge_PN, order_P, n_labels=n_labels, k=k, rng=rng)
        lines += _lines(store, judged, checkpoint, problem_S, sample_SK)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return len(lines)


def read_label_file(path: Path, judged: JudgeGrades) -> Mapping[int, CheckpointLabels]:
    """Return the labels of each step. Raises ``ConfigError`` with file and line for a line that cannot be used."""
    place = {problem_id: position for position, problem_id in enumerate(judged.problem_ids)}
    rows: dict[int, dict[object, list[tuple[int, int, bool | None]]]] = defaultdict(lambda: defaultdict(list))
    seen: dict[tuple[int, int, int, int | None], int] = {}
    for number, line in _read_lines(path):
        where = f"--labels {path}:{number}"
        step, problem, sample = (_field(where, line, name) for name in ("step", "problem", "sample"))
        checkpoint = judged.by_step.get(step) if isinstance(step, int) else None
        if checkpoint is None:
            raise ConfigError(f"{where}: step {step!r} is not in {judged.key.series!r}: {_known_steps(judged)}")
        if problem not in place:
            raise ConfigError(
                f"{where}: problem {problem!r} is not in {judged.key.series!r}; copy it from the label file"
            )
        position = place[str(problem)]
        n_samples = checkpoint.judge_PN.shape[1]
        if not isinstance(sample, int) or isinstance(sample, bool) or not 0 <= sample < n_samples:
            raise ConfigError(f"{where}: sample {sample!r} is unknown; samples of this audit are 0 to {n_samples - 1}")
        text, own = line.get("response"), checkpoint.response_PN[position, sample]
        if line.get("response_id", response_id(text) if isinstance(text, str) else own) != own:
            raise ConfigError(f"{where}: the response is not sample {sample} of the store; draw the labels again")
        group = line.get("set")
        if group is not None and not isinstance(group, int):
            raise ConfigError(f"{where}: set must be a whole number, or left out for a set of one sample")
        first = seen.setdefault((checkpoint.step, position, sample, group), number)
        if first != number:
            raise ConfigError(f"{where}: the same sample as in line {first}; remove one")
        own = f"line {number}" if group is None else (group, position)
        rows[checkpoint.step][own].append((position, sample, _label(where, line)))
    return {step: _use(list(sets.values())) for step, sets in rows.items()}


def _use(sets: Sequence[Sequence[tuple[int, int, bool | None]]]) -> CheckpointLabels:
    """Return the sets before the first unfinished one: to leave out only those that take long would cause a bias."""
    used: list[LabelledSet] = []
    for rows in sets:
        labels = [label for _, _, label in rows]
        known = labels[: labels.index(True) + 1] if True in labels else labels
        if None in known:
            break
        used.append(
            LabelledSet(
                problem=rows[0][0],
                samples=tuple(sample for _, sample, _ in rows),
                labels=tuple(bool(label) for label in known),
            )
        )
    return CheckpointLabels(sets=tuple(used), n_unused=len(sets) - len(used))


def _lines(
    store: Store, judged: JudgeGrades, checkpoint: JudgedCheckpoint, problem_S: np.ndarray, sample_SK: np.ndarray
) -> Iterator[dict[str, object]]:
    ids = np.unique(checkpoint.response_PN[problem_S[:, None], sample_SK]).tolist()
    texts = {(row.problem_id, row.response_id): row.text for row in store.frame(_TEXTS, ids=ids).itertuples()}
    places = np.unique(problem_S).tolist()
    problems = dict(zip(places, stored_problems(store, [judged.problem_ids[place] for place in places]), strict=True))
    for number, (place, sample_K) in enumerate(zip(problem_S, sample_SK, strict=True), start=1):
        problem_id, problem = judged.problem_ids[place], problems[int(place)]
        for sample in sample_K:
            own = checkpoint.response_PN[place, sample]
            text = texts[problem_id, own]
            yield {
                "step": checkpoint.step,
                "set": number,
                "problem": problem_id,
                "sample": int(sample),
                "label": None,
                "prompt": problem.prompt,
                "answer": problem.gold,
                "response": text,
                # of a trajectory it is not the hash of its text
                **({} if response_id(text) == own else {"response_id": own}),
            }


def _read_lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        require_regular(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"--labels {path}: cannot be read ({why})") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"--labels {path}:{number}: not JSON ({error})") from None
        if not isinstance(content, dict):
            raise ConfigError(f"--labels {path}:{number}: not a JSON object")
        yield number, content


def _field(where: str, line: Mapping[str, object], name: str) -> object:
    if name not in line:
        raise ConfigError(f'{where}: field "{name}" is missing; --draw-labels writes a file with all fields')
    return line[name]


def _label(where: str, line: Mapping[str, object]) -> bool | None:
    label = _field(where, line, "label")
    if label is not None and label not in (0, 1):
        raise ConfigError(f"{where}: label {label!r}: must be 0 (incorrect), 1 (correct) or null (no label yet)")
    return None if label is None else bool(label)


def _known_steps(judged: JudgeGrades) -> str:
    return f"its steps are {', '.join(map(str, judged.by_step))}"
