"""LaTeX table with the numbers of a figure."""

from __future__ import annotations

from oversharp.reports import numbers
from oversharp.reports.records import Figure

#: Replacements of LaTeX's special characters, and of characters that its fonts may lack.
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
    """Return the table of ``figure`` as LaTeX for the package booktabs, with left-aligned text columns."""
    table = figure.table
    aligned = "".join("r" if column.numeric else "l" for column in table.columns)
    rows = [[cell.text for cell in row] for row in table.rows]
    brackets = any("[" in text for row in rows for text in row)
    brackets_note = f"Brackets: {numbers.NINETY_FIVE} CIs." if brackets and "Brackets" not in table.note else ""
    note = " ".join(filter(None, (table.note, brackets_note)))
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
    r"""Return a table row. A leading bracket is braced: LaTeX would parse it as the spacing of the previous row.

    >>> print(_row(["a_b", "[1, 2]"]))
    a\_b & {[}1, 2] \\
    """
    return " & ".join(_cell(text) for text in cells) + r" \\"


def _cell(text: str) -> str:
    escaped = _line(text).translate(_SIGNS)
    return f"{{[}}{escaped[1:]}" if escaped.startswith("[") else escaped


def _line(text: str) -> str:
    return " ".join(text.split())
