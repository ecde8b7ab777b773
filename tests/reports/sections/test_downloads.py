"""The findings that the report carries, and its way to the store."""

from __future__ import annotations

import base64
import gzip
import io

import pandas as pd

from oversharp.reports.context import Context
from oversharp.reports.records import Download, Link
from oversharp.reports.sections.downloads import findings_csv
from oversharp.reports.sections.method import method
from tests.reports.parts import blocks, with_source


def test_every_finding_is_a_line_with_whole_k_and_n_and_unknown_is_empty(context: Context) -> None:
    lines = findings_csv(context.source)
    assert ",pass_at_k,all,4,0.8,0.75,0.85,6,probability," in lines
    frame = pd.read_csv(io.StringIO(lines))
    assert len(frame) == len(context.source.findings)
    row = frame[(frame["series"] == "grpo") & (frame["measure"] == "pass_at_k") & (frame["k"] == 4)].iloc[-1]
    assert (row["step"], row["value"], row["n"]) == (30, 0.6, 6)
    unknown = frame[frame["measure"] == "token_entropy"].iloc[0]
    assert pd.isna(unknown["value"])
    assert unknown["why"] == "no sample was scored"


def test_the_method_offers_the_findings_and_links_the_store(context: Context) -> None:
    told = method(with_source(context, store_link="../a run/audit.duckdb"))
    (download,) = blocks(told, Download)
    assert download.file_name == "findings.csv.gz"
    packed = base64.b64decode(download.packed)
    assert packed[4:8] == bytes(4), "no clock: equal findings give equal bytes"
    assert gzip.decompress(packed).decode() == findings_csv(context.source)
    (link,) = blocks(told, Link)
    assert link.href == "../a%20run/audit.duckdb"
