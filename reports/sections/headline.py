"""What happened to each series, in one line, four numbers and one figure, and what none of it can tell."""

from __future__ import annotations

from collections.abc import Mapping

from reports import numbers
from reports.context import Context
from reports.plots import described, line_of, series_colour
from reports.records import Card, Cell, Column, Direction, Figure, Headline, Missing, Panel, Table, Tile
from reports.source import SeriesSource
from reports.tables import Display
from reports.wording import Change, bound, change_of_probability, known, value_at

_VERBS = {"rose": "rose:", "fell": "fell:", "unchanged": "no change detected:", "unknown": "moved:"}


def headline(context: Context) -> Headline:
    return Headline(
        cards=tuple(_card(context, series) for series in context.series),
        limits=_limits(context),
        figure=_figure(context),
    )


def _card(context: Context, series: SeriesSource) -> Card:
    ends = _ends(context, series)
    changes = {k: change for k in ends if (change := context.pass_change(series, k)) is not None}
    reading, direction = _reading(changes)
    return Card(
        series=series.name,
        subtitle=f"{numbers.plural(len(series.problem_ids), 'problem')}, "
        f"{numbers.plural(series.n, 'sample')} each, {numbers.plural(len(series.checkpoints), 'checkpoint')} "
        f"(step {series.base_step} to {series.last_step})",
        reading=reading,
        direction=direction,
        sentences=_sentences(context, series),
        tiles=(*(_pass_tile(k, change) for k, change in changes.items()), *_mode_tiles(context, series)),
    )


def _ends(context: Context, series: SeriesSource) -> tuple[int, ...]:
    """The k to speak of: the smallest, and the one of the largest fall; without a fall, the largest.

    A fall counts if its whole interval lies below the base. Values of k with a paired interval come first.
    """
    ks = context.inference_ks(series) or context.known_ks(series)
    if not ks:
        return ()
    changes = {k: change for k in ks if (change := context.pass_change(series, k)) is not None}
    falls = {k: change.delta for k, change in changes.items() if change.direction == "fell"}
    speaks_most = min(falls, key=falls.__getitem__) if falls else ks[-1]
    return tuple(sorted({ks[0], speaks_most}))


def _reading(changes: Mapping[int, Change]) -> tuple[str, Direction]:
    """The shortest honest summary, and the direction of coverage, the largest k.

    >>> rise = Change(before=0.3, after=0.5, delta=0.2, low=0.1, high=0.3)
    >>> fall = Change(before=0.9, after=0.8, delta=-0.1, low=-0.2, high=-0.05)
    >>> _reading({1: rise, 64: fall})
    ('pass@1 rose while pass@64 fell', 'fell')
    >>> _reading({})
    ('Nothing to compare with the base yet', 'unknown')
    """
    if not changes:
        return "Nothing to compare with the base yet", "unknown"
    names = {f"pass@{k}": change for k, change in changes.items()}
    directions = [change.direction for change in changes.values()]
    if len(names) == 2 and len(set(directions)) == 1 and directions[0] != "unknown":
        first, second = names
        if directions[0] == "unchanged":
            return f"no change detected in {first} or {second}", "unchanged"
        return f"{first} and {second} both {directions[0]}", directions[0]
    joint = " while " if set(directions) == {"rose", "fell"} else "; "
    return joint.join(_phrase(name, change) for name, change in names.items()), directions[-1]


def _phrase(name: str, change: Change) -> str:
    match change.direction:
        case "unchanged":
            return f"no change detected in {name}"
        case "unknown":
            return f"{name} moved by {numbers.points(change.delta)} points, without an interval"
        case verb:
            return f"{name} {verb}"


def _sentences(context: Context, series: SeriesSource) -> tuple[str, ...]:
    """What the tiles leave out: the range of k that fell, exact coverage, problems lost beside problems gained."""
    sentences = []
    changes = {k: context.pass_change(series, k) for k in context.inference_ks(series)}
    fallen = [str(k) for k, change in changes.items() if change is not None and change.direction == "fell"]
    if fallen:
        sentences.append(f"pass@k lies below the base for k = {numbers.listing(tuple(fallen))}.")
    ks = context.inference_ks(series, exact=True)
    if ks and (change := context.pass_change(series, ks[-1], exact=True)) is not None:
        sentences.append(change_of_probability(f"Free of sampling noise, exact pass@{ks[-1]}", change) + ".")
    lost, gained = (context.level(series, name, series.last_step) for name in ("queries_lost", "queries_gained"))
    if lost is not None and gained is not None:
        count = len(series.problem_ids)
        sentences.append(
            f"{round(lost * count)} of {numbers.plural(count, 'problem')} lost every correct sample, "
            f"{round(gained * count)} gained a first one."
        )
    return tuple(sentences)


def _pass_tile(k: int, change: Change) -> Tile:
    return Tile(
        title=f"pass@{k}",
        value=f"{numbers.fixed(change.before, 3)} → {numbers.fixed(change.after, 3)}",
        change=f"{_VERBS[change.direction]} {numbers.points(change.delta)} points, "
        f"{numbers.points_interval(change.low, change.high)}",
        direction=change.direction,
    )


def _mode_tiles(context: Context, series: SeriesSource) -> list[Tile]:
    tiles = []
    row = value_at(context.source.findings, "modes_fallen_10x", series.name, series.last_step)
    if row is not None:
        n = bound(row["n"])
        count = "" if n is None else f"of {numbers.plural(int(n), 'correct mode')}"
        tiles.append(
            Tile(
                title="modes that fell > 10×",
                value=numbers.percent(float(row["value"])),
                change=count,
                direction="unknown",
            )
        )
    before, after = (context.level(series, "effective_modes", s) for s in (series.base_step, series.last_step))
    if before is not None and after is not None and series.base_step != series.last_step:
        tiles.append(
            Tile(
                title="effective modes per problem",
                value=f"{numbers.number(before, 'modes')} → {numbers.number(after, 'modes')}",
                change=f"factor {numbers.fixed(after / before, 2)}" if before else "",
                direction="unknown",
            )
        )
    return tiles


def _limits(context: Context) -> tuple[str, ...]:
    source = context.source
    tasks = sorted({str(task) for task in source.problems["task"]})
    verifiers = sorted({str(name) for name in source.problems["verifier"]})
    ks = sorted({max(found) for series in context.series if (found := context.inference_ks(series))})
    limits = [
        "What another training seed would have done: each series is one training run.",
        f"What happens on other problems: these are {numbers.plural(len(source.problems), 'problem')} "
        f"of {numbers.listing(tuple(tasks))}.",
        f"Whether the grader is right: correct means what {numbers.listing(tuple(verifiers))} accepted.",
    ]
    if ks:
        limits.append(
            f"What happens beyond k = {numbers.listing(tuple(str(k) for k in ks))}: "
            "intervals end at half the number of samples."
        )
    limits.append(
        "Whether the run is over-sharpened in the strict sense: each interval stands alone, without correction for "
        "looking at several k and checkpoints. One interval in twenty misses its truth."
    )
    if len({series.settings_id for series in context.series}) > 1 or len({s.n for s in context.series}) > 1:
        limits.append(
            "Whether series differ through training alone: they were sampled under different settings "
            "(see Method and reproducibility)."
        )
    if len({series.problem_ids for series in context.series}) > 1:
        limits.append("How series compare on equal ground: they were audited on different problem sets.")
    return tuple(limits)


def _figure(context: Context) -> Figure | Missing:
    """Difference to base of the last checkpoint over k: sharpening left, coverage right."""
    title = "Change of pass@k from base to last checkpoint"
    display = Display(factor=100.0, unit="points", is_difference=True)
    rows = known(context.source.findings, "pass_at_k_delta")
    lines, body = [], []
    for i, series in enumerate(context.series):
        own = rows[(rows["series"] == series.name) & (rows["step"] == series.last_step)]
        if own.empty or series.base_step == series.last_step:
            continue
        lines.append(line_of(own, x="k", label=series.name, colour=series_colour(i), style=i, factor=100.0))
        body += [
            (Cell(text=series.name), Cell(text=str(int(k)), sort=float(k)), display.cell(value, low, high))
            for k, value, low, high in zip(own["k"], own["value"], own["low"], own["high"], strict=True)
        ]
    if not lines:
        return Missing(title=title, why=("the store holds no paired differences of pass@k to the base",))
    panel = described(Panel(title="", lines=tuple(lines)), title, display, "k")
    return Figure(
        figure_id="headline-delta",
        title=title,
        caption="Above zero: more problems solved within k tries than by the base. Below zero: fewer. "
        f"Band: {numbers.NINETY_FIVE} interval over problems, paired with the base.",
        x_label="k (samples per problem)",
        y_label="change of pass@k (points)",
        panels=(panel,),
        log_x=True,
        zero_line=True,
        table=Table(
            title="Change of pass@k: data",
            columns=(Column(name="series", numeric=False), Column(name="k"), Column(name="change (points)")),
            rows=tuple(body),
            folded=True,
        ),
    )
