"""Published tables of the papers [A], [B] and [C] as data, to compare with an audit.

Each table is a CSV file in long format: one row per value, with the columns ``COLUMNS``. The first two lines of a file
have paper, table and units. Numbers are as printed. Missing numbers are empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from oversharp.reports.citations import PAPERS

if TYPE_CHECKING:
    import pandas as pd

#: Columns of the CSV files. ``k`` is the k of pass@k and avg@k, ``plus_minus`` the number printed after ±, ``setting``
#: a variable other than the method, and ``why`` the reason for a missing ``value``.
COLUMNS = (
    "paper", "table", "model", "method", "setting", "benchmark", "metric", "k", "value", "plus_minus", "unit", "why",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedTable:
    """Published table: letter of its paper (see ``oversharp.reports.citations``), number and title."""

    paper: str
    number: int
    title: str

    @property
    def citation(self) -> str:
        """Title of the paper, its identifier, and number of the table.

        >>> TABLES[0].citation
        'When Sharpening Becomes Collapse, arXiv 2601.15609, Table 2'
        """
        return f"{PAPERS[self.paper]}, Table {self.number}"

    @property
    def file_name(self) -> str:
        """Name of the CSV file, which is next to this module."""
        return f"{self.paper.lower()}_table_{self.number}.csv"


TABLES = (
    PublishedTable(paper="A", number=2, title="AVG@8 of various methods across six benchmarks"),
    PublishedTable(paper="A", number=3, title="PASS@8 of various methods across six benchmarks"),
    PublishedTable(paper="A", number=4, title="Compatibility analysis using Qwen3-8B"),
    PublishedTable(paper="A", number=5, title="Sensitivity of IAC to the calibration strength α"),
    PublishedTable(paper="B", number=1, title="pass@k of Qwen2.5-Math-7B in and out of domain"),
    PublishedTable(paper="B", number=2, title="pass@k of Llama-3.2-3B-Instruct"),
    PublishedTable(paper="B", number=3, title="pass@k of Qwen2.5-Math-7B on MATH-500"),
    PublishedTable(paper="B", number=4, title="Entropy of answers (bits) and tokens across math benchmarks"),
    PublishedTable(paper="C", number=1, title="pass@k of base, GRPO and SELF on mathematical benchmarks"),
    PublishedTable(paper="C", number=4, title="pass@k of base, GRPO and SELF on ReasoningGym"),
    PublishedTable(paper="C", number=5, title="F1 of decoding strategies that filter solvable problems"),
)


def published_table(table: PublishedTable) -> pd.DataFrame:
    """Read one table, with rows in printed order.

    Missing texts are None. ``table`` and ``k`` are integers. ``value`` is in ``unit``: ``percent`` (0 to 100),
    ``bits``, or ``unstated`` if the paper gives no unit.

    >>> row = published_table(TABLES[0]).iloc[0]
    >>> row["model"], row["method"], row["benchmark"], float(row["value"])
    ('Qwen3-4B', 'GRPO', 'GSM8K', 93.72)
    """
    import pandas as pd

    types = {"table": "int64", "k": "Int64", "value": "Float64", "plus_minus": "Float64"}
    with files(__name__).joinpath(table.file_name).open(encoding="utf-8") as lines:
        rows = pd.read_csv(
            lines,
            comment="#",
            dtype={column: types.get(column, "string") for column in COLUMNS},
            keep_default_na=False,
            na_values=[""],
        )
    text = [column for column in COLUMNS if column not in types]
    rows[text] = rows[text].astype(object).where(rows[text].notna(), None)
    return rows


def published_tables() -> pd.DataFrame:
    """Read all tables and concatenate them. The columns are ``COLUMNS``.

    >>> rows = published_tables()
    >>> len(rows), sorted(set(rows["paper"]))
    (779, ['A', 'B', 'C'])
    """
    import pandas as pd

    return pd.concat([published_table(table) for table in TABLES], ignore_index=True)
