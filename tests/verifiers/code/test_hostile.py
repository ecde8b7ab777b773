"""Hostile programs never pass, leave no process, and change nothing outside. Right programs pass."""

import ctypes
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.code.verifier import CodeVerifier
from oversharp.diagnostics.verifiers.sandbox.backends import UNSANDBOXED, all_backends
from oversharp.diagnostics.verifiers.sandbox.jail import backend_states
from tests.verifiers.code.programs import code_problem, fenced, load_programs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sandbox")]

CASES = (([3, 9, 4, 7], 2, [9, 7]), ([5], 1, [5]), ([12, 81, 33, 64, 2], 3, [81, 64, 33]), ([4, 4, 1], 2, [4, 4]))
ASSERTS = "\n".join(f"    assert candidate({xs}, {k}) == {wanted}" for xs, k, wanted in CASES)
SCRIPT = code_problem(
    prompt='def top(xs, k):\n    """Return the k largest."""\n',
    entry_point="top",
    test=f"def check(candidate):\n{ASSERTS}\n",
)
CALLS = code_problem(entry_point="top", tests=[{"args": [xs, k], "result": wanted} for xs, k, wanted in CASES])
OUTPUT = code_problem(tests=[{"input": "1 2 3\n", "output": "6\n"}, {"input": "-4 4\n", "output": "0"}])
PR_SET_CHILD_SUBREAPER = 36


def verifier_of(name: str, *, timeout_s: float, is_warm: bool = True) -> CodeVerifier:
    """A verifier of one back end; the test is skipped, or fails where everything is required, if it does not work."""
    fault = dict(backend_states()).get(name, "it is not installed")
    if fault:
        reason = f"{name}: {fault}"
        (pytest.fail if os.environ.get("REQUIRE_ALL") == "1" else pytest.skip)(reason)
    backend = next(backend for backend in all_backends() if backend.name == name)
    return CodeVerifier(timeout_s=timeout_s, workers=2, backend=backend, is_warm=is_warm)


def children() -> set[int]:
    """Processes whose parent is this one."""
    pids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                pids.add(int(entry.name))
    return pids


@pytest.fixture
def survivors_show() -> Iterator[None]:
    """Orphans become children of this process, and none is left at the end."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = children()
    yield
    left = children() - before
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert not left


@pytest.fixture
def canary() -> Iterator[Path]:
    """A folder outside of the jails that every user may change, with a file."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        file = Path(folder) / "file"
        file.write_text("alive", encoding="utf-8")
        file.chmod(0o666)
        yield Path(folder)


def test_without_a_sandbox_a_program_reaches_the_canary(canary: Path) -> None:
    code = f"import os\nos.remove('{canary}/file')\nopen('{canary}/oversharp_escaped', 'w')"
    unsandboxed = next(backend for backend in all_backends() if backend.name == UNSANDBOXED)
    with CodeVerifier(backend=unsandboxed) as verifier:
        (grade,) = verifier.grade([(OUTPUT, fenced(code))])
    assert not grade.correct
    assert [path.name for path in canary.iterdir()] == ["oversharp_escaped"]


@pytest.mark.parametrize(("name", "is_warm"), [("bubblewrap", True), ("bubblewrap", False), ("namespaces", True)])
def test_no_hostile_program_passes_stays_or_reaches_the_host(
    name: str, is_warm: bool, canary: Path, survivors_show: None
) -> None:
    folders = [Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), canary]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        verifier_of(name, timeout_s=0.8, is_warm=is_warm) as verifier,
    ):
        server.settimeout(0)
        port = server.getsockname()[1]
        functions = {
            title: fenced(code.replace("CANARY", str(canary)).replace("PORT", str(port)))
            for title, code in load_programs("hostile_functions").items()
        }
        scripts = {title: fenced(code) for title, code in load_programs("hostile_scripts").items()}
        assert len(functions) + len(scripts) >= 100
        tried: list[tuple[str, tuple[Problem, str]]] = []
        for problem, texts in ((SCRIPT, functions), (CALLS, functions), (OUTPUT, scripts)):
            tried += [(title, (problem, text)) for title, text in texts.items()]
        grades = verifier.grade([item for _, item in tried])
        named = [(title, grade) for (title, _), grade in zip(tried, grades, strict=True)]
        assert [title for title, grade in named if grade.correct] == []
        assert [(title, grade.reason) for title, grade in named if grade.state != "ok"] == []
        with pytest.raises(BlockingIOError):
            server.accept()
        assert all(grade.correct for grade in grade_right_programs(verifier).values())  # the jails still work
    assert [path.name for path in canary.iterdir()] == ["file"]
    assert (canary / "file").read_text(encoding="utf-8") == "alive"
    assert [path for folder in folders if folder.exists() for path in folder.glob("oversharp_escaped")] == []


def grade_right_programs(verifier: CodeVerifier) -> dict[str, Grade]:
    """Grade one right program of each form."""
    function = fenced("def top(xs, k):\n    return sorted(xs)[::-1][:k]")
    script = fenced("print(sum(map(int, input().split())))")
    items = {"script": (SCRIPT, function), "calls": (CALLS, function), "output": (OUTPUT, script)}
    return dict(zip(items, verifier.grade(list(items.values())), strict=True))


@pytest.mark.parametrize("name", ["bubblewrap", "namespaces"])
def test_right_programs_pass(name: str, survivors_show: None) -> None:
    functions, scripts = load_programs("right_functions"), load_programs("right_scripts")
    assert len(functions) + len(scripts) >= 30
    tried = [
        (f"{title} ({problem.meta['code']['form']})", (problem, fenced(code)))
        for problem, programs in ((SCRIPT, functions), (CALLS, functions), (OUTPUT, scripts))
        for title, code in programs.items()
    ]
    with verifier_of(name, timeout_s=20.0) as verifier:
        grades = verifier.grade([item for _, item in tried])
    assert {title: grade.reason for (title, _), grade in zip(tried, grades, strict=True) if not grade.correct} == {}
    assert {grade.reason for grade in grades} == {f"ran in {name}"}
