"""Write docs/reading.md: ``python -m oversharp.diagnostics.verifiers.reading.page``."""

from __future__ import annotations

from pathlib import Path

from oversharp.diagnostics.verifiers.reading.languages.announcements import ANNOUNCEMENTS
from oversharp.diagnostics.verifiers.reading.notation import NOTATION, TYPOGRAPHY, Rewrite
from oversharp.diagnostics.verifiers.reading.responses import THOUGHTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reading.md"

_HEAD = """# How answers are read: tables

Made by `python -m oversharp.diagnostics.verifiers.reading.page`. [Grading](grading.md) gives the order of the rules.

## Thoughts

Only text after the last closing delimiter states an answer. A closing delimiter without an opening one closes
thoughts that the prompt opened.

| known from | opening | closing |
|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown."""
    thoughts = "\n".join(f"| {name} | {_code(opening)} | {_code(closing)} |" for name, opening, closing in THOUGHTS)
    labels = "\n".join(
        f"| {row.language} | {', '.join(row.nouns)} | {_code(row.example[0])} | {_code(row.example[1])} |"
        for row in ANNOUNCEMENTS
    )
    return f"""{_HEAD}{thoughts}

## Labels

The answer is the line or displayed formula after the last label. Markdown around label and value is removed.

| language | nouns | a response | its answer |
|---|---|---|---|
{labels}

## Typography

These rules are applied to every gold and every stated answer before all other rules.

{_rules(TYPOGRAPHY)}

## Notation

These rules are applied before math-verify parses an answer.

{_rules(NOTATION)}
"""


def _rules(table: tuple[Rewrite, ...]) -> str:
    rows = "\n".join(f"| {rule.name} | {_code(rule.example[0])} | {_code(rule.example[1])} |" for rule in table)
    return f"| rule | written | read |\n|---|---|---|\n{rows}"


def _code(text: str) -> str:
    return f"`{text.strip()}`".replace("|", "\\|").replace("\n", " ⏎ ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
