"""Related problems: by cluster, by group, by a field that the user names, and by nearly equal prompts."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.clusters import find_clusters, find_near_duplicates
from oversharp.diagnostics.tasks.files import load_problem_file


def _problems(path: Path, fields: list[dict[str, Any]]) -> tuple[Problem, ...]:
    lines = [json.dumps({"prompt": f"{i}?", "answer": str(i), **more}) for i, more in enumerate(fields)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_problem_file(path)


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
    clusters: Mapping[str, str] = find_clusters(problems, field)
    assert [clusters.get(problem.problem_id) for problem in problems] == named


def test_to_name_a_cluster_later_changes_no_problem(tmp_path: Path) -> None:
    before = _problems(tmp_path / "p.jsonl", [{}, {"page": 1}])
    after = _problems(tmp_path / "p.jsonl", [{"cluster": "p"}, {"page": 1, "cluster": "p"}])
    assert [one.problem_id for one in before] == [one.problem_id for one in after]


def test_an_unknown_field_is_told_with_what_there_is(tmp_path: Path) -> None:
    problems = _problems(tmp_path / "p.jsonl", FIELDS)
    with pytest.raises(ConfigError, match="--cluster pages: no problem has that field; did you mean: page"):
        find_clusters(problems, "pages")
    with pytest.raises(
        ConfigError, match="--cluster page: no problem has that field; the problems have no other fields"
    ):
        find_clusters(problems[-1:], "page")
    rules = _problems(tmp_path / "p.jsonl", [{"id": "q1", "rules": {"deep": 1}}])
    with pytest.raises(ConfigError, match="--cluster rules: its value is a dict at problem q1"):
        find_clusters(rules, "rules")


def test_clusters_of_one_problem_each_are_said_to_be_none(tmp_path: Path) -> None:
    notes: list[str] = []
    find_clusters(_problems(tmp_path / "p.jsonl", [{"page": i} for i in range(3)]), "page", note=notes.append)
    assert notes == ["no two problems share a page: all problems count as unrelated"]
    find_clusters(_problems(tmp_path / "p.jsonl", FIELDS), None, note=notes.append)
    assert len(notes) == 1


INSTRUCTION = "Solve the following problem step by step and put nothing but the final answer into a box at the end. "
WORDS = [f"{a}{b}" for a in ("ba", "ke", "li", "mo", "su", "ti", "vo") for b in ("ran", "sel", "tik", "dol", "gem")]
TEMPLATE = "{} packs {} crates with {} jars each, drops {} of them and sells the rest. How many jars are sold in all?"


def _prompt(rng: random.Random, n_words: int = 30) -> str:
    return " ".join(rng.choice(WORDS) + rng.choice(WORDS) for _ in range(n_words))


def _variants(rng: random.Random, n: int) -> list[str]:
    return [TEMPLATE.format(rng.choice(("Ann", "Bob", "Cleo")), *(rng.randint(2, 99) for _ in "abc")) for _ in range(n)]


def _flagged(prompts: list[str], tasks: list[str] | None = None) -> list[int]:
    return find_near_duplicates(prompts, tasks or ["t"] * len(prompts)).nonzero()[0].tolist()


def test_variants_of_a_template_and_questions_on_one_text_are_found() -> None:
    rng = random.Random(0)
    text = _prompt(rng, 60)
    others = [_prompt(rng) for _ in range(20)]
    related = [*_variants(rng, 3), f"{text} Who came first?", f"{text} And why did nobody stay?"]
    assert _flagged([*related, *others]) == [0, 1, 2, 3, 4]
    assert _flagged([*(INSTRUCTION + one for one in related), *(INSTRUCTION + one for one in others)]) == [
        0,
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize(
    "prompts",
    [
        [problem.prompt for problem in load_problems(None, "countdown", limit=100)],
        [f"What is {i} + {i + 3}?" for i in range(100)],
        _variants(random.Random(1), 100),
        [INSTRUCTION + _prompt(random.Random(seed)) for seed in range(100)],
        ["the same"] * 2,
        [],
    ],
    ids=["countdown", "sums", "one template", "one instruction", "two", "none"],
)
def test_sets_whose_form_alone_is_the_same_are_left_alone(prompts: list[str]) -> None:
    assert _flagged(prompts) == []


def test_each_task_is_compared_within_itself() -> None:
    rng = random.Random(2)
    others = [_prompt(rng) for _ in range(8)]
    twice = [*_variants(rng, 2), *others]
    assert _flagged(twice, ["a", "b", *"abababab"]) == []
    assert _flagged(twice, ["a", "a", *"abababab"]) == [0, 1]


@pytest.mark.slow
def test_ten_thousand_prompts_take_seconds() -> None:
    rng = random.Random(3)
    templates = [_prompt(rng, 60) for _ in range(200)]
    prompts = [f"{templates[i % 200]} {rng.randint(1, 99)}" for i in range(5000)]
    prompts += [(INSTRUCTION if rng.random() < 0.4 else "") + _prompt(rng, 60) for _ in range(5000)]
    start = time.perf_counter()
    assert _flagged(prompts) == list(range(5000))
    assert time.perf_counter() - start < 30  # of 1.5 s on one core
