"""A store for reading in notebooks: what the commands say, as records, frames and pictures. It cannot write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import LostProblems
    from oversharp.diagnostics.records.types import PictureFormat
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.verdict.recommendation import Recommendation
    from oversharp.diagnostics.verdict.record import Verdict
    from oversharp.reports.records import Figure

_SAMPLES = """
SELECT * EXCLUDE (series, checkpoint_id)
FROM graded_samples
WHERE series = $series
  AND ($step IS NULL OR step = $step)
  AND ($problem IS NULL OR problem_id IN (
      SELECT problem_id FROM problems WHERE source_id = $problem OR problem_id = $problem))
ORDER BY is_base DESC, step, problem_id, greedy DESC, sample_index
"""
_PROBLEMS = """
SELECT problem_id, prompt, gold, task, difficulty
FROM problems
WHERE problem_id IN (SELECT problem_id FROM audit_problems JOIN current_audits USING (audit_id) WHERE series = $series)
"""
_KNOWN = """
SELECT problem_id
FROM problems
JOIN audit_problems USING (problem_id)
JOIN current_audits USING (audit_id)
WHERE series = $series AND $problem IN (source_id, problem_id)
"""
#: Height of a report that is shown in a notebook.
_FRAME_PIXELS = 720


@dataclass(frozen=True, kw_only=True)
class ReportPicture:
    """A picture of the report. In a notebook it shows itself."""

    name: str
    figure: Figure

    __repr__ = short_repr

    def save(self, path: Path | str) -> Path:
        """Write it as SVG, PNG or PDF, as ``path`` ends, or its numbers as LaTeX (.tex).

        Raises ``ConfigError`` for another ending, and for a place that cannot be written to.
        """
        from oversharp.reports.pictures.latex import figure_latex

        target = Path(path)
        if target.suffix == ".tex":
            content = figure_latex(self.figure).encode("utf-8")
        else:
            content = self._drawn(target.suffix.removeprefix("."), target)
        try:
            target.write_bytes(content)
        except OSError as error:
            raise ConfigError(f"{target}: cannot be written ({error.strerror or error}); name another place") from error
        return target

    def _repr_svg_(self) -> str:
        return self._drawn("svg", None).decode("utf-8")

    def _drawn(self, form: str, target: Path | None) -> bytes:
        from oversharp.diagnostics.records.types import PICTURE_FORMATS
        from oversharp.reports.pictures.files import figure_pictures

        known: tuple[PictureFormat, ...] = tuple(one for one in PICTURE_FORMATS if one == form)
        if not known:
            raise ConfigError(f"{target}: pictures are written as {', '.join(PICTURE_FORMATS)} or tex; end it in one")
        (picture,) = figure_pictures(self.figure, known)
        return picture.files[known[0]]


@dataclass(frozen=True, kw_only=True)
class InlineReport:
    """A report that shows itself in a notebook."""

    html: str

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        from html import escape

        return (
            f'<iframe title="Over-sharpening report" srcdoc="{escape(self.html)}" '
            f'style="width:100%;height:{_FRAME_PIXELS}px;border:1px solid #8888"></iframe>'
        )


class OpenStore:
    """A store, open for reading: a context manager, ``with oversharp.open_store(path) as store: …``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def path(self) -> Path:
        """Where the DuckDB file lies."""
        return self._store.path

    @property
    def notes(self) -> tuple[str, ...]:
        """What was amiss with the store when it was opened, a line each."""
        return self._store.notes

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the audited series."""
        rows = self._store.frame("SELECT series FROM current_audits ORDER BY series")
        return tuple(str(name) for name in rows["series"])

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OpenStore({str(self.path)!r}): {', '.join(self.series) or 'no audit'}"

    def frame(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """The result of one query with ``$name`` parameters. Raises ``StoreError`` where the statement is wrong."""
        return self._store.frame(sql, **parameters)

    def parts(self, sql: str, **parameters: Any) -> Iterator[pd.DataFrame]:
        """The same result some rows after the other, so that it may be larger than memory."""
        return self._store.parts(sql, **parameters)

    def columns(self) -> pd.DataFrame:
        """Every public table and view with its columns and types."""
        return self._store.columns()

    @checked_arguments
    def verdict(self, series: str | None = None) -> Verdict | None:
        """The verdict on a series; None if its audit did not come to one yet. Raises ``StoreError`` if unknown."""
        return self._store.verdict(self._named(series))

    @checked_arguments
    def made_of(self, series: str | None = None) -> str | None:
        """What the change of pass@k to the last checkpoint is made of, in one sentence, at the largest k.

        None where no part, nor the whole, is surely other than 0. Raises ``StoreError`` if the series is unknown.
        """
        from oversharp.diagnostics.store.load import made_of

        return made_of(self._store, self._named(series))

    @checked_arguments
    def ship(self, series: str | None = None) -> Recommendation | None:
        """Which checkpoint to ship of comparable series, as ``oversharp.ship``, with those of ``series`` or all.

        None without a verdict. Raises ``ConfigError`` where no series is named, and they have several answers.
        """
        if series is not None or len(self.series) < 2:
            return self._store.ship(self._named(series))
        found = [self._store.ship(name) for name in self.series]
        answers = {None if one is None else (one.series, one.sentence) for one in found}
        if len(answers) > 1:
            names = ", ".join(self.series)
            raise ConfigError(f"{self.path} holds series that are not compared; pass --series with one of: {names}")
        steps = dict.fromkeys(step for one in found if one is not None for step in one.steps)
        return None if found[0] is None else replace(found[0], steps=tuple(steps))

    @checked_arguments
    def diff(self, first: int, second: int, *, series: str | None = None) -> StepDifference:
        """Two checkpoints compared, as ``oversharp.diff``."""
        from oversharp.diagnostics.changes.difference import difference

        return difference(self._store, self._named(series), first, second)

    @checked_arguments
    def lost(
        self, step: int | None = None, *, since: int | None = None, series: str | None = None, most: int = 20
    ) -> LostProblems:
        """Problems that a checkpoint lost, with the answers, as ``oversharp.lost``."""
        from oversharp.diagnostics.changes.lost import lost_problems

        return lost_problems(self._store, self._named(series), step=step, since=since, answers=True, most=most)

    @checked_arguments
    def problems(self, *, step: int | None = None, since: int | None = None, series: str | None = None) -> pd.DataFrame:
        """Every problem with its counts at ``since`` (default: the base) and at ``step`` (default: the last).

        Columns: ``problem`` (the id in the user's file, or the store's), ``title``, ``state`` (lost, fell, unchanged,
        rose, gained), ``sure`` (whether that is more than luck, over all problems together), ``correct_before``,
        ``n_before``, ``correct_after``, ``n_after``, ``p_adjusted``, ``prompt``, ``gold``, ``task``, ``difficulty``,
        ``problem_id``.
        """
        from dataclasses import asdict

        import pandas as pd

        from oversharp.diagnostics.changes.difference import changes_of
        from oversharp.diagnostics.changes.read import since_base

        name = self._named(series)
        changes = changes_of(since_base(self._store, name, step=step, since=since))
        frame = pd.DataFrame([{**asdict(one), "sure": one.sure} for one in changes])
        told = frame.merge(self._store.frame(_PROBLEMS, series=name), on="problem_id")
        first = ["problem", "title", "state", "sure"]
        return told[
            [*first, *(column for column in told.columns if column not in (*first, "problem_id")), "problem_id"]
        ]

    @checked_arguments
    def samples(
        self, *, step: int | None = None, problem: str | None = None, series: str | None = None
    ) -> pd.DataFrame:
        """Graded samples, the greedy ones included, with their texts, answers and grades: the view ``graded_samples``.

        ``problem`` is an id of the user's file or of the store. Millions of texts may not fit into memory: name a step.
        Raises ``ConfigError`` for a step without samples, with those that there are, and for a problem that is unknown.
        """
        name = self._named(series)
        found = self._store.frame(_SAMPLES, series=name, step=step, problem=problem)
        if found.empty:
            self._require_asked(name, step, problem)
        return found

    @checked_arguments
    def plot(self, name: str, *, series: str | None = None) -> ReportPicture:
        """A picture of the report by name: "frontier", "coverage-map", "pass-at-k", or any that ``export`` writes.

        Raises ``ConfigError`` for a name that no picture has, or that several have: name a series then.
        """
        from oversharp.diagnostics.app.plots import named, pictures_of

        every = pictures_of(self._store, None if series is None else (self._named(series),))
        found = named(every, name, flag="--name")
        if len(found) > 1:
            raise ConfigError(f"{name}: there are {', '.join(found)}; name one of them, or pass series=")
        return ReportPicture(name=found[0], figure=every[found[0]])

    @checked_arguments
    def report(self, *, series: str | None = None) -> InlineReport:
        """The brief report as something that a notebook shows. ``oversharp.report`` writes all of it to a file."""
        import tempfile

        from oversharp.reports import build_report

        chosen = None if series is None else (self._named(series),)
        with tempfile.TemporaryDirectory() as folder:
            path = build_report(self.path, Path(folder) / "report.html", series=chosen, brief=True)
            return InlineReport(html=path.read_text(encoding="utf-8"))

    def _require_asked(self, series: str, step: int | None, problem: str | None) -> None:
        """Raise ``ConfigError`` where ``series`` has no such step or problem: nothing was found of them."""
        from oversharp.diagnostics.changes.read import checkpoint_at, checkpoints_of

        if step is not None:
            checkpoint_at(checkpoints_of(self._store, series), "step", step)
        known = self._store.frame(_KNOWN, series=series, problem=problem)
        if problem is not None and known.empty:
            raise ConfigError(f"problem {problem}: the audit of {series} has no problem of this id")

    def _named(self, series: str | None) -> str:
        from oversharp.diagnostics.store.load import chosen_series

        return chosen_series(self._store, series)
