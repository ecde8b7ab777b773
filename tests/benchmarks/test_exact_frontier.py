"""Exact rates and frontiers of the benchmarks, against values by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.calibration.shipping_exact import COLDER, HOTTER, RULES, Asked, Run, draw, regret
from benchmarks.frontier.exact_frontier import FINE, ExactFrontier, ExactTask, load, mixed, pass_at, tokenizer_of
from benchmarks.frontier.free_controls import Law, audited, exact_frontiers
from benchmarks.frontier.positions import FrontierPosition, Ground, position_markdown, position_row, ranked
from oversharp.diagnostics.measures.coverage.sharpening.controls import load_controls
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.verdict.shipping.choice import recommend
from oversharp.trainers.worlds.base import build_model, build_tokenizer

PROBLEMS = [Problem(task="t", prompt=prompt, gold="7", verifier="expression") for prompt in ("1 2 3 = 7 :", "7 = :")]
MODES = [["1 + 2 * 3", "7"], ["7", "3 + 4"]]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two with random weights of the demo's shape."""
    folder = tmp_path_factory.mktemp("exact")
    for seed in (0, 1):
        build_model(seed).save_pretrained(folder / f"{seed}")
        build_tokenizer().save_pretrained(folder / f"{seed}")
    return [folder / "0", folder / "1"]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_rates_sum_what_each_response_has_by_itself_without_padding(
    checkpoints: list[Path], temperature: float
) -> None:
    model, tokenizer = load(checkpoints[0]), tokenizer_of(checkpoints[0])
    [found] = ExactTask(tokenizer, PROBLEMS, MODES).rates(model, [temperature])
    for rate, problem, modes in zip(found, PROBLEMS, MODES, strict=True):
        alone = 0.0
        for mode in modes:
            prompt, response = tokenizer(problem.prompt)["input_ids"], tokenizer(f"{mode} <eos>")["input_ids"]
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].double()
            logp = (logits / temperature).log_softmax(-1)[range(len(response)), response].sum().item()
            alone += math.exp(logp)
        assert rate == pytest.approx(alone, rel=1e-4)


def test_weights_on_the_way_end_in_the_two_models(checkpoints: list[Path]) -> None:
    base, late = (load(path) for path in checkpoints)
    name = "model.layers.0.mlp.down_proj.weight"
    for share, expected in ((0.0, base), (1.0, late)):
        assert torch.equal(mixed(base, late, share).state_dict()[name], expected.state_dict()[name])
    half = mixed(base, late, 0.5).state_dict()[name]
    assert torch.allclose(half, (base.state_dict()[name] + late.state_dict()[name]) / 2)


def colder(temperature: float) -> np.ndarray:
    """Success rates that lie apart as the temperature falls."""
    return 1 / (1 + np.exp(-np.array([1.5, 0.5, -0.5, -3.0]) / temperature))


def test_a_base_between_the_fine_temperatures_is_no_gain_and_a_point_above_it_is_one() -> None:
    frontier = ExactFrontier.of({temperature: colder(temperature) for temperature in FINE}, 8)
    own = colder(0.43)
    place = pass_at(own, 1), pass_at(own, 8)
    assert frontier.gain(*place) == pytest.approx(0.0, abs=1e-3)
    assert frontier.loss(*place) == pytest.approx(0.0, abs=1e-3)
    assert frontier.gain(place[0] + 0.1, place[1]) == pytest.approx(0.1, abs=1e-3)
    assert frontier.gain(0.5, pass_at(colder(1.0), 8) + 0.01) is None
    assert frontier.loss(pass_at(colder(1.0), 1) - 0.01, 0.5) is None


@pytest.mark.slow
def test_a_run_is_drawn_hotter_and_taken_three_quarters_of_the_way_from_its_base(checkpoints: list[Path]) -> None:
    task = ExactTask(tokenizer_of(checkpoints[0]), PROBLEMS, MODES)
    ground, (base, late) = Ground.of(task, checkpoints[0], 8), map(load, checkpoints)
    found = ground.position(checkpoints[1], None)
    [hotter], [part] = task.rates(late, [1.2]), task.rates(mixed(base, late, 0.75), [1.0])
    for said_1, said_k, rate_P in (
        (found.hot_pass_at_1, found.hot_pass_at_k, hotter),
        (found.part_pass_at_1, found.part_pass_at_k, part),
    ):
        assert (said_1, said_k) == pytest.approx((pass_at(rate_P, 1), pass_at(rate_P, 8)), rel=1e-9, abs=0)
    assert found.matched_loss is None


def test_what_is_unknown_at_some_seeds_is_counted_and_at_all_has_no_rank() -> None:
    known = FrontierPosition(
        gain=0.05, loss=None, matched_loss=-0.01, hot_pass_at_1=0.4, hot_pass_at_k=0.9, hot_gain=0.02,
        part_pass_at_1=0.4, part_pass_at_k=0.9, part_gain=0.03,
    )  # fmt: skip
    bare = FrontierPosition(**{**vars(known), "gain": None, "hot_gain": None})
    last = {"pass_at_1": {"mean": 0.4}, "pass_at_128": {"mean": 0.9}}
    rows = [
        {"setting": {"name": name}, "last_step": last, "frontier": position_row(own)}
        for name, own in (("half known", [known, bare]), ("never", [bare, bare]))
    ]
    assert ranked(rows, 128)["gain"] == {"half known": 1, "never": None}
    half, never = position_markdown(rows, 2, 128, 0.4)[-2:]
    assert "+5.0 (1 of 2 seeds)" in half
    assert never.startswith("| never | unknown | −1.0 ± 0.0 |")


def law(copies: int) -> Law:
    """Of each problem: right "a" .5, wrong "b" .3, right "a" said otherwise .1, unread .06; .04 is not listed."""
    return Law(
        problem_R=np.repeat(np.arange(copies), 4),
        logp_R=np.tile(np.log([0.5, 0.3, 0.1, 0.06]), copies),
        answer_R=np.tile(np.array(["a", "b", "a", NO_ANSWER], dtype=object), copies),
        correct_R=np.tile([1.0, 0.0, 1.0, 0.0], copies),
        n_problems=copies,
    )


def test_power_reweights_responses_and_agreeing_reweights_answers() -> None:
    one = law(1)
    assert one.power(1.0) == pytest.approx([0.6])
    assert one.power(2.0) == pytest.approx([0.26 / (0.26 + 0.09 + 0.0036)])
    assert one.agreeing(1) == pytest.approx([0.6])
    assert one.agreeing(2) == pytest.approx([0.36 / (0.36 + 0.09)])
    assert one.mass == pytest.approx(0.96)


def test_sampled_audits_of_a_law_find_its_points() -> None:
    many = law(40)
    evidence = audited(many, {"late": np.full(40, 0.7)}, np.arange(40), np.random.default_rng(0))
    found = {one.name: one for one in load_controls(evidence)}
    assert (found["power"].k, found["answers"].k) == (128, 16)
    assert found["power"].points.x_SP.mean(axis=1)[2] == pytest.approx(many.power(2.0)[0], abs=1e-9)  # all were drawn
    assert found["answers"].points.x_SP.mean(axis=1)[1] == pytest.approx(many.agreeing(2)[0], abs=0.02)
    frontier = exact_frontiers(many, {"power": 128, "answers": 16})["answers"]
    assert frontier.x_R[-1] == pytest.approx(many.agreeing(8)[0], abs=1e-6)


def run(*rates: float, reward: list[float], entropy: list[float]) -> Run:
    """The base and its checkpoints, of one rate each on all problems; controls as the base and the last."""
    own = [*rates, *[rates[0]] * len(COLDER), *[rates[-1]] * len(HOTTER)]
    return Run(
        name="IAC", seed=0, base="0", rate_TP=np.repeat(own, 50).reshape(-1, 50), reward_T=reward, entropy_T=entropy
    )


def test_each_rule_names_the_checkpoint_that_it_looks_for() -> None:
    one = run(0.3, 0.5, 0.9, 0.7, reward=[0.3, 0.4, 0.5, 0.9], entropy=[1.0, 0.8, 0.4, 0.3])
    said = recommend([draw(one, np.arange(50), np.random.default_rng(0), controls=False)])
    asked = Asked(run=one, said=said)
    chosen = {name: rule(asked) for name, rule in RULES.items()}
    assert chosen == {
        "ship": 2,
        "the last": 3,
        "the best pass@1": 2,
        "the best training reward": 3,
        "stopped early by entropy": 1,
        "the base": 0,
    }
    truth = one.truth(controls=False)
    assert truth.pass_at_TK.shape == (4, 128)
    assert regret(truth, 3, 0.0) == pytest.approx(20.0)
    assert regret(truth, 2, 0.0) == 0.0
    # worse than the base: what it lost beyond what may be lost
    lost = run(0.9, 0.5, reward=[0.5, 0.5], entropy=[1.0, 1.0]).truth(controls=False)
    assert regret(lost, 1, 0.0) == pytest.approx(40.0 - 2.0)
    assert regret(lost, 1, 0.05) == pytest.approx(40.0 - 5.0)
    assert regret(lost, 0, 0.45) == 0.0
    assert len(one.truth(controls=True).pass_at_TK) == 4 + 5
