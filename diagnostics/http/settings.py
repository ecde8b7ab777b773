"""Read and check files and flags that define a server."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.files import read_small
from oversharp.diagnostics.records.names import nearest_names


def server_url(flag: str, given: str, *, key_flag: str) -> str:
    """Return the URL of a server without ``/v1``.

    ``flag`` and ``key_flag`` are named in errors. Raises ``ConfigError`` for other text, and for a URL that contains a
    key.

    >>> server_url("--endpoint", "http://127.0.0.1:8000/v1/", key_flag="--api-key-env NAME")
    'http://127.0.0.1:8000'
    """
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{flag} {given}: not a URL; write it as http://127.0.0.1:8000")
    if parts.username or parts.password or parts.query:
        raise ConfigError(f"{flag}: contains a name, password or query; pass the key by {key_flag}")
    return given.rstrip("/").removesuffix("/v1")


def read_toml(where: str, path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the content of a TOML file, parsed and as bytes. Raises ``ConfigError``."""
    try:
        raw = read_small(path)
        return tomllib.loads(raw.decode()), raw
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not TOML ({error})") from None


def require_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ``ConfigError`` for a key of a TOML table that is not ``known``."""
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: {key} is unknown; {nearest_names(key, known)}")


def require_placeholders(flag: str, text: str, known: Sequence[str]) -> frozenset[str]:
    """Return the placeholders of a template. Raises ``ConfigError`` for a placeholder that is not ``known``."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}: {error}; write a brace as {{{{ or }}}}") from None
    for name in names:
        if name not in known:
            listed = ", ".join(f"{{{each}}}" for each in known)
            raise ConfigError(
                f"{flag} {text!r}: {{{name}}} is unknown; use {listed}, and write other braces as {{{{ }}}}"
            )
    return frozenset(names)
