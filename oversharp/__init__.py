"""oversharp: did this RLVR run make the model better, or did it only sharpen it until it forgot?

The verbs of the command line are functions here, beside their settings and results; ``docs/api.md`` lists them.
Nothing heavy is loaded before a verb is called. ``python -m oversharp`` is the command.

>>> import oversharp
>>> print(oversharp.explain("token_entropy").splitlines()[0])
token_entropy: Token entropy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.app import api as _api

if TYPE_CHECKING:
    from oversharp.diagnostics.app.api import *  # noqa: F403

    __version__: str

__all__ = _api.__all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _api.version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_api, name)


def __dir__() -> list[str]:
    return list(__all__)
