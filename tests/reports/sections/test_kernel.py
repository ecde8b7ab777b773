"""The section on coupling: kernels and the last step as pictures, one plain sentence, reasons where data is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.store import Store
from oversharp.reports.context import Context
from oversharp.reports.page import build_page, read_context
from oversharp.reports.records import Figure, Folded, Section, Table
from oversharp.reports.render import render_page
from oversharp.reports.sections.kernel import kernel
from oversharp.reports.sections.kernel_figures import MAX_ROWS
from tests.reports.parts import audit_key, block, blocks, texts

KEY = audit_key("grpo", kernel_problems=2, kernel_responses=4)
#: Two problems of a correct, a correct and a wrong response; the first two of each also drawn: one right, one wrong.
GRADIENT = np.array([(1.0, 0, 0), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1), (-1, 0, 2)])


def add_kernels(path: Path, steps: tuple[int, ...], *, roles: str = "panel own", per_problem: int = 3) -> None:
    """Kernels of the first two problems; log π changes from step to step by just what the own samples pull."""
    n_rows = 2 * per_problem
    gradient = np.resize(GRADIENT, (n_rows, 3)) + 0.001 * np.arange(n_rows)[:, None]
    kernel = gradient @ gradient.T
    with Store.open(path) as store:
        problem_ids = list(store.frame("SELECT problem_id FROM problems ORDER BY problem_id")["problem_id"])[:2]
        for number, step in enumerate(steps):
            checkpoint_id = f"grpo-{step}" if step else "base-0"
            pull = np.array([1.0, -1.0, 0] * (n_rows // 3)) if n_rows == 6 else np.zeros(n_rows)
            rows = pd.DataFrame(
                {
                    "position": range(n_rows),
                    "problem_id": [problem_ids[i // per_problem] for i in range(n_rows)],
                    "response_id": [f"r{i:04d}" for i in range(n_rows)],
                    "logp_sum": -9.0 + 0.01 * number * (kernel @ pull),
                    "n_tokens": 3,
                }
            )
            named = [
                (i, role, i % per_problem, i % per_problem in (0, 2))
                for i in range(n_rows)
                for role in roles.split()
                if role == "panel" or i % per_problem < 2
            ]
            upper = [(i, j, float(kernel[i, j])) for i in range(n_rows) for j in range(i, n_rows)]
            store.add_kernel(
                KEY,
                checkpoint_id,
                f"k{step}",
                certificate=1e-9,
                rows=rows,
                roles=pd.DataFrame(named, columns=["position", "role", "sample_index", "correct"]),
                values=pd.DataFrame(upper, columns=["row_position", "column_position", "value"]),
            )


@pytest.fixture
def context_of(store_of: Callable[..., Path]) -> Callable[..., Context]:
    """What a report reads of a series with kernels at ``steps``."""

    def make(steps: tuple[int, ...] = (0, 20, 30), *, edit: Any = None, **choices: Any) -> Context:
        path = store_of(names=("grpo",), edit=edit)
        if steps:
            add_kernels(path, steps, **choices)
        return read(path)

    return make


def read(path: Path) -> Context:
    with Store.open(path, read_only=True) as store:
        return read_context(store, tuple(all_measures().values()), store_name="audit.duckdb")


@pytest.fixture
def section_of(context_of: Callable[..., Context]) -> Callable[..., Section]:
    return lambda *steps, **choices: kernel(context_of(*steps, **choices))


@pytest.fixture(scope="module")
def usual(written: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Context:
    """The context of kernels at three steps, read once."""
    path = Path(shutil.copy(written(names=("grpo",)), tmp_path_factory.mktemp("kernel")))
    add_kernels(path, (0, 20, 30))
    return read(path)


def test_the_heat_map_groups_problems_and_puts_correct_responses_first(usual: Context) -> None:
    base, last = block(kernel(usual), "Gradient kernel").panels
    assert (base.title, last.title) == ("base (step 0)", "last checkpoint (step 30)")
    assert base.groups == (("1", 3), ("2", 3))
    assert base.marked == (True, True, False) * 2
    # the first two rows are r0000 and r0002: (1, 0, 0) and (1, 1, 0)
    assert base.cells[0][1] == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert base.cells[0][0] == 1.0
    assert "6 gradients" in base.description


def test_the_table_has_the_numbers_of_the_picture(usual: Context) -> None:
    table = block(kernel(usual), "Gradient kernel").table
    names = ["step 0, correct pairs", "step 0, correct and wrong", "step 0, other problems"]
    assert [column.name for column in table.columns][2:5] == names
    first = table.rows[0]
    assert first[2].sort == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert first[3].sort == pytest.approx(np.sqrt(0.5) / 2, abs=0.01)  # (1,0,0)·(0,1,0) and (1,1,0)·(0,1,0)


def test_an_exact_prediction_is_on_the_line(usual: Context) -> None:
    figure = block(kernel(usual), "Last step")
    (panel,) = figure.panels
    xs = [x for line in panel.lines for x in line.x]
    ys = [y for line in panel.lines for y in line.y]
    assert xs == pytest.approx(ys)
    assert {line.label: len(line.x) for line in panel.lines} == {"correct": 4, "not correct": 2}
    assert (
        "from the own samples: r = 1.00. Only groups with correct and wrong responses have a gradient: 2."
        in figure.caption
    )
    assert len(figure.table.rows) == 6


@pytest.mark.slow
def test_the_page_holds_the_pictures(usual: Context) -> None:
    html = render_page(build_page(usual))
    assert re.search(r'id="kernel-heat-0">.*?role="img" aria-label="[^"]+"', html, re.DOTALL)
    assert 'id="kernel-step-0"' in html
    assert "style=" not in html


@pytest.mark.slow
def test_without_kernels_there_are_reasons_and_no_picture(section_of: Callable[..., Section]) -> None:
    section = section_of(())
    assert section.lead == ("This series was audited without a gradient kernel; audit it again.",)
    pictures = block(section, "Gradient kernel")
    assert pictures.title == "Gradient kernel, cosines; Last step: predicted and measured change"
    assert pictures.why == ("this series was audited without a gradient kernel",)
    assert pictures.how == "the same audit with --panel 4 --kernel-problems 8"
    assert not [b for b in section.blocks if isinstance(b, Table | Folded)]


@pytest.mark.slow
def test_a_kernel_that_failed_keeps_its_reason(store_of: Callable[..., Path]) -> None:
    path = store_of(names=("grpo",))
    add_kernels(path, (0, 20))
    with Store.open(path) as store:
        store.add_missing_kernel(KEY, "grpo-30", "NaN in the weights")
    context = read(path)
    section = kernel(context)
    figure = block(section, "Gradient kernel")
    assert len(figure.panels) == 1
    assert figure.notes == ("Not shown: step 30: NaN in the weights.",)
    assert block(section, "Last step").why == ("step 30: NaN in the weights",)
    assert render_page(build_page(context))


@pytest.mark.slow
def test_own_samples_are_needed_for_a_prediction(section_of: Callable[..., Section]) -> None:
    (why,) = block(section_of(roles="panel"), "Last step").why
    assert why.startswith("training batch: the run directory contains no responses of the trainer between the two; own")


@pytest.mark.slow
def test_a_picture_too_fine_to_read_is_cut_to_whole_problems(section_of: Callable[..., Section]) -> None:
    figure = block(section_of(per_problem=60, roles="panel"), "Gradient kernel")
    assert figure.panels[0].groups == (("1", 60),)
    assert len(figure.panels[0].cells) <= MAX_ROWS
    assert figure.notes == ("Shown: 1 problem. The measures use all problems.",)


def findings(low: float, high: float, null_low: float = -0.1) -> Callable[[list[Finding]], list[Finding]]:
    def edit(found: list[Finding]) -> list[Finding]:
        last = partial(Finding, checkpoint_id="grpo-30", n=5)
        rho = last(measure="kernel_rho_correct", unit="cosine", value=(low + high) / 2, low=low, high=high)
        r = {"measure": "kernel_prediction", "unit": "correlation", "scope": "own samples"}
        return [
            *found,
            rho,
            replace(rho, checkpoint_id="base-0", value=0.1, low=0.0, high=0.2),
            last(**r, value=0.8, low=0.7, high=0.9),
            last(measure="kernel_rho_null", unit="cosine", value=0.2, low=null_low, high=0.3),
        ]

    return edit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.2, 0.6, "A gradient step on a correct response raises the probability of other correct responses to its "
         "problem (mean cosine of their gradients 0.40 at the last checkpoint, 0.10 at the base)."),
        (-0.6, -0.2, "A gradient step on a correct response lowers the probability of other correct responses"),
        (-0.2, 0.4, "Correct responses to a problem are not significantly coupled (mean cosine"),
    ],
)  # fmt: skip
def test_the_sentence_follows_the_interval(
    section_of: Callable[..., Section], low: float, high: float, says: str
) -> None:
    section = section_of((), edit=findings(low, high))
    (lead,) = section.lead
    assert lead.startswith(says)
    assert "predicts part of the change in that step (r = 0.80, 95\xa0% CI 0.70 to 0.90)." in lead
    assert "Its CI excludes 0 at 0 of 1 checkpoint. By chance, about 0.1 are expected, " in lead


@pytest.mark.slow
def test_failed_null_tests_are_compared_with_the_number_expected_by_chance(section_of: Callable[..., Section]) -> None:
    def edit(found: list[Finding]) -> list[Finding]:
        *rest, null = findings(0.2, 0.6, null_low=0.1)(found)
        return [*rest, null, replace(null, checkpoint_id="base-0", low=-0.1)]

    (lead,) = section_of((), edit=edit).lead
    assert "excludes 0 at 1 of 2 checkpoints, including the last. By chance, about 0.1 are expected, " in lead


@pytest.mark.slow
def test_the_batch_is_described_in_groups_and_draws(section_of: Callable[..., Section]) -> None:
    def of_the_training_batch(found: list[Finding]) -> list[Finding]:
        edited = findings(0.2, 0.6)(found)
        return [replace(f, scope="training batch") if f.measure == "kernel_prediction" else f for f in edited]

    section = section_of(roles="panel batch", edit=of_the_training_batch)
    batch = "2 groups (4 draws) of the training batches in between"
    assert f"with {batch}, predicts part of the change" in section.lead[0]
    assert f"at step 20 from {batch}: r = " in block(section, "Last step").caption


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.5, -0.1, "modes fell more where Z′\xa0>\xa01 than elsewhere (difference −0.30 nats, 95\xa0% CI "
         "−0.50 to −0.10)"),
        (0.1, 0.5, "modes fell less where Z′\xa0>\xa01 than elsewhere (difference +0.30 nats"),
        (-0.2, 0.4, "modes changed neither significantly more nor less where Z′\xa0>\xa01 than elsewhere"),
    ],
)  # fmt: skip
def test_the_fall_of_modes_follows_its_interval(
    section_of: Callable[..., Section], low: float, high: float, says: str
) -> None:
    fall = Finding(checkpoint_id="grpo-30", measure="z_prime_fall", unit="nats", scope="difference",
                   value=(low + high) / 2, low=low, high=high, n=12)  # fmt: skip
    section = section_of((), edit=lambda found: [*found, fall])
    assert section.lead[0].startswith("This series was audited without a gradient kernel; audit it again. In the last")
    assert says in section.lead[0]


@pytest.mark.slow
def test_five_numbers_come_first_and_the_rest_is_folded(context_of: Callable[..., Context]) -> None:
    rank = Finding(checkpoint_id="grpo-30", measure="kernel_effective_rank", unit="directions", value=4.0, n=6)
    section = kernel(context := context_of(edit=lambda found: [*findings(0.2, 0.6)(found), rank]))
    table, heat, *_ = section.blocks
    assert [c.name for c in table.columns] == ["quantity", "base (step 0)", "last (step 30)"]
    assert texts(table) == [
        ["coupling of correct responses, mean cosine (5 problems)", "0.10 [0.00, 0.20]", "0.40 [0.20, 0.60]"],
        ["null test: coupling of own samples, 0 expected (5 problems)", "–", "0.20 [−0.10, 0.30]"],
        ["effective rank of the fixed responses (6 responses)", "–", "4.00"],
        ["r of the step predicted from the own samples (5 responses)", "–", "0.80 [0.70, 0.90]"],
    ]
    assert heat.title.startswith("Gradient kernel")
    (more,) = blocks(section, Folded)
    assert "Effective rank of the kernel" in more.summary
    assert [b.figure_id for b in more.blocks if isinstance(b, Figure)] == ["measure-kernel-effective-rank"]
    html = render_page(build_page(context))
    fold = html.index('<details class="more"><summary><b>More on the kernel</b>')
    assert fold < html.index('id="measure-kernel-effective-rank"')


def test_measures_are_where_they_are_declared(context: Context) -> None:
    names = replace(context, measures=all_measures()).in_section("kernel")
    assert names[:2] == ("kernel_prediction", "kernel_rho_correct")
    folded = [all_measures()[name].folded for name in names]
    assert folded == sorted(folded)
    assert 0 < sum(folded) < len(folded)


@pytest.mark.slow
def test_with_only_the_base_there_is_no_prediction(store_of: Callable[..., Path]) -> None:
    path = store_of(names=("grpo",), steps=(0,))
    add_kernels(path, (0,))
    section = kernel(replace(read(path), measures={}))
    assert block(section, "Last step").why == ("only the base was audited, so there is no step to predict",)
    assert len(block(section, "Gradient kernel").panels) == 1
