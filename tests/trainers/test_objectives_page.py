from __future__ import annotations

import re

from oversharp.trainers import objectives
from oversharp.trainers.objectives import page


def test_the_committed_page_is_up_to_date() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), (
        "docs/objectives.md is out of date; run: python -m oversharp.trainers.objectives.page"
    )


def test_the_page_has_every_part_once_with_every_setting_and_no_example() -> None:
    text = page.page()
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL))
    assert sorted(re.findall(r"^### `(\w+)`$", text, flags=re.MULTILINE)) == list(objectives.names())
    for entry in objectives.entries():
        section = sections[entry.name]
        assert "Source" in section
        if entry.kind == "preset":
            assert f"`{entry.settings}`" in section
        elif entry.settings:
            for setting in entry.settings.split(","):
                assert f"| `{setting.partition('=')[0]}` |" in section
    assert ">>>" not in text


def test_every_kind_of_part_has_its_heading_in_the_order_of_a_step() -> None:
    headings = re.findall(r"^## (.+)$", page.page(), flags=re.MULTILINE)
    assert headings == list(page.HEADINGS.values())
