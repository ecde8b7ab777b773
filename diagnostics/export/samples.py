"""Export graded samples for ``datasets.load_dataset``: Parquet files and a dataset card.

Texts are processed in parts of bounded size, so a store may be larger than memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.records.names import slugs
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.views import meaning_of
from oversharp.diagnostics.store.write_import import TURNS

#: Tables with the columns that the view ``graded_samples`` lacks.
COLUMN_RELATIONS = {
    "source_id": "problems",
    "prompt": "problems",
    "gold": "problems",
    "verifier": "problems",
    "settings_id": "settings",
    "turns": "trajectories",
}
#: Size categories of the hub, with the smallest number above each.
_SIZE_NAMES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
_CARD_SETTINGS = """
SELECT a.series, s.*
FROM current_audits AS a
JOIN settings AS s USING (settings_id)
WHERE list_contains($series::VARCHAR[], a.series)
ORDER BY a.series
"""
_RULES = """
SELECT series, first_round, enough, n, n_base
FROM current_audits
WHERE list_contains($series::VARCHAR[], series) AND first_round IS NOT NULL
ORDER BY list_position($series::VARCHAR[], series)
"""
#: Number of bytes of text read at a time.
PART_BYTES = 32 << 20

SCHEMA = pa.schema(
    [
        ("series", pa.string()),
        ("checkpoint", pa.string()),
        ("step", pa.int32()),
        ("is_base", pa.bool_()),
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("source_id", pa.string()),
        ("prompt", pa.string()),
        ("gold", pa.string()),
        ("greedy", pa.bool_()),
        ("sample_index", pa.int32()),
        ("in_first_round", pa.bool_()),
        ("text", pa.string()),
        ("turns", TURNS),
        ("n_tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("logp_sum_raw", pa.float64()),
        ("answer", pa.string()),
        ("mode", pa.string()),
        ("reward", pa.float64()),
        ("correct", pa.bool_()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("verifier", pa.string()),
        ("settings_id", pa.string()),
    ]
)
_COLUMN_BYTES = 256  # estimated size of a row without its texts

# the rows are in the order of the problem set
_SIZES = """
SELECT
    w.step,
    w.problem_id,
    count(*) AS n,
    max(s.sample_index) + 1 AS n_indices,
    sum(
        strlen(s.text) + coalesce(strlen(t.turns::VARCHAR), 0) + strlen(p.prompt) + strlen(p.gold) + $column_bytes
    )::BIGINT AS n_bytes
FROM planned_samples AS w
JOIN audit_problems AS ap USING (audit_id, problem_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
LEFT JOIN trajectories AS t USING (response_id)
WHERE w.series = $series
GROUP BY w.step, w.problem_id, ap.position
ORDER BY w.step, ap.position
"""
_SAMPLES = """
SELECT
    g.series, g.checkpoint, g.step, g.is_base, g.task, g.problem_id, p.source_id, p.prompt, p.gold,
    g.greedy, g.sample_index, g.in_first_round, g.text, t.turns, g.n_tokens, g.finish_reason, g.logp_sum_raw,
    g.answer, g.mode, g.reward, g.correct, g.state, g.reason,
    coalesce(a.verifier, p.verifier) AS verifier, a.settings_id
FROM graded_samples AS g
JOIN current_audits AS a USING (series)
JOIN problems AS p USING (problem_id)
LEFT JOIN trajectories AS t USING (response_id)
WHERE g.series = $series AND g.step = $step AND g.problem_id IN (SELECT unnest($problem_ids::VARCHAR[]))
  AND g.sample_index >= $first_index AND g.sample_index < $end_index
ORDER BY list_position($problem_ids::VARCHAR[], g.problem_id), g.greedy DESC, g.sample_index
"""


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """Samples of one step with at most about ``PART_BYTES`` of text.

    They are the samples of ``problem_ids`` with an index from ``first_index`` to ``end_index`` (exclusive). ``n`` is
    their number, estimated if a problem is split.
    """

    step: int
    problem_ids: tuple[str, ...]
    n: int
    first_index: int
    end_index: int


def parts(store: Store, series: str, *, part_bytes: int = PART_BYTES) -> list[SampleFile]:
    """Split all samples of ``series`` into parts, by step and in the order of the problem set."""
    sizes = store.frame(_SIZES, series=series, column_bytes=_COLUMN_BYTES)
    files: list[SampleFile] = []
    for step, rows in sizes.groupby("step", sort=True):
        problems: list[Any] = []
        n_bytes = 0
        for row in rows.itertuples():
            if problems and n_bytes + row.n_bytes > part_bytes:
                files += _split(int(step), problems, math.ceil(n_bytes / part_bytes))
                problems, n_bytes = [], 0
            problems.append(row)
            n_bytes += row.n_bytes
        files += _split(int(step), problems, math.ceil(n_bytes / part_bytes))
    return files


def _split(step: int, problems: Sequence[Any], wanted: int) -> list[SampleFile]:
    """Split these rows of ``_SIZES`` into at most ``wanted`` parts. Only a single problem is split."""
    end = max(problem.n_indices for problem in problems)
    n_cuts = min(end, wanted)
    edges = [end * cut // n_cuts for cut in range(n_cuts + 1)]
    n = sum(problem.n for problem in problems)
    ids = tuple(problem.problem_id for problem in problems)
    return [
        SampleFile(step=step, problem_ids=ids, n=n * last // end - n * first // end, first_index=first, end_index=last)
        for first, last in pairwise(edges)
    ]


def read_part(store: Store, series: str, part: SampleFile) -> pa.Table:
    """Return the graded samples of a part, sorted by problem, greedy first, then index."""
    frame = store.frame(
        _SAMPLES,
        series=series,
        step=part.step,
        problem_ids=list(part.problem_ids),
        first_index=part.first_index,
        end_index=part.end_index,
    )
    return pa.Table.from_pandas(frame, schema=SCHEMA, preserve_index=False)


def read_rows(
    store: Store, series: str, planned: Sequence[SampleFile], advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """Yield the graded samples of parts as rows of ``SCHEMA``, in the order of the problem set."""
    for part in planned:
        for batch in read_part(store, series, part).to_batches(max_chunksize=1024):
            yield from batch.to_pylist()
        advance(part.n)


def write_samples(
    store: Store,
    planned: Mapping[str, Sequence[SampleFile]],
    folder: Path,
    advance: Callable[[int], None],
    *,
    name: str | None = None,
) -> int:
    """Write a Parquet file per step and the card into ``folder``; return the number of samples.

    ``planned`` has the ``parts`` of every series. ``advance`` is called with the number of samples read. ``name`` is
    the dataset's name on the hub.
    """
    names = slugs(planned)
    n_written = 0
    for series, own in planned.items():
        for step, same_step in groupby(own, key=lambda part: part.step):
            path = folder / "data" / names[series] / f"step_{step:06d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            with parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
                for part in same_step:
                    table = read_part(store, series, part)
                    writer.write_table(table)
                    n_written += len(table)
                    advance(part.n)
    card = dataset_card(store, tuple(planned), SCHEMA, n_written, name=name)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return n_written


def dataset_card(
    store: Store, series: Sequence[str], schema: pa.Schema, n_samples: int, *, name: str | None = None
) -> str:
    """Return the ``README.md`` of the exported folder, with metadata for ``datasets`` and the hub.

    ``name`` is the dataset's name on the hub. Without it, the code example loads from the folder. No licence is stated,
    because only the owners of problems and models know it.

    Source: the Hugging Face hub's guide to dataset cards, for the metadata fields.
    """
    settings = store.frame(_CARD_SETTINGS, series=list(series)).convert_dtypes()
    columns = [
        f"| `{field.name}` | {field.type} | {meaning.unit} | {meaning.text} |"
        for field in schema
        if (meaning := meaning_of(COLUMN_RELATIONS.get(field.name, "graded_samples"), field.name))
    ]
    return "\n".join(
        [
            *_card_metadata(series, n_samples),
            "",
            "# Sampled responses, graded",
            "",
            f"{n_samples:,} responses of the checkpoints of {', '.join(series)}, sampled or imported by oversharp, "
            "with their grades. The licences of the problems and models apply.",
            "",
            "```python",
            "from datasets import load_dataset",
            "",
            _load_code(name),
            "```",
            "",
            *_verdict_lines(store, series),
            *_stopping_lines(store, series),
            "| column | type | unit | meaning |",
            "|---|---|---|---|",
            *columns,
            "",
            "Sampling settings; null is unknown:",
            "",
            "```json",
            json.dumps(json.loads(settings.to_json(orient="records")), indent=2, ensure_ascii=False),
            "```",
            "",
        ]
    )


def _load_code(name: str | None) -> str:
    """Return the code that loads the samples with ``datasets``.

    >>> _load_code("me/samples")
    'samples = load_dataset("me/samples", split="samples")'
    """
    if name is None:
        return 'samples = load_dataset(".", split="samples")  # in the folder of this file'
    return f'samples = load_dataset({json.dumps(name)}, split="samples")'


def _card_metadata(series: Sequence[str], n_samples: int) -> list[str]:
    """Return YAML metadata. Values are written as JSON, which is valid YAML for any series name."""
    samples = {"config_name": "default", "data_files": [{"split": "samples", "path": "data/*/*.parquet"}]}
    fields = {
        "pretty_name": f"Graded responses of {', '.join(series)}",
        "task_categories": ["text-generation"],
        "tags": ["oversharp", "rlvr", "reasoning"],
        "size_categories": [next((name for most, name in _SIZE_NAMES if n_samples < most), "n>1B")],
        "configs": [samples],
    }
    return ["---", *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()), "---"]


def _stopping_lines(store: Store, series: Sequence[str]) -> list[str]:
    """Return a warning about the numbers of samples of each series with a stopping rule."""
    rules = store.frame(_RULES, series=list(series))
    lines = [
        f"- {escape_controls(str(row.series))}: each problem was sampled in rounds, {row.first_round} to {row.n} "
        f"samples ({row.n_base} of the base), until a round left it with {row.enough} correct ones. The share of "
        "correct samples is biased; only the samples with `in_first_round` are equally many for every problem."
        for row in rules.itertuples()
    ]
    return ["Numbers of samples:", "", *lines, ""] if lines else []


def _verdict_lines(store: Store, series: Sequence[str]) -> list[str]:
    """Return the verdict sentence of each series that has a verdict."""
    verdicts = {name: store.verdict(name) for name in series}
    lines = [f"- {escape_controls(name)}: {v.sentence}" for name, v in verdicts.items() if v is not None]
    return ["Verdicts by oversharp:", "", *lines, ""] if lines else []
