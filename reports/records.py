"""What a report says, before any HTML: frozen records that the sections fill and the template prints.

Numbers in figures stay numbers; numbers in tables and sentences are already formatted, with a sort key beside them.
Text that came from a model or a problem file is plain ``str`` everywhere: the template escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Names of CSS variables. ``c*`` tell series and scopes apart, ``q*`` are ordered (k, training progress).
Colour = Literal[
    "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8",
    "q1", "q2", "q3", "q4", "q5", "q6",
    "ink", "muted", "grid", "surface",
]  # fmt: skip
STEP_LABEL = "training step"
#: ``unclear``: the interval holds zero, but rests on too few problems to call that "no change".
Direction = Literal["rose", "fell", "unchanged", "unclear", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One table cell. ``sort`` is the number behind the text, None for plain text or an unknown number.

    ``href`` is a place within the page (``#…``).
    """

    text: str
    sort: float | None = None
    code: bool = False
    href: str = ""

    @classmethod
    def count(cls, number: float) -> Cell:
        """A whole number.

        >>> Cell.count(40.0)
        Cell(text='40', sort=40.0, code=False, href='')
        """
        return cls(text=str(int(number)), sort=float(number))


@dataclass(frozen=True, kw_only=True)
class Column:
    """One table column; numeric ones are set flush right."""

    name: str
    numeric: bool = True


def columns(*texts: str, numbers: Iterable[str] = ()) -> tuple[Column, ...]:
    """Columns of text, then columns of numbers.

    >>> [(column.name, column.numeric) for column in columns("series", numbers=("k", "change"))]
    [('series', False), ('k', True), ('change', True)]
    """
    return (*(Column(name=name, numeric=False) for name in texts), *(Column(name=name) for name in numbers))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of formatted cells; ``folded`` hides it behind its title until asked for.

    ``states``, where given, are one text per row: words, parted by spaces, that the reader may filter the rows by;
    ``search`` what else of a row the filter looks through, whole prompts of which a cell shows a line.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False
    narrow: bool = False  # may stand beside a figure
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
    """One line (or cloud of points) of a panel; ``style`` picks marker and dashes, so colour is never alone.

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
    """A place on the x axis that a panel points out, with the bounds of its interval where it has them."""

    label: str
    x: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture of a figure."""

    title: str
    lines: tuple[Line, ...]
    description: str = ""  # what a reader who cannot see it needs
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeatMap(Panel):
    """A symmetric matrix of values from −1 to 1. Rows belong to groups, named in order; ``marked`` rows get a mark."""

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
    """Changes in points, None where unknown. ``columns`` and ``rows`` name them from left and from top.

    ``sure`` cells get a mark; ``scale`` is what the darkest shade stands for; ``outlined`` is the row to point out.
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
    """One named point of a plane."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Plane(Panel):
    """pass@1 across, pass@k up, both in probability: runs as paths from their base, beside what sharpens the base.

    ``names`` are those of the points of ``lines``, empty for a point without one. Where ``curve`` is given, the first
    line are the points that it runs through, ``band`` is the outline of what it may be, and ``greedy`` its far end.
    ``hotter`` are pairs of a point of a path and what the same weights give at a higher temperature, with the colour of
    the path; ``ringed`` points are pointed out.
    """

    names: tuple[tuple[str, ...], ...]
    curve: tuple[tuple[float, float], ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    greedy: Spot | None = None
    hotter: tuple[tuple[Spot, Spot, Colour], ...] = ()
    ringed: tuple[Spot, ...] = ()

    def __post_init__(self) -> None:
        if [len(line.x) for line in self.lines] != [len(names) for names in self.names]:
            raise ValueError(f"plane {self.title!r}: as many names as points are needed on every line")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: one SVG per panel, so that panels stack on a phone; they share the y axis, planes its length."""

    figure_id: str
    title: str
    caption: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    table: Table
    kind: Literal["line", "scatter"] = "line"
    log_x: bool = False
    log_y: bool = False  # only where every value is above 0
    x_ticks: tuple[float, ...] = ()  # always within the axis, and the only candidates for its ticks
    y_range: tuple[float, float] | None = None
    zero_line: bool = False
    diagonal: bool = False
    notes: tuple[str, ...] = ()
    finding: str = ""  # what it shows, in a sentence: stands under the picture where that is a file of its own

    @property
    def legend(self) -> tuple[Line, ...]:
        """The first line of every label, in order of appearance; empty where panel titles say the same."""
        if self.panels and all([line.label for line in panel.lines] == [panel.title] for panel in self.panels):
            return ()
        first: dict[str, Line] = {}
        for panel in self.panels:
            for line in panel.lines:
                first.setdefault(line.label, line)
        return tuple(first.values()) if len(first) > 1 or len(self.panels) < 2 else ()


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A measure with one value everywhere: a sentence says it better than a flat line. ``text`` is that sentence."""

    title: str
    text: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A measure without data: it stays in the report in a line, with the reason and, where it is known, the mend.

    ``label`` is empty for what is no measure, such as records that an import left out.
    """

    title: str
    why: tuple[str, ...]
    how: str = ""
    label: str = "not measured"


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response shown to the reader: whole, or with ``tail`` its beginning and its end.

    ``n_characters`` is its length before the cut; ``answer`` what the grader took from it, None where nobody told.
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
    """Responses of one checkpoint to one problem, beside those of another."""

    title: str
    responses: tuple[Response, ...]


@dataclass(frozen=True, kw_only=True)
class Course:
    """Success of one problem at the checkpoints of one series, as a picture the size of a word."""

    colour: Colour
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemCase:
    """A problem to be read: its course, its modes, and what base and last checkpoint say, side by side.

    ``name`` is the id that its owner gave it, or else ours.
    """

    case_id: str
    problem_id: str
    name: str
    title: str
    prompt: str
    gold: str
    summary: str
    courses: tuple[Course, ...]
    tables: tuple[Table, ...]
    sides: tuple[Side, ...]


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Problems to be read, with responses side by side."""

    title: str
    note: str
    cases: tuple[ProblemCase, ...]


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Tables that mean little without each other."""

    title: str
    note: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Commands, templates: text to be copied as it is."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file inside the report: ``packed`` is base64 of its gzip, a tenth of the text; see ``downloads.packed``."""

    title: str
    file_name: str  # ends in .gz
    packed: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A file beside the report; ``href`` is relative to it."""

    title: str
    href: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Blocks for who wants more, hidden behind a title and a ``summary`` that names what is inside."""

    title: str
    summary: str
    blocks: tuple[Block, ...]


Block = Figure | Constant | Table | SideBySide | Missing | Cases | Listing | Download | Link | Folded


@dataclass(frozen=True, kw_only=True)
class Section:
    """``lead`` is what was found, in plain sentences made from the data; ``sources`` is the key to its citations."""

    section_id: str
    title: str
    lead: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    sources: tuple[str, ...] = ()
    short: str = ""  # what the bar calls it, where that is not its title


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One number of the headline, base to last; ``direction`` follows the interval, never the point estimate."""

    title: str
    value: str
    change: str
    direction: Direction


@dataclass(frozen=True, kw_only=True)
class VerdictText:
    """The verdict on one series in words. ``title`` and ``mark`` say all that the colour of ``tone`` says."""

    title: str
    mark: str
    tone: Literal["loss", "held", "open"]
    sentence: str
    sharpening: str = ""  # whether the run is better than its base drawn sharper
    scope: tuple[str, ...] = ()  # how far it reaches: range of k, seed, graders, problems
    caveats: tuple[str, ...] = ()
    overturn: str = ""  # what would change this verdict
    ship: str = ""  # which checkpoint to ship, and what is sure of it
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """What happened to one series. ``reading`` is what the last checkpoint shows, each k by itself.

    A page that is no audit's has cards without a verdict: then the reading leads.
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
    """The top of the report: one card per series, one figure, and the limits of both."""

    definition: str  # of over-sharpening, before any number
    cards: tuple[Card, ...]
    limits: tuple[str, ...]
    figure: Figure | Missing


class Advice(NamedTuple):
    """What to ship of series that were compared, and why: what is sure and what is not."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The first screen. ``chosen`` marks the rows that are advised; ``reading``, how to read all of it, is folded."""

    title: str
    advice: tuple[Advice, ...]
    table: Table
    table_first: bool  # of several series
    chosen: tuple[bool, ...]
    sentences: tuple[str, ...]
    reading: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report. With a ``decision``, that comes first, and ``sections`` are folded behind ``brief``."""

    title: str
    subtitle: str
    headline: Headline
    sections: tuple[Section, ...] = ()
    decision: Decision | None = None
    brief: tuple[Section, ...] = ()
