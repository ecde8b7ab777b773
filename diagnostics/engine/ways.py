"""The stage "read ways": classify how correct responses solve their problems."""

from __future__ import annotations

import time
from collections import Counter

from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.ways import get_reader
from oversharp.diagnostics.ways.contract import MOST_SAMPLES, WaysReader
from oversharp.diagnostics.ways.joining import name_ways


def read_ways(store: Store, key: AuditKey, progress: ProgressSink, reader: WaysReader | None = None) -> None:
    """Classify the audit's new correct responses, each distinct text once.

    The ways of a problem are named again if it has a new response. An audit of more than ``MOST_SAMPLES`` samples is
    skipped with a note. Raises ``StoreError``.
    """
    planned = "SELECT coalesce(sum(n_planned), 0)::BIGINT AS n FROM planned_samples WHERE audit_id = $id"
    n_samples = int(store.frame(planned, id=key.audit_id)["n"].iloc[0])
    if n_samples > MOST_SAMPLES:
        progress.note(f"ways of solving are skipped: {n_samples:,} samples are more than {MOST_SAMPLES:,}")
        return
    reader = reader or get_reader()
    name = f"{reader.name} {reader.version}"
    start = time.perf_counter()
    store.ways.keep_only(name)
    unread = store.ways.find_unread(key.series, name)
    if unread:
        with progress.stage("read ways", len(unread)) as advance:
            for rows in store.ways.texts(unread):
                store.ways.add(name, rows, reader.read(rows["text"].tolist()))
                advance(len(rows))
    for problem_ids in store.ways.find_unjoined(name):
        _join_ways(store, reader, name, problem_ids)
    if unread:
        store.log_event(key, "read ways", wall_s=time.perf_counter() - start, rows=len(unread))


def _join_ways(store: Store, reader: WaysReader, name: str, problem_ids: list[str]) -> None:
    rows = store.ways.load_signatures(name, problem_ids)
    names: dict[int, str] = {}
    for _, own in rows.groupby("problem_id", sort=True):
        counts: Counter = Counter()
        for signature, n in zip(own["signature"], own["n"], strict=True):
            counts[signature] += int(n)
        named = name_ways(counts, joined_from=reader.joined_from)
        names |= {label: named[signature] for label, signature in own["signature"].items()}
    store.ways.join(name, rows, names)
