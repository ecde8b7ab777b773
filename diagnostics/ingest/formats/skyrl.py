"""SkyRL: ``EXPORT/dumped_evals/global_step_{N}_evals/{data_source}.jsonl``.

``trainer.dump_eval_results`` writes these files. Fields are ``input_prompt``, ``output_response``, ``score``,
``stop_reason``, ``env_class``, ``env_extras`` and ``data_source``. The step is in the folder's name; a folder
``eval_only`` has none. ``score`` may be a list by token. Its last number is the score, as in SkyRL's pass@n. The gold
answer is ``ground_truth`` in ``env_extras``, under ``reward_spec`` (SkyRL's examples) or ``reward_model`` (data for
verl). Texts include special tokens; the end token is removed from the response. A response with turns of users or
tools, or with calls in ``<tool_call>``, is a trajectory: ``<|im_start|>`` marks its borders, and results are matched by
order. Calls in another syntax stay text. If the generator writes one line per turn, nothing connects these lines, and
each is a sample. ``aggregated_results.jsonl`` in the same folder has averages and is not read. Problem ids are not
recorded.

Source: SkyRL 0.3.0 and 0.4.0, ``dump_per_dataset_eval_results``, tested with its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, has_fields
from oversharp.diagnostics.ingest.formats.fields import (
    get_finish_reason,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    inner,
    parse_step_name,
    remove_end_token,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.ingest.formats.turns import transcript_turns
from oversharp.diagnostics.trajectories.record import model_text

_AVERAGES = "aggregated_results.jsonl"


def place(path: Path) -> FilePlace:
    """Return the step in the folder's name."""
    return FilePlace(step=parse_step_name(path.parent.name.removesuffix("_evals"), "global_step_"))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line. The file of averages has no samples."""
    if path.name == _AVERAGES:
        return iter(())
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None) -> Recorded:
    extras = inner(fields, "env_extras")
    golds = (get_optional_text(inner(extras, name), "ground_truth") for name in ("reward_spec", "reward_model"))
    reward = get_reward(fields, chosen, "score")
    response = remove_end_token(get_response(fields, "output_response", reward))
    turns = transcript_turns(response)
    return Recorded(
        line=line,
        prompt=get_text(fields, "input_prompt"),
        response=response if turns is None else model_text(turns),
        turns=turns,
        gold=next((gold for gold in golds if gold is not None), None),
        reward=reward,
        finish_reason=get_finish_reason(fields, "stop_reason"),
        task=get_optional_text(fields, "data_source"),
    )


IMPORTER = Importer(
    name="skyrl",
    title="SkyRL, dumped evaluations",
    suffixes=(".jsonl",),
    recognises=has_fields("input_prompt", "output_response", "score"),
    place=place,
    read_samples=read_samples,
    untold="results are matched by order; tokens and masks are missing; lines of one rollout cannot be joined",
)
