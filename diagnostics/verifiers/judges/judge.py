"""Verifier ``judge:FILE.toml``: a model behind a server grades responses by the rubric in the file.

Only a flag can load a file. A name in a problem file or in a store loads nothing, because the API key would be sent to
the URL in the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.http.transport import BadReplyError, RefusedError, Transport
from oversharp.diagnostics.records.errors import ConfigError, EndpointError, VerifierError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.judges.asking import JudgeCall, parse_verdict, reply_text, request_body
from oversharp.diagnostics.verifiers.judges.rubric import Rubric, read_rubric

#: Requests for one verdict until a reply contains one.
MOST_ATTEMPTS = 3
#: Status codes with which servers refuse a JSON schema, or a response that is too long for the model.
_REFUSED = (400, 404, 413, 415, 422)

#: Judges that the user passed with a flag, by verifier name.
_NAMED: dict[str, Rubric] = {}


def judge_named_by_user(given: str) -> str:
    """Read the file of ``judge:FILE.toml`` and return its verifier's name, which is valid in this process.

    Raises ``ConfigError`` for a file that cannot be used, or if the API key is missing.
    """
    rubric = read_rubric(given)
    rubric.api_key()
    _NAMED[rubric.name] = rubric
    return rubric.name


class JudgeVerifier:
    """Grade with a model behind a server.

    A response is correct if most of the rubric's ``repeats`` accept it. Repeats without a verdict do not count. If
    there is none at all, the state is ``error``, also if the server refuses a response that is too long for it. Raises
    ``ConfigError`` for a name that was not passed with a flag.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        rubric = _NAMED.get(name)
        if rubric is None:
            raise ConfigError(
                f"verifier {name!r} is a judge, which a data file cannot load; pass it with --verifier judge:FILE.toml"
            )
        self.rubric = rubric
        self._transport: Transport | None = None
        self._model: str | None = None
        self._uses_schema = rubric.answer_format != "line"
        self._is_accepted = self._is_schema_accepted = False  # whether the server has accepted a request, and a schema
        self._is_interrupted = self._was_called = False

    @property
    def most_calls(self) -> int:
        """Largest number of responses that are graded at a time."""
        return max(1, self.rubric.limits.concurrent // self.rubric.repeats)

    def check_gold(self, problem: Problem) -> None:
        """Grade the first problem's answer, once.

        Raises ``ConfigError`` if the server, the model or the judge's reply cannot be used, because the fault is not in
        this problem.
        """
        if self._was_called:
            return
        try:
            verdicts = self.ask([JudgeCall(problem=problem, response=problem.gold)])
        except EndpointError as error:
            raise ConfigError(f"--verifier {self.rubric.spec}: {error}") from None
        if isinstance(verdicts[0], str):
            raise ConfigError(
                f"--verifier {self.rubric.spec}: {verdicts[0]} about the first problem's answer; raise "
                "max_tokens, or use a model that follows the instruction"
            )
        self._was_called = True

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order."""
        repeats = range(self.rubric.repeats)
        calls = [JudgeCall(problem=problem, response=text, repeat=k) for problem, text in items for k in repeats]
        verdicts = self.ask(calls)
        return [
            _grade(text, verdicts[place * len(repeats) : (place + 1) * len(repeats)])
            for place, (_, text) in enumerate(items)
        ]

    def ask(self, calls: Sequence[JudgeCall]) -> list[bool | str]:
        """Return whether the judge accepts each response, in order; the reason if there is no verdict.

        Raises ``EndpointError`` if the server refuses or does not answer, ``VerifierError`` if interrupted.
        """
        transport = self._open()
        verdict_at: dict[int, bool | str] = {}
        for (place, _), verdict in transport.stream(enumerate(calls), self._ask_until_parsed):
            verdict_at[place] = verdict
            if self._is_interrupted:
                raise _interrupt_error(self.name)
        return [verdict_at[place] for place in range(len(calls))]

    def interrupt(self, *, is_on: bool) -> None:
        """Make an ``ask`` of another thread raise ``VerifierError`` soon, until it is called with False."""
        self._is_interrupted = is_on
        if is_on and self._transport is not None:
            self._transport.interrupt(_interrupt_error(self.name))

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _open(self) -> Transport:
        if self._transport is None:
            key, rubric = self.rubric.api_key(), self.rubric
            self._transport = Transport(
                rubric.url,
                api_key=key,
                key_name=rubric.api_key_env or "",
                flags=rubric.flags,
                limits=rubric.limits,
            )
        if self._model is None:
            self._model = self._find_model(self._transport)
        return self._transport

    def _find_model(self, transport: Transport) -> str:
        """Return the rubric's model, else the server's only one. Raises ``EndpointError``."""
        status, content = transport.run(transport.get("/v1/models"))
        if status in (401, 403):
            raise transport.refusal("/v1/models", status)
        rows = content.get("data") if isinstance(content, dict) else None
        names = [str(row.get("id")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        if self.rubric.model is None:
            if len(names) == 1:
                return names[0]
            raise EndpointError(
                f"{transport.url}: has {', '.join(names) or 'no list of models'}; add model to the file"
            )
        if names and self.rubric.model not in names:
            shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise EndpointError(
                f"{transport.url}: does not have the model {self.rubric.model!r}, but {shown}; correct model"
            )
        return self.rubric.model

    async def _ask_until_parsed(self, item: tuple[int, JudgeCall]) -> bool | str:
        for attempt in range(MOST_ATTEMPTS):
            try:
                reply = await self._ask_once(item[1], attempt)
            except RefusedError as error:
                if not self._is_accepted or error.status not in _REFUSED:
                    raise
                return str(error)  # other requests were accepted, so the fault is in this response
            verdict = parse_verdict(self.rubric, reply)
            if verdict is not None:
                return verdict
        return f"no verdict in {MOST_ATTEMPTS} replies"

    async def _ask_once(self, call: JudgeCall, attempt: int) -> str:
        assert self._transport is not None
        assert self._model is not None
        uses_schema = self._uses_schema
        body = request_body(self.rubric, self._model, call, uses_schema=uses_schema, attempt=attempt)
        try:
            reply = await self._transport.post("/v1/chat/completions", body, _check_reply)
        except RefusedError as error:
            may_be_schema = uses_schema and not self._is_schema_accepted and self.rubric.answer_format == "auto"
            if not may_be_schema or error.status not in _REFUSED:
                raise
            body = request_body(self.rubric, self._model, call, uses_schema=False, attempt=attempt)
            reply = await self._transport.post("/v1/chat/completions", body, _check_reply)
            self._uses_schema = uses_schema = False
        self._is_accepted = True
        self._is_schema_accepted |= uses_schema
        return reply


def _interrupt_error(name: str) -> VerifierError:
    return VerifierError(f"{name}: grading was interrupted")


def _check_reply(content: object) -> str:
    try:
        return reply_text(content)
    except ValueError as error:
        raise BadReplyError(str(error)) from None


def _grade(text: str, verdicts: Sequence[bool | str]) -> Grade:
    from oversharp.diagnostics.verifiers.exact import exact_answer  # compiles many patterns
    from oversharp.diagnostics.verifiers.own_workers.worker import (
        MAX_ANSWER_CHARACTERS,
        MAX_REASON_CHARACTERS,
        storable,
    )

    known = [verdict for verdict in verdicts if isinstance(verdict, bool)]
    if not known:
        reason = storable(str(verdicts[0]), MAX_REASON_CHARACTERS)
        return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="error", reason=reason)
    answer = storable(exact_answer(text) or "", MAX_ANSWER_CHARACTERS) or NO_ANSWER
    return Grade(answer=answer, mode=None, reward=float(2 * sum(known) > len(known)))
