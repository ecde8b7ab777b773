"""Where each checkpoint of a series is served: URL, model name, and how the server gets its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args

from oversharp.diagnostics.http.pace import RequestLimits
from oversharp.diagnostics.http.prices import TokenPrices
from oversharp.diagnostics.http.settings import read_toml, require_keys, require_placeholders, server_url
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import Checkpoint, Series

#: How a server gets the weights of a checkpoint. ``names``: it has a model name for each checkpoint. ``adapters``: it
#: loads LoRA adapters on request. ``reload``: it replaces its weights on request. ``serve``: a command starts a server
#: for each checkpoint. ``auto``: the first that the server supports and the series needs.
How = Literal["auto", "names", "adapters", "reload", "serve"]

#: Directory next to the store with the output of the servers that commands started.
LOG_FOLDER = "endpoint-logs"
DEFAULT_KEY_ENV = "OPENAI_API_KEY"
_PLACEHOLDERS = {"model": ("step", "label"), "serve": ("path", "port", "step", "label")}
_KEYS = ("step", "url", "model", "how", "serve")
_NUMBERS = ("timeout_s", "patience_s", "concurrent")


@dataclass(frozen=True, kw_only=True)
class ServedPlace:
    """Where a checkpoint is served.

    ``url`` is None if ``serve``, a command, starts the server at a free port. ``model`` is None if the server has a
    single model.
    """

    url: str | None = None
    model: str | None = None
    how: How = "auto"
    serve: str | None = None


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Settings of the sampler "endpoint". The samples' identities do not depend on them.

    Attributes:
        default: place of each checkpoint that ``by_step`` does not contain; None if it must contain all.
        by_step: step → place.
        file: the TOML file that contains the places, None without one.
        key_env: environment variable of the API key.
        prices: prices of tokens, None if unknown.
        compares_weights: whether this process loads the weights, to compare log-probabilities with the server's.
        scores_responses: whether the server scores given responses. If it cannot, this process loads the weights.
        knows_dtype: whether the user gave the server's floating-point type. Differences that its rounding does not
            explain are then errors.
        log_folder: folder for the output of servers that a command starts.
        limits: limits of requests.
    """

    default: ServedPlace | None = None
    by_step: Mapping[int, ServedPlace] = field(default_factory=dict)
    file: Path | None = None
    key_env: str = DEFAULT_KEY_ENV
    prices: TokenPrices | None = None
    compares_weights: bool = False
    scores_responses: bool = False
    knows_dtype: bool = False
    log_folder: Path = Path(".")
    limits: RequestLimits = field(default_factory=RequestLimits)

    def place_of(self, checkpoint: Checkpoint) -> ServedPlace:
        """Return the place of a checkpoint, with the placeholders of its model name filled.

        Raises ``ConfigError`` if the file does not contain it.
        """
        place = self.by_step.get(checkpoint.step, self.default)
        if place is None:
            raise ConfigError(
                f"--endpoints {self.file}: {checkpoint.label} is missing; add a [[checkpoint]] with "
                f"step = {checkpoint.step}"
            )
        if place.model is None:
            return place
        return replace(place, model=place.model.format(step=checkpoint.step, label=checkpoint.label))

    def require_places(self, series: Series) -> tuple[int, ...]:
        """Return the steps of the file that ``series`` does not have.

        Raises ``ConfigError`` if a checkpoint of ``series`` has no place.
        """
        for checkpoint in series.checkpoints:
            self.place_of(checkpoint)
        return tuple(sorted(self.by_step.keys() - {checkpoint.step for checkpoint in series.checkpoints}))

    @property
    def api_key(self) -> str | None:
        """The API key, read from the environment at each use. It is in no record."""
        return os.environ.get(self.key_env) or None

    def describe(self) -> str:
        """Return the servers' URLs or commands, for a line of the user."""
        places = [*self.by_step.values(), *([] if self.default is None else [self.default])]
        return ", ".join(dict.fromkeys(place.url or f"`{place.serve}`" for place in places))


def make_place(
    flags: Mapping[str, str], *, url: str | None, model: str | None, how: How, serve: str | None
) -> ServedPlace:
    """Return a checked place. ``flags`` maps field names to the flag or the place in a file, for errors."""
    if url is None and serve is None:
        raise ConfigError(f"{flags['url']}: the server is missing; give a URL, or a command that starts a server")
    if url is not None:
        url = server_url(flags["url"], url, key_flag="--api-key-env NAME")
    for name, text in (("model", model), ("serve", serve)):
        if text is not None:
            require_placeholders(flags[name], text, _PLACEHOLDERS[name])
    if serve is not None:
        if "{path}" not in serve:
            raise ConfigError(f"{flags['serve']} {serve!r}: must contain {{path}}, the checkpoint's directory")
        if url is None and "{port}" not in serve:
            raise ConfigError(f"{flags['serve']} {serve!r}: must contain {{port}}, or pass the server's --endpoint URL")
        if how not in ("auto", "serve"):
            raise ConfigError(f"{flags['serve']}: not possible with how = {how!r}; remove one of the two")
        how = "serve"
    elif how == "serve":
        raise ConfigError(
            f'{flags["serve"]}: the command is missing; add serve = "vllm serve {{path}} --port {{port}}"'
        )
    if how == "auto" and model is not None and "{" in model:
        how = "names"
    return ServedPlace(url=url, model=model, how=how, serve=serve)


def read_places(path: Path) -> tuple[dict[int, ServedPlace], RequestLimits]:
    """Read a TOML file with a table ``[[checkpoint]]`` per step, and optional limits.

    ``url``, ``model``, ``how`` and ``serve`` outside of the tables are the defaults of all. Raises ``ConfigError``.
    """
    where = f"--endpoints {path}"
    content, _ = read_toml(where, path)
    tables = content.pop("checkpoint", [])
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        raise ConfigError(f"{where}: no [[checkpoint]] table; add one per checkpoint, with step and url")
    require_keys(where, content, (*_KEYS[1:], *_NUMBERS))
    by_step: dict[int, ServedPlace] = {}
    for number, table in enumerate(tables, start=1):
        at = f"{where}: [[checkpoint]] {number}"
        require_keys(at, table, _KEYS)
        given = {**{key: content.get(key) for key in _KEYS}, **table}
        step = given.pop("step")
        if not isinstance(step, int) or isinstance(step, bool):
            raise ConfigError(f"{at}: step must be a whole number, the checkpoint's step")
        if step in by_step:
            raise ConfigError(f"{at}: step {step} is listed twice; remove one")
        for key, value in given.items():
            if value is not None and not isinstance(value, str):
                raise ConfigError(f"{at}: {key} must be text in quotes")
        how = given["how"] or "auto"
        if how not in get_args(How):
            raise ConfigError(f"{at}: how = {how!r} is unknown; {nearest_names(how, get_args(How))}")
        flags = {key: f"{at}: {key}" for key in _KEYS}
        by_step[step] = make_place(flags, **{**given, "how": cast(How, how)})
    _require_one_way(where, by_step)
    limits = {key: content[key] for key in _NUMBERS if key in content}
    for key, value in limits.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:
            raise ConfigError(f"{where}: {key} must be a number above 0")
    if "concurrent" in limits:
        limits["concurrent"] = max(1, int(limits["concurrent"]))
    return by_step, RequestLimits(**limits)


def _require_one_way(where: str, by_step: Mapping[int, ServedPlace]) -> None:
    """Raise ``ConfigError`` if a server replaces its weights for some steps, and other steps need a name of it."""
    reloaded = {place.url: step for step, place in by_step.items() if place.how == "reload"}
    for step, place in by_step.items():
        if place.url in reloaded and place.how != "reload":
            raise ConfigError(
                f"{where}: {place.url} replaces its weights at step {reloaded[place.url]}, so step {step} may get "
                'these; add how = "reload" to it, or give it another url'
            )
