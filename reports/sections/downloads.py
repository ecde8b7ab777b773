"""Embed the findings in the report as compressed CSV, for readers without network or oversharp."""

from __future__ import annotations

import base64
import gzip

from oversharp.diagnostics.records.cells import without_formulas
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import Download

_ORDER = ["measure", "scope", "k", "step"]
_DIGITS = 5  # significant digits of a value; the store has full precision


def findings_csv(source: Source) -> str:
    """Return the findings of the report's series as CSV.

    Columns: series, checkpoint, step, measure, scope, k, value, low, high, n, unit, why. NULL is an empty cell. Text
    that a spreadsheet would run as a formula starts with an apostrophe. Rows are sorted by measure, scope, k and step,
    because this order compresses well.
    """
    findings = source.findings.sort_values(_ORDER, kind="stable", na_position="first")
    frame = without_formulas(findings.astype({"k": "Int64", "n": "Int64"}))
    return frame.to_csv(index=False, float_format=f"%.{_DIGITS}g", lineterminator="\n")


def pack_text(text: str) -> str:
    """Return the gzipped ``text`` as base64. The gzip has no time stamp, so equal texts give equal results.

    >>> gzip.decompress(base64.b64decode(pack_text("a,b"))).decode()
    'a,b'
    """
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def findings_download(source: Source) -> Download:
    """Return the findings as a file for spreadsheets and ``pandas.read_csv``."""
    return Download(
        title="All findings",
        file_name="findings.csv.gz",
        packed=pack_text(findings_csv(source)),
        note="CSV (gzip if scripts are disabled): one line per measure, checkpoint, scope and k, with CIs; "
        f"{_DIGITS} digits. pandas and R read the gzip file directly.",
    )
