"""``python -m benchmarks.papers``: run all families and write the table, the record and the page."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from benchmarks.papers.claim import Effort, Family
from benchmarks.papers.families import FAMILIES
from benchmarks.papers.page import build_page, page_html
from benchmarks.papers.table import counts_text, markdown, records
from benchmarks.papers.verdicts import verdict
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.reports.numbers import decimal
from oversharp.reports.render import write_atomically

PAGE = Path("runs/papers.html")


def run_families(effort: Effort, *, workers: int) -> tuple[Family, ...]:
    """Run all families in order, each in one process. The result depends only on the effort."""
    if workers == 1:
        return tuple(family(effort) for family in FAMILIES)
    # spawn: torch's threads do not survive a fork
    with ProcessPoolExecutor(max_workers=workers, mp_context=get_context("spawn")) as pool:
        return tuple(job.result() for job in [pool.submit(family, effort) for family in FAMILIES])


def write_all(families: Sequence[Family], effort: Effort, *, out: Path, page: Path, wall_s: float) -> None:
    """Write ``papers.md`` and ``papers.json`` to ``out``, and the page to its path."""
    conditions = circumstances(["numpy", "scipy", "torch"])
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    foot = (
        f"\n{effort.seeds} seeds, {decimal(effort.instances, 0)} random instances, seed {effort.seed}. "
        f"{conditions['machine']}; {versions}; {wall_s:.0f} s. `make papers` writes this file.\n"
    )
    write_atomically(out / "papers.md", markdown(families) + foot)
    record = {"effort": asdict(effort), "wall_s": round(wall_s, 1), **conditions, "claims": records(families)}
    write_atomically(out / "papers.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_atomically(page, page_html(build_page(families, effort)))


def main() -> None:
    """Parse the flags, run, and print one line per claim."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    default = Effort()
    parser.add_argument("--seeds", type=int, default=default.seeds, help="runs of every toy world")
    parser.add_argument("--steps", type=int, default=default.steps, help="updates of every toy world")
    parser.add_argument("--instances", type=int, default=default.instances, help="random instances of closed forms")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where papers.md and papers.json go")
    parser.add_argument("--page", type=Path, default=PAGE, help="the HTML page with the figures")
    flags = parser.parse_args()
    effort = Effort(seeds=flags.seeds, steps=flags.steps, instances=flags.instances, seed=flags.seed)
    start = time.perf_counter()
    families = run_families(effort, workers=flags.workers)
    wall_s = time.perf_counter() - start
    write_all(families, effort, out=flags.out, page=flags.page, wall_s=wall_s)
    claims = [claim for family in families for claim in family.claims]
    for claim in claims:
        print(f"[{claim.paper}] {claim.place}: {claim.statement}: {verdict(claim.checks).text}")
    print(f"\n{len(claims)} claims: {counts_text(claims)}; {wall_s:.0f} s")
    print(f"{flags.out / 'papers.md'}\n{flags.out / 'papers.json'}\n{flags.page}")


if __name__ == "__main__":
    main()
