"""Export the graded samples as a folder for ``datasets.load_dataset``.

Parquet files and a card.

Texts are read and written in parts of bounded size, so that a store may be larger than memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from oversharp.diagnostics.export.card import dataset_card
from oversharp.diagnostics.records.names import slugs
from oversharp.diagnostics.store import Store

#: Bytes of text read at a time.
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
        ("text", pa.string()),
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
_COLUMN_BYTES = 256  # of a row, without its texts

# in the order of the problem file
_SIZES = """
SELECT
    w.step,
    w.problem_id,
    count(*) AS n,
    max(s.sample_index) + 1 AS n_indices,
    sum(strlen(s.text) + strlen(p.prompt) + strlen(p.gold) + $column_bytes)::BIGINT AS n_bytes
FROM planned_samples AS w
JOIN audit_problems AS ap USING (audit_id, problem_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
WHERE w.series = $series
GROUP BY w.step, w.problem_id, ap.position
ORDER BY w.step, ap.position
"""
_SAMPLES = """
SELECT
    g.series, g.checkpoint, g.step, g.is_base, g.task, g.problem_id, p.source_id, p.prompt, p.gold,
    g.greedy, g.sample_index, g.text, g.n_tokens, g.finish_reason, g.logp_sum_raw,
    g.answer, g.mode, g.reward, g.correct, g.state, g.reason,
    coalesce(a.verifier, p.verifier) AS verifier, a.settings_id
FROM graded_samples AS g
JOIN current_audits AS a USING (series)
JOIN problems AS p USING (problem_id)
WHERE g.series = $series AND g.step = $step AND g.problem_id IN (SELECT unnest($problem_ids::VARCHAR[]))
  AND g.sample_index >= $first_index AND g.sample_index < $end_index
ORDER BY list_position($problem_ids::VARCHAR[], g.problem_id), g.greedy DESC, g.sample_index
"""


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """Samples of one step read at once.

    Of these problems, with indices from the first up to the end, exclusive.

    They have about ``PART_BYTES`` of text at most; ``n`` is their number, estimated for a part of a problem.
    """

    step: int
    problem_ids: tuple[str, ...]
    n: int
    first_index: int
    end_index: int


def parts(store: Store, series: str, *, part_bytes: int = PART_BYTES) -> list[SampleFile]:
    """Split all samples of ``series`` into parts, in step order and in the order of the problem file."""
    sizes = store.frame(_SIZES, series=series, column_bytes=_COLUMN_BYTES)
    made: list[SampleFile] = []
    for step, rows in sizes.groupby("step", sort=True):
        held: list[Any] = []
        n_bytes = 0
        for row in rows.itertuples():
            if held and n_bytes + row.n_bytes > part_bytes:
                made += _cut(int(step), held, math.ceil(n_bytes / part_bytes))
                held, n_bytes = [], 0
            held.append(row)
            n_bytes += row.n_bytes
        made += _cut(int(step), held, math.ceil(n_bytes / part_bytes))
    return made


def _cut(step: int, problems: Sequence[Any], wanted: int) -> list[SampleFile]:
    """Split these rows of ``_SIZES`` into at most ``wanted`` parts.

    More than one only for a single row.
    """
    end = max(problem.n_indices for problem in problems)
    n_cuts = min(end, wanted)
    edges = [end * cut // n_cuts for cut in range(n_cuts + 1)]
    n = sum(item.n for item in problems)
    ids = tuple(entry.problem_id for entry in problems)
    return [
        SampleFile(step=step, problem_ids=ids, n=n * last // end - n * first // end, first_index=first, end_index=last)
        for first, last in pairwise(edges)
    ]


def read_part(store: Store, series: str, part: SampleFile) -> pa.Table:
    """Return the graded samples of a part with the columns of ``SCHEMA``.

    By problem, greedy first, then by index.
    """
    frame = store.frame(
        _SAMPLES,
        series=series,
        step=part.step,
        problem_ids=list(part.problem_ids),
        first_index=part.first_index,
        end_index=part.end_index,
    )
    return pa.Table.from_pandas(frame, schema=SCHEMA, preserve_index=False)


def write_samples(
    store: Store,
    planned: Mapping[str, Sequence[SampleFile]],
    folder: Path,
    advance: Callable[[int], None],
    *,
    name: str | None = None,
) -> int:
    """Write ``folder``: ``data/SERIES/step_N.parquet`` for every step, and the card.

    Returns the number of samples.

    ``planned`` are the ``parts`` of every series; ``advance`` is called with the number of samples read. ``name`` is
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
