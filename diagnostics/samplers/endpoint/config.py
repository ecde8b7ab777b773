"""Flags of the sampler "endpoint"."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from oversharp.diagnostics.http.prices import TokenPrices
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.samplers.endpoint.places import (
    DEFAULT_KEY_ENV,
    EndpointSettings,
    make_place,
    read_places,
)

ENDPOINT = Parameter(group=Group("Endpoint", sort_key=7))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Servers that sample in place of this machine. Samples do not depend on the URL.

    Attributes
    ----------
    endpoint
        URL of an OpenAI-compatible server, such as http://127.0.0.1:8000. It must see the checkpoints at the same
        paths, or have a model name for each: see --model.
    model
        Name of the model on the server; may contain {step} or {label} of the checkpoint. Default: its only model. If
        all checkpoints have the same name, the server is asked to load each adapter or to replace its weights.
    serve
        Command that starts a server for a checkpoint. It contains {path} and {port}; it may contain {step} and {label}.
        The server is stopped afterwards. Its output is in the directory endpoint-logs in --out.
    endpoints
        TOML file with a table [[checkpoint]] for each checkpoint: step, url, model, how.
    api_key_env
        Environment variable that has the API key. Default: OPENAI_API_KEY, if it is set.
    prices
        Prices of a million tokens of prompts and of responses, such as 0.15,0.60. The cost is printed and stored.
    """

    endpoint: Annotated[str | None, ENDPOINT] = None
    model: Annotated[str | None, ENDPOINT] = None
    serve: Annotated[str | None, ENDPOINT] = None
    endpoints: Annotated[Path | None, ENDPOINT] = None
    api_key_env: Annotated[str | None, ENDPOINT] = None
    prices: Annotated[str | None, ENDPOINT] = None

    @property
    def has_endpoint(self) -> bool:
        """Whether a server or a command is given."""
        return (self.endpoint, self.serve, self.endpoints) != (None, None, None)

    def require_endpoint(self, sampler: str, *, uses_ray: bool) -> None:
        """Raise ``ConfigError`` for servers that are wrong, or that do not fit the sampler.

        The file of ``--endpoints`` is not read yet.
        """
        if self.api_key_env is not None and not os.environ.get(self.api_key_env):
            raise ConfigError(
                f"--api-key-env{_safe_name(self.api_key_env)}: there is no environment variable of this name; pass the "
                "name of the variable that contains the key, not the key"
            )
        others = {"--endpoint": self.endpoint, "--model": self.model, "--serve": self.serve}
        given = [flag for flag, value in others.items() if value is not None]
        if self.endpoints is not None and given:
            raise ConfigError(f"{given[0]}: --endpoints has the servers; remove one of the two")
        others = {"--api-key-env": self.api_key_env, "--prices": self.prices}
        left = given or [flag for flag, value in others.items() if value]
        if left and not self.has_endpoint:
            raise ConfigError(f"{left[0]}: no server is given; add --endpoint URL, --serve COMMAND or --endpoints FILE")
        if self.endpoints is None:
            self.endpoint_settings(Path("."), compares_weights=False)
        if self.has_endpoint and sampler not in ("auto", "endpoint"):
            raise ConfigError(
                f"--sampler {sampler}: samples on this machine, but a server is given; remove --sampler, or the flags "
                "of the server"
            )
        if sampler == "endpoint" and not self.has_endpoint:
            raise ConfigError(
                "--sampler endpoint: no server is given; add --endpoint URL, --serve COMMAND or --endpoints FILE"
            )
        if self.has_endpoint and uses_ray:
            raise ConfigError("--ray: the server samples, so workers would be idle; remove --ray")

    def endpoint_settings(
        self, log_folder: Path, *, compares_weights: bool, scores_responses: bool = False, knows_dtype: bool = False
    ) -> EndpointSettings | None:
        """Return the resolved settings, None if no server is given. Raises ``ConfigError``.

        The arguments are fields of ``EndpointSettings``.
        """
        if not self.has_endpoint:
            return None
        key_env = self.api_key_env or DEFAULT_KEY_ENV
        prices = None if self.prices is None else TokenPrices.parse(self.prices)
        if self.endpoints is not None:
            by_step, limits = read_places(self.endpoints)
            return EndpointSettings(
                by_step=by_step,
                file=self.endpoints,
                key_env=key_env,
                prices=prices,
                compares_weights=compares_weights,
                scores_responses=scores_responses,
                knows_dtype=knows_dtype,
                log_folder=log_folder,
                limits=limits,
            )
        flags = {"url": "--endpoint", "model": "--model", "serve": "--serve"}
        place = make_place(flags, url=self.endpoint, model=self.model, how="auto", serve=self.serve)
        return EndpointSettings(
            default=place,
            key_env=key_env,
            prices=prices,
            compares_weights=compares_weights,
            scores_responses=scores_responses,
            knows_dtype=knows_dtype,
            log_folder=log_folder,
        )


def _safe_name(given: str) -> str:
    """Return the name for an error, nothing if it may be a key.

    >>> _safe_name("LAB_KEY"), _safe_name("sk-proj-1a2b3c4d5e6f")
    (' LAB_KEY', '')
    """
    return f" {given}" if re.fullmatch(r"[A-Z][A-Z_]{0,40}", given) else ""
