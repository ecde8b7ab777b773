"""Dataset card of exported samples: metadata for ``datasets`` and the hub, text for readers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.views import meaning_of

#: Sources of the columns that ``graded_samples`` lacks.
RELATION = {
    "source_id": "problems",
    "prompt": "problems",
    "gold": "problems",
    "verifier": "problems",
    "settings_id": "settings",
}
#: The hub's size categories, by the first number that exceeds them.
_SIZE_NAMES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
_SETTINGS = """
SELECT a.series, s.*
FROM current_audits AS a
JOIN settings AS s USING (settings_id)
WHERE list_contains($series::VARCHAR[], a.series)
ORDER BY a.series
"""


def dataset_card(
    store: Store, series: Sequence[str], schema: pa.Schema, n_samples: int, *, name: str | None = None
) -> str:
    """Return the ``README.md`` for ``data/SERIES/*.parquet``, whose columns are those of ``schema``.

    ``name`` is the dataset's name on the hub, if it is made for one; else it is loaded from its folder.

    Source: the Hugging Face hub's guide to dataset cards, for the metadata fields. No licence is stated: only the
    owners of problems and models know theirs.
    """
    settings = store.frame(_SETTINGS, series=list(series)).convert_dtypes()
    columns = [
        f"| `{field.name}` | {field.type} | {meaning.unit} | {meaning.text} |"
        for field in schema
        if (meaning := meaning_of(RELATION.get(field.name, "graded_samples"), field.name))
    ]
    return "\n".join(
        [
            *_head(series, n_samples),
            "",
            "# Sampled responses, graded",
            "",
            f"{n_samples:,} responses of the checkpoints of {', '.join(series)}, drawn or imported by oversharp, with "
            "their grades. Problems and models keep their own licences.",
            "",
            "```python",
            "from datasets import load_dataset",
            "",
            _loading(name),
            "```",
            "",
            *_verdicts(store, series),
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


def _loading(name: str | None) -> str:
    """Return the code that loads it with ``datasets``.

    >>> _loading("me/samples")
    'samples = load_dataset("me/samples", split="samples")'
    """
    if name is None:
        return 'samples = load_dataset(".", split="samples")  # in the folder of this file'
    return f'samples = load_dataset({json.dumps(name)}, split="samples")'


def _head(series: Sequence[str], n_samples: int) -> list[str]:
    """Return YAML metadata with values as JSON, which is valid YAML.

    No name of a series can break it.
    """
    samples = {"config_name": "default", "data_files": [{"split": "samples", "path": "data/*/*.parquet"}]}
    fields = {
        "pretty_name": f"Graded responses of {', '.join(series)}",
        "task_categories": ["text-generation"],
        "tags": ["oversharp", "rlvr", "reasoning"],
        "size_categories": [next((name for most, name in _SIZE_NAMES if n_samples < most), "n>1B")],
        "configs": [samples],
    }
    return ["---", *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()), "---"]


def _verdicts(store: Store, series: Sequence[str]) -> list[str]:
    """Return the audit's sentence on each series; nothing for those without a verdict."""
    said = {name: store.verdict(name) for name in series}
    lines = [f"- {escape_controls(name)}: {item.sentence}" for name, item in said.items() if item is not None]
    return ["What oversharp says of them:", "", *lines, ""] if lines else []
