"""Worker process of an environment. It loads the user's file, and calls methods of instances of its class.

The parent runs this file by its path, so it imports only the standard library, and the worker of graders, whose
protocol it shares. A request is a dict with ``do``: ``reset``, ``call``, ``reward`` or ``drop``, and the number of an
``instance``. A reply has ``text`` (an observation), ``reward`` and ``answer``, or ``fault``. A call that is late is
interrupted, and its instance is kept. If that fails, the parent ends the process.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

#: Largest number of characters of an observation.
MOST_CHARACTERS = 1 << 16
#: Public methods that are no tools.
RESERVED = ("reset", "get_reward")


class _LateError(BaseException):
    """A call has reached its time limit."""


def main(descriptor: int) -> None:
    """Serve one parent: load the file in its first message, then answer requests until it closes the socket."""
    shared = _load_grader_worker()
    parent, task = shared.connect(descriptor)
    if task is None:
        return
    try:
        module = shared.load_module(task["path"], task["source"])
        environment = _find_class(module, task["class"])
        correct_at = shared.find_threshold(module)
    except shared.UnusableFileError as error:
        shared.send(parent, error.reply)
        return
    except _UnusableClassError as error:
        shared.send(parent, {"fault": str(error)})
        return
    loaded = {"has_reward": hasattr(environment, "get_reward"), "correct_at": correct_at}
    if task["with_tools"]:
        loaded |= _describe_tools(environment, shared.reason_of)
    shared.send(parent, loaded)
    signal.signal(signal.SIGALRM, _interrupt)
    process_id, host = os.getpid(), _InstanceHost(environment, shared)
    while (request := shared.receive(parent)) is not None:
        reply = host.answer(request)
        if os.getpid() != process_id:  # the environment forked, and this is the child process
            os._exit(0)
        shared.send(parent, reply)


class _UnusableClassError(Exception):
    """The class is missing, or has another form. The text says why, after the path of the file."""


class _InstanceHost:
    """Instances of the class by number."""

    def __init__(self, environment: type, shared: Any) -> None:
        self._class, self._shared = environment, shared
        self._instances: dict[int, Any] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request."""
        match request["do"]:
            case "reset":
                return self._run(lambda: self._reset(request["instance"], request["fields"]), request["limit_s"])
            case "call":
                return self._call(request)
            case "reward":
                instance = self._instances[request["instance"]]
                return self._run(lambda: self._reward(instance), request["limit_s"])
            case _:
                self._instances.pop(request["instance"], None)
                return {}

    def _reset(self, number: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        instance = self._instances[number] = self._class()
        text = _finish(instance.reset(**_take_fields(instance.reset, fields)))
        return {"text": "" if text is None else self._storable(text)}

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        method = getattr(self._instances[request["instance"]], request["name"])
        try:
            inspect.signature(method).bind(**request["arguments"])
        except TypeError as error:
            return {"fault": f"{request['name']}: {error}"}
        return self._run(lambda: {"text": self._storable(_finish(method(**request["arguments"])))}, request["limit_s"])

    def _reward(self, instance: Any) -> dict[str, Any]:
        reward, answer = self._shared.parse_result(_finish(instance.get_reward()))
        return {"reward": reward, "answer": answer}

    def _run(self, function: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
        try:
            signal.signal(signal.SIGALRM, _interrupt)  # again, because the user's code may have replaced it
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                return function()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
        except _LateError:
            return {"fault": f"no result within {limit_s:g} s", "is_late": True}
        except BaseException as error:  # noqa: BLE001 - the user's code, which may raise SystemExit too
            return {"fault": self._shared.reason_of(error)}

    def _storable(self, value: object) -> str:
        text = str(value)
        cut = f"… ({len(text) - MOST_CHARACTERS} more characters)" if len(text) > MOST_CHARACTERS else ""
        return str(self._shared.storable(text, MOST_CHARACTERS)) + cut


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise _LateError


def _finish(value: Any) -> Any:
    """Return the value, or the result of a coroutine."""
    if inspect.iscoroutine(value):
        import asyncio  # takes longer than the start of the process

        return asyncio.run(value)
    return value


def _take_fields(function: Callable[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a function takes: all if it has ``**keywords``."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(fields)
    return {parameter.name: fields[parameter.name] for parameter in parameters if parameter.name in fields}


def _find_class(module: Any, name: str) -> type:
    found = getattr(module, name, None)
    if not inspect.isclass(found):
        known = [other for other, value in vars(module).items() if inspect.isclass(value)]
        raise _UnusableClassError(f"has no class {name}; it defines {', '.join(known) or 'none'}")
    step = getattr(found, "step", None)
    if callable(step) and list(inspect.signature(step).parameters)[1:2] == ["action"]:
        raise _UnusableClassError(
            f"{name} has step(action), the form of OpenEnv and Gymnasium, which is not supported yet; give it "
            "reset(prompt, answer, …) and one method per tool"
        )
    if not callable(getattr(found, "reset", None)):
        raise _UnusableClassError(f"{name} has no method reset; add reset(self, **problem), which may return a text")
    return found


def _describe_tools(environment: type, reason: Callable[[BaseException], str]) -> dict[str, Any]:
    """Return the JSON schemas of the tools as ``tools``, or a ``fault``."""
    from transformers.utils.chat_template_utils import get_json_schema  # takes seconds

    names = [
        name
        for name in dir(environment)
        if not name.startswith("_") and name not in RESERVED
        if callable(method := getattr(environment, name)) and not inspect.isclass(method)
    ]
    tools = []
    for name in names:
        try:
            tools.append(get_json_schema(getattr(environment, name)))
        except Exception as error:  # noqa: BLE001 - several types of transformers
            return {"fault": f"tool {name}: {reason(error)}"}
    return {"tools": tools}


def _load_grader_worker() -> Any:
    """Return the module of the graders' worker, without the package that contains it."""
    path = Path(__file__).parents[2] / "verifiers" / "own_workers" / "worker.py"
    spec = importlib.util.spec_from_file_location("oversharp_worker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(int(sys.argv[1]))
