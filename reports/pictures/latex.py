"""The numbers of a figure as a table for a paper."""

from __future__ import annotations

from oversharp.reports import numbers
from oversharp.reports.records import Figure

#: What LaTeX reads otherwise than as itself, and signs that its fonts may lack.
_SIGNS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\N{MINUS SIGN}": "$-$",
        "\N{EN DASH}": "--",
        "\N{NARROW NO-BREAK SPACE}": r"\,",
        "\N{NO-BREAK SPACE}": "~",
        "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
        "\N{GREEK SMALL LETTER LAMDA}": r"$\lambda$",
    }
)


def figure_latex(figure: Figure) -> str:
    """The table of ``figure`` as LaTeX (package booktabs), its columns of text flush left."""
    table = figure.table
    aligned = "".join("r" if column.numeric else "l" for column in table.columns)
    rows = [[cell.text for cell in row] for row in table.rows]
    brackets = any("[" in text for row in rows for text in row)
    told = f"Brackets: {numbers.NINETY_FIVE} intervals." if brackets and "Brackets" not in table.note else ""
    note = " ".join(filter(None, (table.note, told)))
    end = "" if figure.title.endswith("?") else "."
    lines = (
        f"% {_line(figure.title)}{end} Needs \\usepackage{{booktabs}}. {_line(note)}".rstrip(),
        f"\\begin{{tabular}}{{{aligned}}}",
        r"\toprule",
        _row([column.name for column in table.columns]),
        r"\midrule",
        *map(_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
    )
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    r"""A row; a cell that begins with a bracket would be read as the length after the row before it.

    >>> print(_row(["a_b", "[1, 2]"]))
    a\_b & {[}1, 2] \\
    """
    return " & ".join(_cell(text) for text in cells) + r" \\"


def _cell(text: str) -> str:
    told = _line(text).translate(_SIGNS)
    return f"{{[}}{told[1:]}" if told.startswith("[") else told


def _line(text: str) -> str:
    return " ".join(text.split())
