"""Files inside the report: the findings as CSV, packed, so that a reader needs neither network nor oversharp."""

from __future__ import annotations

import base64
import gzip

from oversharp.diagnostics.records.cells import without_formulas
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import Download

_ORDER = ["measure", "scope", "k", "step"]
_DIGITS = 5  # of a finding; the store has all of them


def findings_csv(source: Source) -> str:
    """All findings of the shown series: a header, then one line for each, in the order of measure, scope, k and step.

    Neighbours are alike, which the packed file is smaller by.

    Columns: series, checkpoint, step, measure, scope, k, value, low, high, n, unit, why. Unknown is empty; before a
    text that a spreadsheet would take for a formula stands an apostrophe.
    """
    findings = source.findings.sort_values(_ORDER, kind="stable", na_position="first")
    frame = without_formulas(findings.astype({"k": "Int64", "n": "Int64"}))
    return frame.to_csv(index=False, float_format=f"%.{_DIGITS}g", lineterminator="\n")


def pack_text(text: str) -> str:
    """``text`` as base64 of its gzip. Equal texts give equal results: gzip's clock is stopped.

    >>> gzip.decompress(base64.b64decode(pack_text("a,b"))).decode()
    'a,b'
    """
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def findings_download(source: Source) -> Download:
    """The findings as a file for spreadsheets and ``pandas.read_csv``."""
    return Download(
        title="All findings",
        file_name="findings.csv.gz",
        packed=pack_text(findings_csv(source)),
        note="CSV (packed where the page runs no script), one line per measure, checkpoint, scope and k, with "
        f"intervals; {_DIGITS} digits. pandas and R read it as it is.",
    )
