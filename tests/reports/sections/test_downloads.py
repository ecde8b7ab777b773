"""The findings that the report carries, and its way to the store."""

from __future__ import annotations

import base64
import gzip
import io
from dataclasses import replace

import pandas as pd

from reports.context import Context
from reports.records import Download, Link
from reports.sections.downloads import findings_csv, packed
from reports.sections.method import method


def test_every_finding_is_a_line_and_unknown_is_empty(context: Context) -> None:
    frame = pd.read_csv(io.StringIO(findings_csv(context.source)))
    assert len(frame) == len(context.source.findings)
    row = frame[(frame["series"] == "grpo") & (frame["measure"] == "pass_at_k") & (frame["k"] == 4)].iloc[-1]
    assert (row["step"], row["value"], row["n"]) == (30, 0.6, 6)
    unknown = frame[frame["measure"] == "token_entropy"].iloc[0]
    assert pd.isna(unknown["value"])
    assert unknown["why"] == "no sample was scored"


def test_k_and_n_are_whole_numbers(context: Context) -> None:
    line = next(line for line in findings_csv(context.source).splitlines() if ",pass_at_k,all,4," in line)
    assert ",all,4,0.8,0.75,0.85,6,probability," in line


def test_the_method_offers_the_findings_and_links_the_store(context: Context) -> None:
    source = replace(context.source, store_link="../a run/audit.duckdb")
    blocks = method(replace(context, source=source)).blocks
    (download,) = [block for block in blocks if isinstance(block, Download)]
    assert download.file_name == "findings.csv.gz"
    assert gzip.decompress(base64.b64decode(download.packed)).decode() == findings_csv(source)
    (link,) = [block for block in blocks if isinstance(block, Link)]
    assert link.href == "../a%20run/audit.duckdb"


def test_packing_has_no_clock() -> None:
    assert packed("a,b\n" * 1000) == packed("a,b\n" * 1000)
    assert len(packed("a,b\n" * 1000)) < 100
