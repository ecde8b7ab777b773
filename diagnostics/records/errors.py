"""Error types, one per kind of input or component.

Every message states in one line what is wrong, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

#: Python arguments whose command-line flag has another name.
FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "allow_loss_points": "--allow-loss",
        "drop_points": "--drop",
        "figures": "--figure",
        "formats": "--format",
    }
)
#: A quoted command with its flags and paths, or a flag outside of one.
_COMMAND_OR_FLAG = re.compile(
    r"(?P<command>`[^`]*`|\boversharp [a-z-]+(?: (?:--[a-z-]+|[A-Z./…][^\s;,)]*))*)"
    r"|--(?P<flag>[a-z][a-z0-9-]*)(?P<end>:?)"
)
_FIRST_FLAG = re.compile(r"--([a-z][a-z0-9-]*) (.+?): ")

LEFT_OUT_EXIT_CODE = 3
"""Exit status of a command that finished with warnings.

It excluded a checkpoint, a kernel, a run or a record, found imported grades doubtful, or could recommend no checkpoint.
"""


class OversharpError(Exception):
    """Base class of all errors meant for users. The command line prints only the message.

    Messages refer to settings as flags: ``--most 0: must be 1 or more``. Errors of the Python API refer to arguments
    instead (``records.arguments``). They keep the message with flags as ``as_flags``.
    """

    exit_code = 1
    _as_flags: str | None = None

    @property
    def as_flags(self) -> str:
        """The message with flags, as the command line prints it."""
        return str(self) if self._as_flags is None else self._as_flags

    def name_arguments(self) -> None:
        """Make ``str`` return the message with Python arguments instead of flags."""
        if self._as_flags is None:
            self._as_flags = str(self)
            self.args = (with_arguments(self._as_flags), *self.args[1:])


def with_arguments(message: str) -> str:
    """Replace flags in ``message`` by Python arguments, except in quoted commands.

    >>> with_arguments("--most 0: must be 1 or more; pass --series, or run `oversharp audit --out DIR` first")
    'most=0: must be 1 or more; pass series=, or run `oversharp audit --out DIR` first'
    >>> with_arguments("exists; pass --replace (oversharp report --replace writes over it)")
    'exists; pass replace= (oversharp report --replace writes over it)'
    >>> with_arguments("--allow-loss 200: must be below 100"), with_arguments("--step: there are no samples of step 5")
    ('allow_loss_points=200: must be below 100', 'step: there are no samples of step 5')
    >>> with_arguments("--out /a/b:c: is a file")
    'out=/a/b:c: is a file'
    """
    first = _FIRST_FLAG.match(message)
    if first:
        return f"{_argument(first[1])}={first[2]}: {with_arguments(message[first.end() :])}"
    return _COMMAND_OR_FLAG.sub(_replace_flag, message)


def _replace_flag(match: re.Match[str]) -> str:
    if match["command"]:
        return match[0]
    return f"{_argument(match['flag'])}{match['end'] or '='}"


def _argument(flag: str) -> str:
    known = {name: argument for argument, name in FLAGS.items()}
    return known.get(f"--{flag}", flag.replace("-", "_"))


class ConfigError(OversharpError):
    """A flag, a TOML key, or a combination of them cannot work."""

    exit_code = 2


class CheckpointError(OversharpError):
    """A checkpoint or series on disk cannot be read."""

    exit_code = 9


class ProblemError(OversharpError):
    """A problem file, task or benchmark cannot be loaded."""

    exit_code = 4


class SamplerError(OversharpError):
    """Generation or scoring failed for a checkpoint."""

    exit_code = 5


class EngineRefusedError(SamplerError):
    """An inference engine does not support this model. Another sampler may support it."""


class EndpointError(SamplerError):
    """A server that samples cannot be reached, refuses a request, or returns wrong results."""


class KernelError(OversharpError):
    """The gradient kernel of a checkpoint cannot be computed, or its certificate failed."""

    exit_code = 10


class KernelTooLargeError(KernelError):
    """The rows of the kernel exceed the memory. About ``share`` of them would fit."""

    def __init__(self, message: str, share: float = 0.0) -> None:
        super().__init__(message, share)  # pass both, so that the error can be pickled between processes
        self.share = share

    def __str__(self) -> str:
        return str(self.args[0])


class VerifierError(OversharpError):
    """A verifier is unknown or cannot run. A bad response is data, not an error."""

    exit_code = 6


class StoreError(OversharpError):
    """The DuckDB file cannot be opened, written or interpreted."""

    exit_code = 7


class TrainingError(OversharpError):
    """A training run cannot start, continue or finish."""

    exit_code = 8


class ImportFileError(OversharpError):
    """A file of another tool cannot be read."""

    exit_code = 11


class ClusterError(OversharpError):
    """A Ray cluster cannot be joined, or none of its workers starts."""

    exit_code = 12


class UnreadableError(OversharpError):
    """With ``--strict``: too few responses of the base have an answer that can be parsed."""

    exit_code = 13


class RetryLater(Exception):  # noqa: N818 - an instruction of a user's grader, not a fault
    """Raised by a function of ``--verifier FILE.py:function`` to be called again with the same response.

    For errors that pass, such as the rate limit of a judge. ``after_s`` is the time until the next try in seconds, by
    default 1 s, doubled at each try. After six tries the response has the state ``error``, with the message.
    """

    def __init__(self, message: str = "", *, after_s: float | None = None) -> None:
        super().__init__(*filter(None, [message]))
        self.after_s = after_s


def first_line(error: Exception) -> str:
    r"""Return the first line of a library's error message, at most 200 characters.

    If the message is empty, return the type of the error.

    >>> first_line(ValueError("\nno such file\nin the folder")), first_line(ValueError())
    ('no such file', 'ValueError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


#: Number of bytes at the start of a file that ``detect_stand_in`` needs.
START_BYTES = 512
_LFS = b"version https://git-lfs.github.com/spec/"
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head)\b", re.IGNORECASE)


def detect_stand_in(start: bytes) -> str | None:
    """Return the reason if the first bytes of a file are a Git LFS pointer or an HTML page; else None.

    >>> detect_stand_in(b"version https://git-lfs.github.com/spec/v1\\noid sha256:00")
    'is a Git LFS pointer, not the file; run `git lfs pull` in its repository'
    """
    if start.startswith(_LFS):
        return "is a Git LFS pointer, not the file; run `git lfs pull` in its repository"
    if _HTML.match(start):
        return "is a web page (HTML), not the file; download the file itself"
    return None
