"""Records of a report's content: sections fill them, the template renders them.

Figures hold numbers. Tables and sentences hold formatted text, with a sort key per cell. Text from models and problem
files is plain ``str``; the template escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Names of CSS variables. ``c*`` are categorical (series, scopes), ``q*`` are ordered (k, training progress).
Colour = Literal[
    "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8",
    "q1", "q2", "q3", "q4", "q5", "q6",
    "ink", "muted", "grid", "surface",
]  # fmt: skip
STEP_LABEL = "training step"
#: ``unclear``: the CI contains zero, but covers too few problems to report "no change".
Direction = Literal["rose", "fell", "unchanged", "unclear", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Table cell. ``sort`` is the number behind the text, None if there is none. ``href`` is an anchor on the page."""

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


#: Cell of an unknown or inapplicable value.
DASH = Cell(text="–")


@dataclass(frozen=True, kw_only=True)
class Column:
    """Table column; numeric ones are right-aligned."""

    name: str
    numeric: bool = True


def columns(*texts: str, numbers: Iterable[str] = ()) -> tuple[Column, ...]:
    """Return text columns, then numeric columns.

    >>> [(column.name, column.numeric) for column in columns("series", numbers=("k", "change"))]
    [('series', False), ('k', True), ('change', True)]
    """
    return (*(Column(name=name, numeric=False) for name in texts), *(Column(name=name) for name in numbers))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table of formatted cells; ``folded`` hides it behind its title.

    ``states`` is empty or has one text per row: words, separated by spaces, that readers can filter by. ``search`` has
    additional searchable text per row, such as the whole prompt.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False
    narrow: bool = False  # fits next to a figure
    states: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.states and len(self.states) != len(self.rows):
            raise ValueError(f"table {self.title!r}: {len(self.rows)} rows but {len(self.states)} states")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: {len(self.columns)} columns but a row of {len(row)} cells")


@dataclass(frozen=True, kw_only=True)
class Line:
    """Line or point cloud of a panel; ``style`` selects marker and dashes, so that colour is never the only cue.

    ``low``/``high`` are empty or as long as ``x``. ``sizes`` (scatter only) are numbers of problems per point.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: Colour
    style: int
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    sizes: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Marked position on the x axis, with the bounds of its interval if it has one."""

    label: str
    x: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot of a figure."""

    title: str
    lines: tuple[Line, ...]
    description: str = ""  # alternative text
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMap(Panel):
    """Symmetric matrix of values from −1 to 1. Rows belong to named groups; ``marked`` rows get a mark."""

    cells: tuple[tuple[float, ...], ...]
    groups: tuple[tuple[str, int], ...]  # name and number of rows
    marked: tuple[bool, ...]

    def __post_init__(self) -> None:
        n_rows = len(self.cells)
        counts = (len(self.marked), sum(count for _, count in self.groups), *map(len, self.cells))
        if not n_rows or any(count != n_rows for count in counts):
            raise ValueError(f"heat map {self.title!r}: {n_rows} rows, but marks, groups or columns differ: {counts}")


@dataclass(frozen=True, kw_only=True)
class ChangeMap(Panel):
    """Changes in percentage points, None if unknown. ``columns`` and ``rows`` are labels from left and from top.

    ``sure`` cells (significant changes) get a mark; ``scale`` is the value of the darkest shade; ``outlined`` is the
    row to highlight.
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
class Spot:
    """Named point of a plane."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Plane(Panel):
    """Plot of pass@k (y) against pass@1 (x), both probabilities: runs as paths, and the base at lower temperatures.

    ``names`` are the labels of the points of ``lines``, empty for a point without one. If ``curve`` is given, the
    first line has the points that it passes through, ``band`` outlines its CI, and ``greedy`` is its end. ``higher_t``
    has pairs of a point on a path and the same weights at a higher temperature, with the colour of the path.
    ``ringed`` points are highlighted.
    """

    names: tuple[tuple[str, ...], ...]
    curve: tuple[tuple[float, float], ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    greedy: Spot | None = None
    higher_t: tuple[tuple[Spot, Spot, Colour], ...] = ()
    ringed: tuple[Spot, ...] = ()

    def __post_init__(self) -> None:
        if [len(line.x) for line in self.lines] != [len(names) for names in self.names]:
            raise ValueError(f"plane {self.title!r}: every line needs one name per point")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Figure with one SVG per panel. Panels share the y axis; planes share only its length."""

    figure_id: str
    title: str
    caption: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    table: Table
    kind: Literal["line", "scatter"] = "line"
    log_x: bool = False
    log_y: bool = False  # requires values above 0
    x_ticks: tuple[float, ...] = ()  # always within the axis, and the only candidates for its ticks
    y_range: tuple[float, float] | None = None
    zero_line: bool = False
    diagonal: bool = False
    notes: tuple[str, ...] = ()
    finding: str = ""  # result in one sentence, printed below the plot in exported files

    @property
    def legend(self) -> tuple[Line, ...]:
        """The first line of every label, in order of appearance; empty if the panel titles already name the lines."""
        if self.panels and all([line.label for line in panel.lines] == [panel.title] for panel in self.panels):
            return ()
        first: dict[str, Line] = {}
        for panel in self.panels:
            for line in panel.lines:
                first.setdefault(line.label, line)
        return tuple(first.values()) if len(first) > 1 or len(self.panels) < 2 else ()


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Measure with the same value everywhere, shown as the sentence ``text`` instead of a flat line."""

    title: str
    text: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Measure without data, shown as one line with the reason and, if known, a hint on how to measure it.

    ``label`` is empty for entries that are not measures, such as skipped records of an import.
    """

    title: str
    why: tuple[str, ...]
    how: str = ""
    label: str = "not measured"


@dataclass(frozen=True, kw_only=True)
class Response:
    """Response shown in full, or its beginning ``text`` and end ``tail``.

    ``n_characters`` is the full length; ``answer`` is the extracted answer, None if unknown.
    """

    text: str
    n_characters: int
    correct: bool
    count: int
    note: str = ""
    tail: str = ""
    answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Side:
    """Responses of one checkpoint to one problem."""

    title: str
    responses: tuple[Response, ...]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Success rate of one problem over the checkpoints of one series, drawn as a sparkline."""

    colour: Colour
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemCase:
    """Problem with its trajectory, its answers, and responses of base and last checkpoint side by side.

    ``name`` is the id from the problem file, or else ours.
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
    """Problems with responses side by side."""

    title: str
    note: str
    cases: tuple[ProblemCase, ...]


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Tables that belong together."""

    title: str
    note: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Text to copy, such as commands and templates."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Download:
    """File embedded in the report; ``packed`` is base64 of its gzip, see ``downloads.packed``."""

    title: str
    file_name: str  # ends in .gz
    packed: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """Link to a file; ``href`` is relative to the report."""

    title: str
    href: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Folded blocks behind a title and a ``summary`` of their content."""

    title: str
    summary: str
    blocks: tuple[Block, ...]


Block = Figure | Constant | Table | SideBySide | Missing | Cases | Listing | Download | Link | Folded


@dataclass(frozen=True, kw_only=True)
class Section:
    """Section of the report. ``lead`` has the results in sentences; ``sources`` are its references."""

    section_id: str
    title: str
    lead: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    sources: tuple[str, ...] = ()
    short: str = ""  # title in the navigation bar, if different


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One number of the headline, base to last; ``direction`` depends on the CI, not on the point estimate."""

    title: str
    value: str
    change: str
    direction: Direction


@dataclass(frozen=True, kw_only=True)
class VerdictText:
    """Verdict on one series. ``title`` and ``mark`` carry all the information of the colour ``tone``."""

    title: str
    mark: str
    tone: Literal["loss", "held", "open"]
    sentence: str
    sharpening: str = ""  # comparison of the run with its base at lower temperatures
    scope: tuple[str, ...] = ()  # range of k, seed, graders, problems
    caveats: tuple[str, ...] = ()
    overturn: str = ""  # what would change this verdict
    ship: str = ""  # which checkpoint to ship, with its CI
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """Result of one series. ``reading`` summarizes the last checkpoint, each k separately.

    Pages that are not audits have cards without a verdict, headed by ``reading``.
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
    """Headline of the report: one card per series, one figure, and their limits."""

    definition: str  # of over-sharpening, before any number
    cards: tuple[Card, ...]
    limits: tuple[str, ...]
    figure: Figure | Missing


class Advice(NamedTuple):
    """Which checkpoint to ship, and why."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """First screen. ``chosen`` marks the recommended rows; ``reading`` is the folded explanation."""

    title: str
    advice: tuple[Advice, ...]
    table: Table
    table_first: bool  # for several series
    chosen: tuple[bool, ...]
    sentences: tuple[str, ...]
    reading: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Whole report. A ``decision`` comes first; then ``sections`` are folded after ``brief``."""

    title: str
    subtitle: str
    headline: Headline
    sections: tuple[Section, ...] = ()
    decision: Decision | None = None
    brief: tuple[Section, ...] = ()
