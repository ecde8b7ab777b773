"""Which problems are related: by their cluster, by their group, or by a field that the user names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.clusters import clusters_of
from oversharp.diagnostics.tasks.files import problems_of_file


def _problems(path: Path, fields: list[dict[str, Any]]) -> tuple[Problem, ...]:
    lines = [json.dumps({"prompt": f"{i}?", "answer": str(i), **more}) for i, more in enumerate(fields)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return problems_of_file(path)


FIELDS: list[dict[str, Any]] = [
    {"cluster": "p", "group": "g", "page": 1},
    {"cluster": "p", "page": 2},
    {"cluster": 7},
    {"group": "g", "page": 2},
    {},
]


@pytest.mark.parametrize(
    ("field", "named"),
    [
        (None, ["p", "p", "7", "g", None]),
        ("cluster", ["p", "p", "7", None, None]),
        ("group", ["g", None, None, "g", None]),
        ("page", ["1", "2", None, "2", None]),
        ("none", [None] * 5),
    ],
)
def test_the_cluster_is_the_named_field_else_the_cluster_else_the_group(
    tmp_path: Path, field: str | None, named: list[str | None]
) -> None:
    problems = _problems(tmp_path / "p.jsonl", FIELDS)
    clusters: Mapping[str, str] = clusters_of(problems, field)
    assert [clusters.get(problem.problem_id) for problem in problems] == named


def test_to_name_a_cluster_later_changes_no_problem(tmp_path: Path) -> None:
    before = _problems(tmp_path / "p.jsonl", [{}, {"page": 1}])
    after = _problems(tmp_path / "p.jsonl", [{"cluster": "p"}, {"page": 1, "cluster": "p"}])
    assert [one.problem_id for one in before] == [one.problem_id for one in after]


def test_an_unknown_field_is_told_with_what_there_is(tmp_path: Path) -> None:
    problems = _problems(tmp_path / "p.jsonl", FIELDS)
    with pytest.raises(ConfigError, match="--cluster pages: no problem has that field; did you mean: page"):
        clusters_of(problems, "pages")
    with pytest.raises(ConfigError, match="--cluster page: no problem has that field; they have no further fields"):
        clusters_of(problems[-1:], "page")
    rules = _problems(tmp_path / "p.jsonl", [{"id": "q1", "rules": {"deep": 1}}])
    with pytest.raises(ConfigError, match="--cluster rules: problem q1 holds a dict there"):
        clusters_of(rules, "rules")


def test_clusters_of_one_problem_each_are_said_to_be_none(tmp_path: Path) -> None:
    notes: list[str] = []
    clusters_of(_problems(tmp_path / "p.jsonl", [{"page": i} for i in range(3)]), "page", note=notes.append)
    assert notes == ["no two problems share a page: all count as unrelated, as if no cluster were named"]
    clusters_of(_problems(tmp_path / "p.jsonl", FIELDS), None, note=notes.append)
    assert len(notes) == 1
