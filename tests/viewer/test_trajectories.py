"""Turns of responses: their parts, places of a search text, and requests."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.trajectories.record import Call, Turn, link_results
from oversharp.diagnostics.viewer import search, trajectories
from oversharp.diagnostics.viewer.records import TurnHits, ViewedResponse
from oversharp.diagnostics.viewer.trajectories import LoadedTrajectory, find_places
from oversharp.diagnostics.viewer.viewer import Viewer
from tests.viewer.agents import LONG_PROMPT, N_TURNS, PROMPT, REASONING
from tests.viewer.conftest import TOKEN, Served


def walk(n: int, text: str = "door") -> LoadedTrajectory:
    """Return a trajectory of ``n`` turns, each with one call and its observation."""
    messages = []
    for turn in range(1, n + 1):
        messages.append(Turn(role="assistant", text=f"go {turn}", calls=(Call("go", '{"way": 1}', f"c{turn}"),)))
        messages.append(Turn(role="tool", text=text, call_id=f"c{turn}"))
    return LoadedTrajectory(link_results(messages))


def test_observations_follow_their_turn_and_name_the_call_that_they_answer() -> None:
    messages = link_results(
        [
            Turn(role="assistant", calls=(Call("slow", id="s"), Call("fast", "{broken", "f", is_valid=False))),
            Turn(role="tool", text="no", call_id="f", is_error=True),
            Turn(role="assistant", text="I wait.", reasoning="hm", n_tokens=4),
            Turn(role="tool", text="done", call_id="s"),
            Turn(role="user", text="And now?"),
            Turn(role="assistant", text="So 7."),
        ]
    )
    first, second, third = LoadedTrajectory(messages).turns(1, 9, {3: ("So ", "7", ".")})
    assert [(call.name, call.is_valid, call.is_error, call.has_result, call.fields) for call in first.calls] == [
        ("slow", True, None, True, ()), ("fast", False, True, True, ()),
    ]  # fmt: skip
    assert [(one.text, one.call) for one in first.observations] == [("no", (1, 2))]
    assert (second.number, second.before, second.reasoning, second.n_tokens) == (2, "I wait.", "hm", 4)
    assert [(one.role, one.text, one.call) for one in second.observations] == [
        ("tool", "done", (1, 1)), ("user", "And now?", None),
    ]  # fmt: skip
    assert (third.before, third.answer, third.after) == ("So ", "7", ".")


def test_fields_of_a_call_are_texts_as_they_are_and_other_values_as_json() -> None:
    call = Call("run", '{"code": "x = 1\\nx", "n": 12345678901234567890, "deep": {"a": null}}')
    ((turn,),) = [LoadedTrajectory((Turn(role="assistant", calls=(call,)),)).turns(1, 1, {})]
    assert turn.calls[0].fields == (("code", "x = 1\nx"), ("n", "12345678901234567890"), ("deep", '{"a": null}'))


@pytest.mark.parametrize(("n", "first", "last"), [(1, [1], []), (70, [1, 50], [51, 70]), (1000, [1, 50], [981, 1000])])
def test_the_first_and_last_turns_of_a_long_trajectory_are_shown(n: int, first: list[int], last: list[int]) -> None:
    shown = walk(n).view("", {})
    assert [turn.number for turn in shown.first][:: max(len(shown.first) - 1, 1)] == first
    assert [turn.number for turn in shown.last][:: max(len(shown.last) - 1, 1)] == last
    assert (shown.n_turns, len(shown.call_keys), len(set(shown.call_keys))) == (n, n, 1)


def test_a_part_is_limited_in_characters_but_has_at_least_one_turn() -> None:
    text = "x" * (trajectories.PART_CHARACTERS // 3)
    assert [turn.number for turn in walk(9, text).turns(4, 100, {})] == [4, 5]
    assert [turn.number for turn in walk(9, text * 9).turns(4, 100, {})] == [4]
    assert len(walk(9, text).turns(1, 9, {}, limit=None)) == 9


def test_places_of_a_search_text_have_the_numbers_of_their_turns() -> None:
    def hits(text: str) -> list[tuple[str, int, tuple[int, ...]]]:
        return [(hit.place, hit.n, hit.turns) for hit in walk(30).view(text, {}).hits]

    assert hits("GO 7") == [("text", 1, (7,))]
    assert hits("go(") == [("call", 30, tuple(range(1, 21)))]
    assert hits("door") == [("observation", 30, tuple(range(1, 21)))]
    assert [place for place, _, _ in hits("o")] == ["text", "call", "observation"]
    assert hits("window") == []


# ---------------------------------------------------------------- a store


def problem_id_of(viewer: Viewer, prompt: str) -> str:
    """Return the id of a problem by its prompt."""
    problems = viewer.problems(viewer.selection("agent")).problems
    return next(problem.problem_id for problem in problems if problem.title == prompt)


def responses_of(viewer: Viewer, prompt: str, key: str, text: str = "") -> dict[str, ViewedResponse]:
    """Return answer → response of a checkpoint."""
    chosen, problem_id = replace(viewer.selection("agent"), search=text), problem_id_of(viewer, prompt)
    (side,) = [side for side in viewer.problem(chosen, problem_id).sides if side.key == key]
    return {
        str(group.answer): viewer.response(chosen, problem_id, key, group.responses[0].response_id)
        for group in side.answers
    }


@pytest.mark.slow
def test_a_response_has_turns_with_failed_and_invalid_calls_and_its_answer_is_marked(agents: Viewer) -> None:
    responses = responses_of(agents, PROMPT, "2")
    plain, shown = responses["13"], responses["7"].trajectory
    assert plain.trajectory is None
    assert (plain.before, plain.answer, plain.after) == ("I say \\boxed{", "13", "}")
    assert shown is not None
    assert (shown.n_turns, shown.n_invalid, shown.n_failed, shown.last) == (4, 1, 1, ())
    assert [turn.reasoning for turn in shown.first] == [REASONING, "", "", ""]
    assert [[(call.name, call.is_error) for call in turn.calls] for turn in shown.first] == [
        [("list_files", None)], [("count", None), ("look", True)], [("", None)], [],
    ]  # fmt: skip
    assert [one.call for one in shown.first[1].observations] == [(2, 2), (2, 1)]  # in the order of the dump
    assert (shown.first[3].before, shown.first[3].answer) == ("It has 7 lines: \\boxed{", "7")


@pytest.mark.slow
def test_later_turns_are_requested_in_parts(agents: Viewer) -> None:
    chosen, problem_id = agents.selection("agent"), problem_id_of(agents, LONG_PROMPT)
    (group,) = agents.problem(chosen, problem_id).sides[0].answers
    response_id = group.responses[0].response_id
    part = agents.turns(chosen, problem_id, "base", response_id, 4_990)
    assert [turn.number for turn in part] == list(range(4_990, 5_090))
    assert part[10].observations[0].text == "a room with a needle"
    assert [turn.answer for turn in agents.turns(chosen, problem_id, "base", response_id, N_TURNS)] == ["1"]
    for key, start in (("base", 0), ("base", N_TURNS + 1), ("2", 1)):
        with pytest.raises(ConfigError, match=f"turn {start}: {key} has no such turn"):
            agents.turns(chosen, problem_id, key, response_id, start)


@pytest.mark.slow
def test_a_search_finds_observations_and_lists_where(agents: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = problem_id_of(agents, PROMPT), problem_id_of(agents, LONG_PROMPT)
    chosen = agents.selection("agent")
    for text, found in (("NEEDLE", {long}), ("no such file", {short}), ("notes.txt", {short}), ("a cellar", set())):
        assert agents.matching_problem_ids(replace(chosen, search=text)) == found, text
        with monkeypatch.context() as limited:  # in parts
            limited.setattr(search, "_ROWS", 1)
            limited.setattr(search, "_TRAJECTORIES", 1)
            limited.setattr(search, "PART_S", 0.0)
            assert agents.matching_problem_ids(replace(chosen, search=text)) == found, text
    sides = agents.problem(replace(chosen, search="zebra"), short).sides
    listed = [
        sorted((str(group.answer), one.hit, one.places) for group in side.answers for one in group.responses)
        for side in sides
    ]
    assert listed == [
        [("12", True, ("observation",)), ("13", False, ())],
        [("13", False, ()), ("7", True, ("call", "observation"))],
    ]
    assert responses_of(agents, LONG_PROMPT, "base", "needle")["1"].trajectory.hits == (
        TurnHits(place="observation", n=1, turns=(5_000,)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("text", ["i try", "hidden thought", "count(", "{path}", "12", "no such", "zebra", "nothing"])
def test_the_list_and_the_response_have_the_same_places(agents: Viewer, text: str) -> None:
    rows = agents._store.frame("SELECT response_id FROM trajectories")["response_id"].astype(str)
    loaded = trajectories.load_trajectories(agents._store, list(rows))
    assert len(loaded) == 4
    assert find_places(agents._store, list(rows), text) == {
        response_id: tuple(hit.place for hit in one.view(text, {}).hits) for response_id, one in loaded.items()
    }


@pytest.mark.slow
def test_an_invalid_request_for_turns_gets_a_one_line_error(served_agents: Served, agents: Viewer) -> None:
    problem_id = problem_id_of(agents, PROMPT)
    for query, line in (
        ("at=base&response=x&start=1", "turn 1: base has no such turn of response 'x'; reload the page"),
        ("at=base&response=x&start=-1", "start '-1': must be a whole number"),
        ("at=7&response=x&start=1", "no samples of problem"),
    ):
        connection = HTTPConnection("127.0.0.1", served_agents.port, timeout=10)
        connection.request("GET", f"/{TOKEN}/api/turns?series=agent&problem={problem_id}&{query}")
        answer = connection.getresponse()
        assert answer.status == 400
        assert line in json.loads(answer.read())["error"]
        connection.close()
