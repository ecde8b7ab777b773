"""NeMo-Skills: ``output-rs{seed}.jsonl`` (a response per problem) and greedy ``output.jsonl``.

The files are in ``eval-results/{benchmark}/``. Each row has the fields of the data set and ``generation``. With
``remove_thinking`` the whole response is in ``_full_generation``. The rendered prompt is not recorded, so the prompt is
the problem's text (``problem`` or ``question``). The score is ``symbolic_correct``, else the judge's ``judgement``.
--reward chooses another field; ``judge_correct`` is the judgement. Rows without a score are graded by
``expected_answer``. Temperatures are not recorded: ``output.jsonl`` is assumed to be greedy, the default of
NeMo-Skills. The step is in the name of a folder above: ``step_40/eval-results/aime24/output-rs0.jsonl``. Files in
``tmp-eval-results`` are not yet judged. They are skipped if the judged file exists.

Source: NVIDIA-NeMo/Skills 8b18f39, ``GenerationTask.dump_outputs``, ``evaluate_result`` and ``MathMetrics``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import (
    Fault,
    FilePlace,
    Importer,
    ReadOptions,
    Recorded,
    ScoreTable,
    gather_scores,
)
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    find_run_above,
    get_finish_reason,
    get_gold,
    get_number,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each, records

_FILE = re.compile(r"output(?P<seed>-rs\d+)?(?:_chunk_\d+)?\.jsonl")
#: A row must also have one of these fields, since other tools use a field ``generation`` too.
_KNOWN_BY = frozenset(
    {"predicted_answer", "symbolic_correct", "judgement", "num_generated_tokens", "generation_time", "_full_generation"}
)
_QUESTIONS = ("problem", "question")
_IDS = ("id", "problem_id", "unique_id", "uuid", "task_id")
_SYMBOLIC, _JUDGED = "symbolic_correct", "judge_correct"
_JUDGED_LATER = {"tmp-eval-results": "eval-results"}


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of a row."""
    has_problem = any(name in record for name in (*_QUESTIONS, "expected_answer"))
    return "generation" in record and has_problem and not _KNOWN_BY.isdisjoint(record)


def place(path: Path) -> FilePlace:
    """Return run and step from the name of a folder above. The folder's name is the benchmark."""
    run, step = find_run_above(path.absolute().parent)
    benchmark = path.absolute().parent.name
    return FilePlace(run=run, step=step, task=benchmark if _FILE.fullmatch(path.name) else None)


def samples_of(path: Path) -> tuple[str, bool] | None:
    """Return the path in ``eval-results``, and whether the file is judged (not in ``tmp-eval-results``)."""
    folders = [_JUDGED_LATER.get(name, name) for name in path.absolute().parts]
    return "/".join(folders), _JUDGED_LATER.keys().isdisjoint(path.absolute().parts)


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    named = _FILE.fullmatch(path.name)
    greedy = named is not None and named["seed"] is None
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward, greedy=greedy))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None, *, greedy: bool) -> Recorded:
    reward = _reward(fields, chosen)
    return Recorded(
        line=line,
        prompt=get_text(fields, next((name for name in _QUESTIONS if fields.get(name)), _QUESTIONS[0])),
        response=get_response(fields, "_full_generation" if fields.get("_full_generation") else "generation", reward),
        gold=get_gold(fields, "expected_answer"),
        reward=reward,
        problem=_problem_id(fields),
        answer=get_optional_text(fields, "predicted_answer"),
        greedy=greedy,
        n_tokens=get_whole(fields, "num_generated_tokens"),
        finish_reason=get_finish_reason(fields, "finish_reason"),
    )


def score_table(path: Path, options: ReadOptions) -> ScoreTable | None:
    """Return the scores of symbolic check and judge; None with one, or if ``options`` chooses it."""
    if options.reward is not None:
        return None

    def rows() -> Iterator[tuple[str, Mapping[str, float]]]:
        for record in records(path):
            if isinstance(record, Fault):
                continue
            fields, scores = record[1], {}
            for name in (_SYMBOLIC, _JUDGED):
                if name in fields or (name == _JUDGED and "judgement" in fields):
                    with suppress(BadField):
                        score = _reward(fields, name)
                        scores.update({} if score is None else {name: score})
            yield _problem_id(fields) or str(record[0]), scores

    return gather_scores(rows(), taken=_SYMBOLIC, flag=f"--reward {_JUDGED}")


def _problem_id(fields: Mapping[str, Any]) -> str | None:
    ids = (get_optional_text(fields, name) for name in _IDS)
    return next((source_id for source_id in ids if source_id is not None), None)


def _reward(fields: Mapping[str, Any], chosen: str | None) -> float | None:
    judgement = fields.get("judgement")
    judged = _JUDGED not in fields and isinstance(judgement, str)
    if chosen is not None and (chosen != _JUDGED or not judged):
        return get_reward(fields, chosen, "")
    if chosen is None and fields.get(_SYMBOLIC) is not None:
        return get_number(fields, _SYMBOLIC)
    if chosen is None and not judged:
        return get_number(fields, _JUDGED)
    return float(str(judgement).rpartition("Judgement:")[2].strip().lower().startswith("yes") and judged)


IMPORTER = Importer(
    name="nemo_skills",
    title="NeMo-Skills, output-rs*.jsonl",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    samples_of=samples_of,
    score_table=score_table,
)
