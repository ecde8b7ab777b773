"""Read-only access to a store for notebooks: results as records, data frames and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.arguments import check_arguments
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
#: Height of a report in a notebook, in pixels.
_FRAME_PIXELS = 720


@dataclass(frozen=True, kw_only=True)
class ReportPicture:
    """A picture of the report. Notebooks display it."""

    name: str
    figure: Figure

    __repr__ = short_repr

    def save(self, path: Path | str) -> Path:
        """Write the picture to ``path``.

        Its suffix sets the format: SVG, PNG, PDF, or data as LaTeX (.tex).

        Raises ``ConfigError`` for another suffix, and for a path that cannot be written.
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
            raise ConfigError(f"{target}: cannot be written ({error.strerror or error}); pass another path") from error
        return target

    def _repr_svg_(self) -> str:
        return self._drawn("svg", None).decode("utf-8")

    def _drawn(self, form: str, target: Path | None) -> bytes:
        from oversharp.diagnostics.records.types import PICTURE_FORMATS
        from oversharp.reports.pictures.files import figure_pictures

        known: list[PictureFormat] = [known for known in PICTURE_FORMATS if known == form]
        if not known:
            raise ConfigError(f"{target}: the suffix must be one of {', '.join(PICTURE_FORMATS)} or tex")
        (picture,) = figure_pictures(self.figure, known)
        return picture.files[known[0]]


@dataclass(frozen=True, kw_only=True)
class InlineReport:
    """A report that notebooks display."""

    html: str

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        from html import escape

        return (
            f'<iframe title="Over-sharpening report" srcdoc="{escape(self.html)}" '
            f'style="width:100%;height:{_FRAME_PIXELS}px;border:1px solid #8888"></iframe>'
        )


class OpenStore:
    """A store that is open for reading.

    Use it as a context manager: ``with oversharp.open_store(path) as store: …``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def path(self) -> Path:
        """Path of the DuckDB file."""
        return self._store.path

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems found when the store was opened, one line each."""
        return self._store.notes

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the audited series."""
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
        """Return the result of a query with ``$name`` parameters.

        Raises ``StoreError`` if it is invalid.
        """
        return self._store.frame(sql, **parameters)

    def parts(self, sql: str, **parameters: Any) -> Iterator[pd.DataFrame]:
        """Yield the result of a query in parts, for results that are larger than memory."""
        return self._store.parts(sql, **parameters)

    def columns(self) -> pd.DataFrame:
        """Return all public tables and views with their columns and types."""
        return self._store.columns()

    @check_arguments
    def verdict(self, series: str | None = None) -> Verdict | None:
        """Return the verdict of a series. None before its audit is complete.

        Raises ``StoreError`` for an unknown series.
        """
        return self._store.verdict(self._named(series))

    @check_arguments
    def made_of(self, series: str | None = None) -> str | None:
        """Return one sentence with the causes of the change of pass@k from base to last checkpoint.

        It is about the largest k. None if neither the change nor a part of it is significant. Raises ``StoreError`` for
        an unknown series.
        """
        from oversharp.diagnostics.store.load import made_of

        return made_of(self._store, self._named(series))

    @check_arguments
    def ship(self, series: str | None = None) -> Recommendation | None:
        """Recommend a checkpoint, as ``oversharp.ship`` does.

        Considers the series that are comparable with ``series``, or all series. None without a verdict. Raises
        ``ConfigError`` if ``series`` is None and there are several recommendations.
        """
        if series is not None or len(self.series) < 2:
            return self._store.ship(self._named(series))
        recommendations = [self._store.ship(name) for name in self.series]
        known = [recommendation for recommendation in recommendations if recommendation is not None]
        answers = {(recommendation.series, recommendation.sentence) for recommendation in known}
        if len(answers) > 1 or 0 < len(known) < len(recommendations):
            names = ", ".join(self.series)
            raise ConfigError(f"{self.path} has series that are not comparable; pass --series with one of: {names}")
        steps = dict.fromkeys(step for recommendation in known for step in recommendation.steps)
        return replace(known[0], steps=tuple(steps)) if known else None

    @check_arguments
    def diff(self, first: int, second: int, *, series: str | None = None) -> StepDifference:
        """Compare two checkpoints, as ``oversharp.diff`` does."""
        from oversharp.diagnostics.changes.difference import difference

        return difference(self._store, self._named(series), first, second)

    @check_arguments
    def lost(
        self, step: int | None = None, *, since: int | None = None, series: str | None = None, most: int = 20
    ) -> LostProblems:
        """List the problems that a checkpoint lost, with their answers, as ``oversharp.lost`` does."""
        from oversharp.diagnostics.changes.lost import lost_problems

        return lost_problems(self._store, self._named(series), step=step, since=since, answers=True, most=most)

    @check_arguments
    def problems(self, *, step: int | None = None, since: int | None = None, series: str | None = None) -> pd.DataFrame:
        """Return every problem with its counts at two checkpoints.

        The checkpoints are ``since`` (default: the base) and ``step`` (default: the last). Columns: ``problem`` (id in
        the user's file, or the store's id), ``title``, ``state`` (lost, fell, unchanged, rose, gained), ``sure``
        (whether the change is significant after correction over all problems), ``correct_before``, ``n_before``,
        ``correct_after``, ``n_after``, ``p_adjusted``, ``prompt``, ``gold``, ``task``, ``difficulty``, ``problem_id``.
        """
        from dataclasses import asdict

        import pandas as pd

        from oversharp.diagnostics.changes.difference import changes_of
        from oversharp.diagnostics.changes.read import since_base

        name = self._named(series)
        changes = changes_of(since_base(self._store, name, step=step, since=since))
        frame = pd.DataFrame([{**asdict(change), "sure": change.sure} for change in changes])
        problems = frame.merge(self._store.frame(_PROBLEMS, series=name), on="problem_id")
        first = ["problem", "title", "state", "sure"]
        rest = [column for column in problems.columns if column not in (*first, "problem_id")]
        return problems[[*first, *rest, "problem_id"]]

    @check_arguments
    def samples(
        self, *, step: int | None = None, problem: str | None = None, series: str | None = None
    ) -> pd.DataFrame:
        """Return the graded samples with texts, answers and grades, including greedy responses.

        The columns are those of the view ``graded_samples``. ``problem`` is the id of a problem, from the user's
        file or from the store. Pass ``step`` if all texts do not fit into memory. Raises ``ConfigError`` for an unknown
        problem, and for a step without samples; the error lists the steps that have samples.
        """
        name = self._named(series)
        samples = self._store.frame(_SAMPLES, series=name, step=step, problem=problem)
        if samples.empty:
            self._require_step_and_problem(name, step, problem)
        return samples

    @check_arguments
    def plot(self, name: str, *, series: str | None = None) -> ReportPicture:
        """Return a plot of the report, such as "frontier", "coverage-map" or "pass-at-k".

        ``oversharp export`` lists all names. Raises ``ConfigError`` if the name is unknown, or matches
        several plots; in the second case, pass ``series``.
        """
        from oversharp.diagnostics.app.plots import find_pictures, report_pictures

        every = report_pictures(self._store, None if series is None else (self._named(series),))
        names = find_pictures(every, name, flag="--name")
        if len(names) > 1:
            raise ConfigError(f"{name}: there are {', '.join(names)}; pass one of them, or series=")
        return ReportPicture(name=names[0], figure=every[names[0]])

    @check_arguments
    def report(self, *, series: str | None = None) -> InlineReport:
        """Return the brief report for display in a notebook.

        ``oversharp.report`` writes the full report to a file.
        """
        import tempfile

        from oversharp.reports import build_report

        chosen = None if series is None else (self._named(series),)
        with tempfile.TemporaryDirectory() as folder:
            path = build_report(self.path, Path(folder) / "report.html", series=chosen, brief=True)
            return InlineReport(html=path.read_text(encoding="utf-8"))

    def _require_step_and_problem(self, series: str, step: int | None, problem: str | None) -> None:
        """Raise ``ConfigError`` if ``series`` has no such step or problem."""
        from oversharp.diagnostics.changes.read import checkpoint_at, checkpoints_of

        if step is not None:
            checkpoint_at(checkpoints_of(self._store, series), "step", step)
        known = self._store.frame(_KNOWN, series=series, problem=problem)
        if problem is not None and known.empty:
            raise ConfigError(f"problem {problem}: the audit of {series} has no problem of this id")

    def _named(self, series: str | None) -> str:
        from oversharp.diagnostics.store.load import choose_series

        return choose_series(self._store, series)
