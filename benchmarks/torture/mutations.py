"""Dumps of other tools with damaged files: what an import makes of them, by hypothesis.

Whatever was done to a file, an import says one line or reads it; of JSON Lines every line that is whole still comes in.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from benchmarks.torture.damage import DAMAGES
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.ingest.read import FileResult
from oversharp.diagnostics.records.errors import OversharpError

_DATA = Path(__file__).parents[2] / "tests" / "ingest" / "formats" / "data"
#: One folder, one tool.
DUMPS = {path.name: path for path in sorted(_DATA.iterdir()) if path.is_dir()}


def cut_lines(path: Path, rng: np.random.Generator) -> str:
    """Lines are gone, or stand there twice."""
    lines = path.read_bytes().splitlines(keepends=True)
    taken = rng.integers(0, max(1, len(lines)), size=int(rng.integers(0, len(lines) + 3)))
    path.write_bytes(b"".join(lines[place] for place in sorted(taken) if lines))
    return f"{len(taken)} of {len(lines)} lines"


def shuffle_lines(path: Path, rng: np.random.Generator) -> str:
    """Lines stand in another order."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[place] for place in rng.permutation(len(lines))))
    return f"{len(lines)} lines"


MUTATIONS = {**DAMAGES, cut_lines.__name__: cut_lines, shuffle_lines.__name__: shuffle_lines}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """What is done to the file at this place among those of the dump, with random choices from ``seed``."""

    file: int
    name: str
    seed: int


mutations = st.lists(
    st.builds(
        Mutation,
        file=st.integers(0, 7),
        name=st.sampled_from(sorted(MUTATIONS)),
        seed=st.integers(0, 2**32 - 1),
    ),
    min_size=1,
    max_size=3,
)


def mutated(dump: Path, folder: Path, chosen: Sequence[Mutation]) -> Path:
    """A copy of ``dump`` below ``folder`` with all of that done to it."""
    copy = folder / dump.name
    shutil.copytree(dump, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    for one in chosen:
        path = files[one.file % len(files)]
        if path.exists():
            MUTATIONS[one.name](path, np.random.default_rng(one.seed))
    return copy


def require_honest_import(dump: Path, copy: Path) -> None:
    """Raise ``AssertionError`` unless the damaged ``copy`` is read as far as it is whole, or refused in one line."""
    read = _read(copy)
    if isinstance(read, str):
        assert read, "refused without a word"
        assert "\n" not in read, read
        return
    whole = _read(dump)
    assert not isinstance(whole, str), whole
    for one in read:
        assert one.why is None or "\n" not in one.why, one.why
        if one.path.suffix == ".jsonl" and one.why is None:
            original = dump / one.path.relative_to(copy)
            of_whole = next(file for file in whole if file.path == original)
            least = _n_whole_lines(original, one.path) * of_whole.n_samples // _n_lines(original)
            assert one.n_samples + one.n_skipped >= least, f"{one.path.name}: {one.n_samples} of {least} samples"


def _read(folder: Path) -> list[FileResult] | str:
    config = ImportConfig()
    try:
        plan = plan_import([folder], config)
        return [one for of_series in preview(plan, config) for one in of_series.files]
    except OversharpError as error:
        return str(error)


def _n_lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def _n_whole_lines(original: Path, path: Path) -> int:
    """Different lines of the original that are whole."""
    there = Counter(path.read_bytes().split(b"\n"))
    return len({line for line in original.read_bytes().split(b"\n") if line and line in there})


def check(name: str, *, examples: int, seeded: int | None = None) -> None:
    """Look for mutations of one tool's dump that are not read honestly; the smallest that is found is raised."""
    dump = DUMPS[name]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=seeded is None,
    )
    @given(mutations)
    def holds(chosen: list[Mutation]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            require_honest_import(dump, mutated(dump, Path(scratch), chosen))

    (holds if seeded is None else seed(seeded)(holds))()


def main() -> None:
    """In a forked process: NAME EXAMPLES SEED."""
    name, examples, seeded = sys.argv[1:]
    check(name, examples=int(examples), seeded=int(seeded))
