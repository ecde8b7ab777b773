"""Records of a report's content. The section builders create them, and the template renders them.

Figures contain numbers. Tables and sentences contain formatted text, and table cells also a sort key. Text from models
and problem files is plain ``str``, which the template escapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Names of the CSS variables of colours. ``c*`` are for categories (series, scopes), ``q*`` for ordered values (k).
Colour = Literal[
    "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8",
    "q1", "q2", "q3", "q4", "q5", "q6",
    "ink", "muted", "grid", "surface",
]  # fmt: skip
STEP_LABEL = "training step"
#: Direction of a change according to its CI. ``unclear``: the CI contains 0, but there are too few problems to report
#: "no change".
Direction = Literal["rose", "fell", "unchanged", "unclear", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Table cell. ``sort`` is the number to sort by, None if there is none. ``href`` links to an anchor on the page."""

    text: str
    sort: float | None = None
    code: bool = False
    href: str = ""

    @classmethod
    def count(cls, number: float) -> Cell:
        """Return a cell with an integer.

        >>> Cell.count(40.0)
        Cell(text='40', sort=40.0, code=False, href='')
        """
        return cls(text=str(int(number)), sort=float(number))


#: Cell for a value that is unknown or does not apply.
DASH = Cell(text="–")


@dataclass(frozen=True, kw_only=True)
class Column:
    """Table column. Numeric columns are right-aligned."""

    name: str
    numeric: bool = True


def columns(*texts: str, numbers: Iterable[str] = ()) -> tuple[Column, ...]:
    """Return text columns with these names, then numeric columns.

    >>> [(column.name, column.numeric) for column in columns("series", numbers=("k", "change"))]
    [('series', False), ('k', True), ('change', True)]
    """
    return (*(Column(name=name, numeric=False) for name in texts), *(Column(name=name) for name in numbers))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table of formatted cells. If ``folded``, only its title is visible at first.

    ``states`` is empty or has one text per row, with words that readers can filter by, separated by spaces. ``search``
    has additional searchable text per row, such as the whole prompt.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False
    narrow: bool = False  # whether it fits next to a figure
    states: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.states and len(self.states) != len(self.rows):
            raise ValueError(f"table {self.title!r}: {len(self.rows)} rows but {len(self.states)} states")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: {len(self.columns)} columns but a row of {len(row)} cells")


@dataclass(frozen=True, kw_only=True)
class Span:
    """Interval of values at one x, without a point, drawn as a dashed bar."""

    x: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """Line or point cloud of a panel. ``style`` selects marker and dashes, so that colour is not the only difference.

    ``low`` and ``high`` are the bounds of the CIs, empty or as long as ``x``. ``sizes`` are the numbers of problems of
    each point of a scatter plot. ``beyond`` is an interval right of the last point.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: Colour
    style: int
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    sizes: tuple[float, ...] = ()
    beyond: Span | None = None


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Marked position on the x axis, with the bounds of its CI if it has one."""

    label: str
    x: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot of a figure."""

    title: str
    lines: tuple[Line, ...]
    description: str = ""  # alternative text for screen readers
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMap(Panel):
    """Heat map of a symmetric matrix, −1 to 1, of rows in named groups. ``marked`` rows and columns get a mark."""

    cells: tuple[tuple[float, ...], ...]
    groups: tuple[tuple[str, int], ...]  # name and number of rows of each group
    marked: tuple[bool, ...]

    def __post_init__(self) -> None:
        n_rows = len(self.cells)
        counts = (len(self.marked), sum(count for _, count in self.groups), *map(len, self.cells))
        if not n_rows or any(count != n_rows for count in counts):
            raise ValueError(f"heat map {self.title!r}: {n_rows} rows, but marks, groups or columns differ: {counts}")


@dataclass(frozen=True, kw_only=True)
class ChangeMap(Panel):
    """Heat map of changes in percentage points, None if unknown.

    ``columns`` and ``rows`` are labels from left to right and from top to bottom. ``sure`` is whether a change is
    significant, which marks its cell. ``scale`` is the value of the darkest shade. ``outlined`` is the row to
    highlight.
    """

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    sure: tuple[tuple[bool, ...], ...]
    scale: float
    outlined: int | None = None

    def __post_init__(self) -> None:
        widths = {len(self.columns), *map(len, self.cells), *map(len, self.sure)}
        if not self.columns or len(widths) > 1 or {len(self.cells), len(self.sure)} != {len(self.rows)}:
            raise ValueError(f"change map {self.title!r}: {len(self.rows)} rows and widths {sorted(widths)}")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Figure with one SVG per panel. Panels have the same y axis. Planes have axes of the same length only."""

    figure_id: str
    title: str
    caption: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    table: Table
    kind: Literal["line", "scatter"] = "line"
    log_x: bool = False
    log_y: bool = False  # logarithmic y axis; requires values above 0
    x_ticks: tuple[float, ...] = ()  # candidates for the ticks of the x axis, which includes all of them
    y_range: tuple[float, float] | None = None
    zero_line: bool = False
    diagonal: bool = False
    notes: tuple[str, ...] = ()
    finding: str = ""  # result in one sentence, printed below the plot in exported files

    @property
    def legend(self) -> tuple[Line, ...]:
        """First line with each label, in order of appearance; empty if the panel titles already name the lines."""
        if self.panels and all([line.label for line in panel.lines] == [panel.title] for panel in self.panels):
            return ()
        first: dict[str, Line] = {}
        for panel in self.panels:
            for line in panel.lines:
                first.setdefault(line.label, line)
        return tuple(first.values()) if len(first) > 1 or len(self.panels) < 2 else ()


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Measure with the same value at all checkpoints, shown as the sentence ``text`` instead of a figure."""

    title: str
    text: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Measure without data, shown as one line: its reasons ``why``, and ``how`` to measure it if known.

    ``label`` is empty for other lines of this format, such as the skipped records of an import.
    """

    title: str
    why: tuple[str, ...]
    how: str = ""
    label: str = "not measured"


@dataclass(frozen=True, kw_only=True)
class Response:
    """Response of ``n_characters``, its beginning ``text``, its end ``tail``, and its ``answer`` (None if unknown)."""

    text: str
    n_characters: int
    correct: bool
    count: int
    note: str = ""
    tail: str = ""
    answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Side:
    """Responses of one checkpoint to one problem, one of two columns."""

    title: str
    responses: tuple[Response, ...]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Success rates of one problem at the checkpoints of one series, drawn as a sparkline."""

    colour: Colour
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemCase:
    """Problem with its success rates, its answers, and responses of base and last checkpoint side by side.

    ``name`` is the id from the problem file, or the id in the store if the file has none.
    """

    case_id: str
    problem_id: str
    name: str
    title: str
    prompt: str
    gold: str
    summary: str
    trajectories: tuple[Trajectory, ...]
    tables: tuple[Table, ...]
    sides: tuple[Side, ...]


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Block of problems with responses side by side."""

    title: str
    note: str
    cases: tuple[ProblemCase, ...]


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Tables that are shown side by side."""

    title: str
    note: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Text for readers to copy, such as commands and templates."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Download:
    """File that is embedded in the report. ``packed`` is base64 of its gzip (see ``downloads.pack_text``)."""

    title: str
    file_name: str  # name of the compressed file, which ends in .gz
    packed: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """Link to a file. ``href`` is relative to the report."""

    title: str
    href: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Blocks that are hidden at first behind a title and a ``summary`` of their content."""

    title: str
    summary: str
    blocks: tuple[Block, ...]


Block = Figure | Constant | Table | SideBySide | Missing | Cases | Listing | Download | Link | Folded


@dataclass(frozen=True, kw_only=True)
class Section:
    """Section of the report. ``lead`` has its results as sentences, ``sources`` its references."""

    section_id: str
    title: str
    lead: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    sources: tuple[str, ...] = ()
    short: str = ""  # shorter title for the navigation bar


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One number of a verdict card, at base and last checkpoint. ``direction`` of the change depends on its CI."""

    title: str
    value: str
    change: str
    direction: Direction


@dataclass(frozen=True, kw_only=True)
class VerdictText:
    """Verdict on one series. ``tone`` determines the colour, whose meaning ``title`` and ``mark`` repeat."""

    title: str
    mark: str
    tone: Literal["loss", "held", "open"]
    sentence: str
    sharpening: str = ""  # comparison of the run with its base at lower temperatures
    scope: tuple[str, ...] = ()  # range of k, seed, graders, problems
    caveats: tuple[str, ...] = ()
    overturn: str = ""  # results that would change this verdict
    ship: str = ""  # which checkpoint to ship, with the CI of its change
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """Result of one series. ``reading`` summarizes the last checkpoint, separately for each k.

    On pages that do not show an audit, cards have no verdict, and ``reading`` is their heading.
    """

    series: str
    subtitle: str
    reading: str
    direction: Direction
    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...]
    verdict: VerdictText | None = None


@dataclass(frozen=True, kw_only=True)
class Headline:
    """Headline of the report: one card per series, one figure, and the limits of the results."""

    definition: str  # definition of over-sharpening
    cards: tuple[Card, ...]
    limits: tuple[str, ...]
    figure: Figure | Missing


class Advice(NamedTuple):
    """Recommendation of a checkpoint to ship, with its reason."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """First screen. ``chosen`` is whether a row of the table is recommended. ``reading`` explains the table."""

    title: str
    advice: tuple[Advice, ...]
    table: Table
    table_first: bool  # whether the table is above the advice
    chosen: tuple[bool, ...]
    sentences: tuple[str, ...]
    reading: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Whole report. With a ``decision``, which comes first, ``sections`` are folded after the sections in ``brief``."""

    title: str
    subtitle: str
    headline: Headline
    sections: tuple[Section, ...] = ()
    decision: Decision | None = None
    brief: tuple[Section, ...] = ()
