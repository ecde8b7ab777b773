"""A judge's TOML file: rubric, model, server, scale and limits.

The judge's verifier name has the hash of the file: ``judge:rubric.toml@3f2a…``. So a changed rubric or model is another
verifier. The API key is not part of the file, which has only the name of its environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast, get_args

from oversharp.diagnostics.http.pace import RequestLimits
from oversharp.diagnostics.http.settings import read_toml, require_keys, require_placeholders, server_url
from oversharp.diagnostics.http.transport import ServerFlags
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.verifiers.names import JUDGE_SPEC

#: How a judge states its verdict. ``json``: an object of a JSON schema that the server enforces. ``line``: a line with
#: a label. ``auto``: ``json`` if the server accepts a schema, else ``line``.
AnswerFormat = Literal["auto", "json", "line"]

#: Version of the instructions that are added to a rubric, and of the parsing of verdicts. Raise it if you change them.
RULES_VERSION = 1
_HASH_DIGITS = 12
_PLACEHOLDERS = ("prompt", "response", "answer")
#: Numbers of the file: smallest and largest value.
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 10.0),
    "repeats": (1, 99),
    "concurrent": (1, 4096),
    "max_tokens": (1, 1 << 20),
    "timeout_s": (0.001, 86400.0),
    "patience_s": (0.0, 1e6),
}
_WHOLE = ("repeats", "concurrent", "max_tokens")
_TEXTS = ("rubric", "model", "url", "api_key_env", "answer_format")
_KEYS = (*_TEXTS, "scale", "threshold", *_NUMBERS)


@dataclass(frozen=True, kw_only=True)
class Rubric:
    """Settings of a judge.

    Attributes:
        spec: path and hash of the file, for messages.
        name: the verifier's name.
        template: text of the request; contains ``{response}``, and may contain ``{prompt}`` and ``{answer}``.
        model, url: model and server; without a model the server's only one.
        api_key_env: environment variable of the API key; None if the server needs no key.
        answer_format: how the judge states its verdict.
        scale: lowest and highest score; None if the verdict is "correct" or "incorrect".
        threshold: smallest score of a correct response; None without a scale.
        temperature: sampling temperature of the judge.
        repeats: number of verdicts per response. A response is correct if most of them accept it.
        max_tokens: token limit of a verdict.
        limits: limits of requests.
    """

    spec: str
    name: str
    template: str
    model: str | None
    url: str
    api_key_env: str | None = None
    answer_format: AnswerFormat = "auto"
    scale: tuple[float, float] | None = None
    threshold: float | None = None
    temperature: float = 0.0
    repeats: int = 1
    max_tokens: int = 1024
    limits: RequestLimits

    @property
    def flags(self) -> ServerFlags:
        """Fields of the file, for errors about the server."""
        return ServerFlags(url=f"url in {self.spec}", model=f"model in {self.spec}", key=f"api_key_env in {self.spec}")

    def api_key(self) -> str | None:
        """Return the API key from the environment. Raises ``ConfigError`` if it is missing."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:  # the value may be the key itself, so the message does not contain it
            raise ConfigError(
                f"--verifier {self.spec}: api_key_env: there is no environment variable of this name; set it, and "
                "write its name into the file, not the key"
            )
        return key


def pin_judge(given: str) -> str:
    """Return ``judge:FILE.toml`` with the hash of the file's content. Raises ``ConfigError``."""
    return f"judge:{read_rubric(given).spec}"


def read_rubric(given: str) -> Rubric:
    """Read the file of ``judge:FILE.toml``.

    Raises ``ConfigError`` for a file that cannot be read, whose hash differs from the hash in ``given``, or with a
    field that is missing, unknown or out of range.
    """
    match = JUDGE_SPEC.fullmatch(given)
    if match is None:
        raise ConfigError(f"--verifier {given}: not judge:FILE.toml")
    path = Path(match["file"]).expanduser()
    where = f"--verifier {given}"
    content, raw = read_toml(where, path)
    digest = sha256(b"%d\0" % RULES_VERSION + raw).hexdigest()[:_HASH_DIGITS]
    if match["code"] not in (None, digest):
        raise ConfigError(
            f"{where}: {path} has changed since (hash {digest}); leave out @{match['code']}, or restore the file"
        )
    require_keys(where, content, _KEYS)
    texts = {key: _text(where, key, content) for key in _TEXTS}
    template = texts["rubric"]
    if template is None:
        raise ConfigError(f'{where}: rubric is missing; add rubric = """… {{prompt}} … {{answer}} … {{response}}"""')
    if "response" not in require_placeholders(f"{where}: rubric", template, _PLACEHOLDERS):
        raise ConfigError(f"{where}: rubric does not contain {{response}}, so the judge would not see the response")
    if texts["url"] is None:
        raise ConfigError(f'{where}: url is missing; add url = "http://127.0.0.1:8000"')
    answer_format = texts["answer_format"] or "auto"
    if answer_format not in get_args(AnswerFormat):
        hint = nearest_names(answer_format, get_args(AnswerFormat))
        raise ConfigError(f"{where}: answer_format = {answer_format!r} is unknown; {hint}")
    numbers = {key: _number(where, key, content[key]) for key in _NUMBERS if key in content}
    limits = {key: numbers.pop(key) for key in ("concurrent", "timeout_s", "patience_s") if key in numbers}
    scale, threshold = _scale(where, content)
    settings: dict[str, Any] = {**numbers}
    return Rubric(
        spec=f"{path}@{digest}",
        name=f"judge:{path.name}@{digest}",
        template=template,
        model=texts["model"],
        url=server_url(f"{where}: url", texts["url"], key_flag="api_key_env"),
        api_key_env=texts["api_key_env"],
        answer_format=cast(AnswerFormat, answer_format),
        scale=scale,
        threshold=threshold,
        limits=RequestLimits(**cast(Any, {"concurrent": 16, "timeout_s": 120.0, **limits})),
        **settings,
    )


def _text(where: str, key: str, content: Mapping[str, Any]) -> str | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise ConfigError(f"{where}: {key} must be text in quotes")
    return value


def _number(where: str, key: str, value: object) -> float | int:
    least, most = _NUMBERS[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{where}: {key} must be a number from {least:g} to {most:g}")
    if key in _WHOLE and value != int(value):
        raise ConfigError(f"{where}: {key} must be a whole number")
    return int(value) if key in _WHOLE else float(value)


def _scale(where: str, content: Mapping[str, Any]) -> tuple[tuple[float, float] | None, float | None]:
    """Return lowest and highest score, and the threshold; None for both without a scale."""
    scale, threshold = content.get("scale"), content.get("threshold")
    if scale is None and threshold is None:
        return None, None
    is_pair = isinstance(scale, list) and len(scale) == 2 and all(map(_is_number, scale)) and scale[0] < scale[1]
    if not is_pair or not _is_number(threshold):
        raise ConfigError(
            f"{where}: scale and threshold must be given together, such as scale = [0, 10], threshold = 7"
        )
    low, high = map(float, cast(list[float], scale))
    smallest = float(cast(float, threshold))
    if not low < smallest <= high:
        raise ConfigError(
            f"{where}: threshold {smallest:g} must be above {low:g} and at most {high:g}, the scale's ends"
        )
    return (low, high), smallest


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
