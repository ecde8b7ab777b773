"""Trajectories from a stub server and an environment: right content in spite of faults of both."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.errors import ConfigError, EndpointError, SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest, make_sampler
from oversharp.diagnostics.samplers.agents.environment import Environment, load_environment, require_reset
from oversharp.diagnostics.samplers.agents.sampler import AgentSampler
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, ServedPlace
from oversharp.diagnostics.trajectories.sample import AgentSample
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from tests.samplers.agents.agent_stub import MIXED, AgentStub
from tests.samplers.endpoint.conftest import LIMITS
from tests.samplers.endpoint.serving import stub_server

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).with_name("calculator.py")
CHECKPOINT = Checkpoint(step=0, label="step-0", path=FILE, kind="recorded", weights_hash="h")
pytestmark = pytest.mark.slow  # each test starts processes of the environment


@pytest.fixture(scope="module")
def calculator() -> Environment:
    return load_environment(f"{FILE}:Calculator", GraderLimits(timeout_s=0.5))


def problems(environment: Environment | None, n: int = 3) -> list[Problem]:
    name = "exact" if environment is None else environment.name
    return [Problem(task="t", prompt=f"{a} + 2", gold=str(a + 2), verifier=name) for a in range(n)]


def settings_of(environment: Environment, **changes: Any) -> SamplingSettings:
    given = {"max_turns": 4, "max_tokens": 100, **changes}
    return SamplingSettings(sampler="endpoint", chat=True, environment=environment.name, **given)


@contextmanager
def opened(environment: Environment, url: str) -> Iterator[AgentSampler]:
    endpoint = EndpointSettings(default=ServedPlace(url=url, how="names"), limits=LIMITS)
    context = SamplerContext(models=ModelHolder(device="cpu"), endpoint=endpoint, environment=environment)
    sampler = make_sampler("endpoint", context)
    assert isinstance(sampler, AgentSampler)
    try:
        yield sampler
    finally:
        sampler.close()


def draw(environment: Environment, url: str, n: int = 20, *, given: list[Problem] | None = None, **changes: Any) -> Any:
    """Return samples by problem and index."""
    asked = [
        SampleRequest(problem=problem, sample_indices=tuple(range(n))) for problem in given or problems(environment)
    ]
    settings = settings_of(environment, **changes)
    with opened(environment, url) as sampler:
        samples = [one for batch in sampler.sample(CHECKPOINT, asked, settings) for one in batch]
    assert len(samples) == len(asked) * n
    return {(one.problem_id, one.sample_index): one for one in samples}


def test_each_turn_call_and_observation_is_recorded_and_the_environment_grades(calculator: Environment) -> None:
    with stub_server(AgentStub, owner="openai") as (url, stub):
        samples = draw(calculator, url)
    by_id = {problem.problem_id: problem for problem in problems(calculator)}
    seen = set()
    for (problem_id, _), sample in samples.items():
        assert isinstance(sample, AgentSample)
        a = by_id[problem_id].prompt.split()[0]
        assert (sample.turns[0].role, sample.turns[0].text) == ("user", " ?")
        first, *rest = sample.turns[1:]
        calls = [(call.name, call.arguments, call.is_valid) for call in first.calls]
        sum_text = f'{{"a": {a}, "b": 2}}'
        _, grade = sample.reward
        if not calls:
            kind, expected = 0, ["The answer is 7."]
        elif calls == [("add", sum_text, True)]:
            kind, expected = 1, [f"{int(a) + 2}", f"The answer is {int(a) + 2}."]
        elif calls[0][0] == "subtract":
            error = "error: no tool 'subtract'; the tools are add, exit, fail, hang, say, sleep"
            kind, expected = 2, [error, f"The answer is {error}."]
        elif not calls[0][2]:
            assert calls == [("add", sum_text[:-1], False)]
            error = "error: the call is not a name and a JSON object of arguments"
            kind, expected = 3, [error, f"The answer is {error}."]
        else:
            kind, expected = 4, ["0", f"{int(a) + 2}", f"The answer is {int(a) + 2}."]
            assert [call.result for call in first.calls] == [2, 3]
        seen.add(kind)
        assert [turn.text for turn in (rest if calls else [first])] == expected
        assert [turn.is_error for turn in rest[:-1]] == [True if kind in (2, 3) else None] * len(first.calls)
        assert grade.state == "ok"
        assert grade.correct == (kind in (1, 4))
        assert (sample.finish_reason, sample.token_ids) == ("stop", None)
        assert sample.n_tokens == 3 * len([turn for turn in sample.turns if turn.role == "assistant"])
    assert seen == set(range(len(MIXED)))
    bodies = [body for _, body in stub.calls if "tools" in body]
    assert all("n" not in body and body["tools"][0]["function"]["name"] == "add" for body in bodies)
    assert all("return" not in tool["function"] for body in bodies for tool in body["tools"])
    seeds = [body["seed"] for body in bodies]
    assert len(set(seeds)) == len(seeds)


def test_faults_of_the_server_and_repeated_runs_change_no_trajectory(calculator: Environment) -> None:
    with stub_server(AgentStub) as (url, _):
        samples = draw(calculator, url)
    with stub_server(AgentStub, **{"500": 0.1, "429": 0.05, "cut": 0.05, "drop": 0.05, "empty": 0.1}) as (url, stub):
        again = draw(calculator, url)
    assert again == samples
    assert {one.response_id for one in again.values()} == {one.response_id for one in samples.values()}
    assert len(stub.calls) > len([turn for one in samples.values() for turn in one.turns if turn.role == "assistant"])


def test_calls_in_the_text_are_read_if_the_server_parses_none(calculator: Environment) -> None:
    with stub_server(AgentStub) as (url, _):
        parsed = draw(calculator, url, 10)
    with stub_server(AgentStub, refuses_tools=True) as (url, stub):
        texts = draw(calculator, url, 10)
    is_equal = [texts[place].turns == parsed[place].turns for place in texts]
    has_broken = [any(not call.is_valid for turn in one.turns for call in turn.calls) for one in texts.values()]
    assert [not broken for broken in has_broken] == is_equal  # a broken call has no name that could be read
    assert any(is_equal)
    assert any(has_broken)
    sent = [message for _, body in stub.calls for message in body["messages"] if message["role"] == "assistant"]
    assert all(message["content"].startswith("<tool_call>") and "tool_calls" not in message for message in sent)


def test_a_trajectory_ends_at_its_limits_of_turns_tokens_and_context(calculator: Environment) -> None:
    given = problems(calculator, 1)
    with stub_server(AgentStub, rule="loop") as (url, _):
        [looped] = draw(calculator, url, 1, given=given).values()
        [short] = draw(calculator, url, 1, given=given, max_tokens=8).values()
    assert [turn.role for turn in looped.turns] == ["user", *["assistant", "tool"] * 4]
    assert (looped.finish_reason, looped.n_tokens) == ("length", 12)
    # 3 of 8 tokens, 3 of 5, 2 of 2
    assert [turn.role for turn in short.turns] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert short.finish_reason == "length"
    with stub_server(AgentStub, rule="loop", most_messages=3) as (url, _):
        [full] = draw(calculator, url, 1, given=given).values()
    assert [turn.role for turn in full.turns] == ["user", *["assistant", "tool"] * 2]
    assert full.finish_reason == "length"
    with stub_server(AgentStub, rule="loop", room=120) as (url, stub):
        [squeezed] = draw(calculator, url, 1, given=given).values()
    # 100 tokens in the first turn; then half of 97, 94 and 91, because these do not fit
    assert [len(turn.calls) for turn in squeezed.turns if turn.role == "assistant"] == [1, 1, 1, 1]
    limits = [body["max_tokens"] for _, body in stub.calls if "tools" in body]
    assert limits == [100, 48, 47, 45]
    with (
        stub_server(AgentStub, most_messages=0, owner="vllm") as (url, _),
        pytest.raises(EndpointError, match="maximum context length"),
    ):
        draw(calculator, url, 1, given=given)


@pytest.mark.parametrize(
    ("rule", "observation", "reward"),
    [
        ("fail", "error: ValueError: no power, line 42", 1.0),
        ("sleep", "error: no result within 0.5 s", 1.0),
        ("hang", "error: no result within 1.5 s", None),
        ("exit", "error: its process ended (exit code 3)", None),
    ],
)
def test_a_tool_that_fails_hangs_or_ends_its_process_is_an_observation(
    calculator: Environment, rule: str, observation: str, reward: float | None
) -> None:
    with stub_server(AgentStub, rule=rule) as (url, _):
        samples = draw(calculator, url, 2)
    for sample in samples.values():
        first, second = [turn for turn in sample.turns if turn.role == "tool"]
        assert (first.text, first.is_error) == (observation, True)
        _, grade = sample.reward
        if reward is None:  # the instance is lost, and so is its reward
            assert (second.text, second.is_error) == (observation, True)
            assert grade.state == ("timeout" if rule == "hang" else "error")
        else:
            assert second.is_error is None
            assert (grade.state, grade.reward) == ("ok", reward)


def test_an_observation_is_storable_and_bounded(calculator: Environment) -> None:
    with stub_server(AgentStub, rule="say") as (url, _):
        [sample] = draw(calculator, url, 1, given=problems(calculator, 1)).values()
    assert sample.turns[2].text.startswith("??aaa")
    assert sample.turns[2].text.endswith("… (34466 more characters)")


class MixedNeighbors(AgentStub):
    """Some trajectories end the process that others share."""

    def _calls(self, body: dict[str, Any], a: str, b: str) -> list[tuple[str, str]] | None:
        if len(body["messages"]) > 5:
            return None
        call = (
            ("exit", "{}")
            if body["seed"] % 4 == 0 and len(body["messages"]) == 3
            else ("add", f'{{"a": {a}, "b": {b}}}')
        )
        return [call]


def test_a_neighbor_that_ends_the_process_costs_no_other_trajectory_its_result(calculator: Environment) -> None:
    with stub_server(MixedNeighbors) as (url, _):
        samples = draw(calculator, url)
    is_ended = [any(call.name == "exit" for turn in one.turns for call in turn.calls) for one in samples.values()]
    assert [one.reward[1].state == "error" for one in samples.values()] == is_ended
    assert [one.reward[1].correct for one in samples.values()] == [not ended for ended in is_ended]
    assert 0 < sum(is_ended) < len(is_ended)


def test_a_problem_that_the_environment_cannot_start_stops_the_sampling(calculator: Environment) -> None:
    bad = Problem(task="t", prompt="1 + 2", gold="three", verifier=calculator.name)
    with pytest.raises(ConfigError, match=r"--environment .*calculator.py:Calculator: reset fails .*could not"):
        require_reset(calculator, bad)
    with stub_server(AgentStub) as (url, _), pytest.raises(SamplerError, match=r"reset fails for the problem '1 . 2'"):
        draw(calculator, url, 1, given=[bad])


GOOD = '''class E:
    def reset(self, prompt): pass
    def now(self) -> str:
        """Tell the time."""
        return "noon"
'''


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("raise ValueError('no')", r"env.py cannot be loaded \(ValueError: no, line 1\)"),
        ("class F: pass", "env.py has no class E; it defines F"),
        ("class E: pass", "E has no method reset"),
        ("class E:\n    def reset(self): pass\n", "E has no tools"),
        (GOOD + "    def step(self, action): pass\n", r"E has step\(action\), the form of OpenEnv and Gymnasium"),
        (GOOD + "    def bare(self, a): pass\n", "tool bare: "),
        ("import os; os._exit(4)", r"env.py cannot be loaded \(its process ended \(exit code 4\)\)"),
        ("CORRECT_AT = 'a'\n" + GOOD, "CORRECT_AT"),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line(tmp_path: Path, source: str, fault: str) -> None:
    file = tmp_path / "env.py"
    file.write_text(source)
    with pytest.raises(ConfigError, match=fault) as error:
        load_environment(f"{file}:E", GraderLimits())
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"--environment {file}:E: ")


def test_an_environment_is_identified_by_its_content_and_graded_from_its_threshold(tmp_path: Path) -> None:
    file = tmp_path / "env.py"
    file.write_text(GOOD)
    plain = load_environment(f"{file}:E", GraderLimits())
    file.write_text(GOOD + "CORRECT_AT = 0.5\n")
    other = load_environment(f"{file}:E", GraderLimits())
    assert not plain.has_reward
    assert plain.name.startswith("env.py:E@")
    assert other.name.endswith(">=0.5")
    assert plain.name != other.name.removesuffix(">=0.5")
    with pytest.raises(ConfigError, match="has changed since"):
        load_environment(f"{file}:E@{plain.name.partition('@')[2]}", GraderLimits())


def test_json_of_a_call_that_is_sent_again_is_valid(calculator: Environment) -> None:
    with stub_server(AgentStub) as (url, stub):
        draw(calculator, url)
    sent = [
        call["function"]
        for _, body in stub.calls
        for message in body["messages"]
        for call in message.get("tool_calls", ())
    ]
    assert sent
    assert any("invalid" in json.loads(call["arguments"]) for call in sent)


def test_the_class_on_the_page_of_trajectories_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trajectories.md").read_text(encoding="utf-8")
    file = tmp_path / "env.py"
    file.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    shown = load_environment(f"{file}:Calculator", GraderLimits())
    with stub_server(AgentStub) as (url, _):
        samples = draw(shown, url, 10, given=problems(shown))
    assert {one.reward[1].correct for one in samples.values()} == {True, False}


def test_closing_the_sampler_ends_a_call_that_hangs_and_its_process(calculator: Environment) -> None:
    patient = replace(calculator, limits=GraderLimits(timeout_s=60))
    asked = [SampleRequest(problem=problems(calculator, 1)[0], sample_indices=(0,))]
    with stub_server(AgentStub, rule="sleep") as (url, stub):
        start_s = time.monotonic()
        with opened(patient, url) as sampler:
            thread = Thread(target=lambda: list(sampler.sample(CHECKPOINT, asked, settings_of(patient))), daemon=True)
            thread.start()
            while not any("tools" in body for _, body in stub.calls):
                time.sleep(0.01)
            time.sleep(0.5)
        assert time.monotonic() - start_s < 15
    workers = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    running = [Path(f"/proc/{child}/cmdline") for file in workers for child in file.read_text().split()]
    assert not [path for path in running if path.exists() and b"agents/worker.py" in path.read_bytes()]
