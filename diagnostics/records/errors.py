"""One error type per border. Every message says what, where, and what to do, in one line."""

from __future__ import annotations

LEFT_OUT_EXIT_CODE = 3
"""Of a command that is done, but left out a checkpoint, a kernel, a run or a record, doubts imported grades, or can
recommend no checkpoint."""


class OversharpError(Exception):
    """Base of all errors meant for the user's eyes; the command line prints the message alone."""

    exit_code = 1


class ConfigError(OversharpError):
    """A flag, TOML key or combination of them that cannot work."""

    exit_code = 2


class CheckpointError(OversharpError):
    """A checkpoint or series on disk that cannot be read."""

    exit_code = 9


class ProblemError(OversharpError):
    """A problem file, task or benchmark that cannot be loaded."""

    exit_code = 4


class SamplerError(OversharpError):
    """Generation or scoring failed for a checkpoint."""

    exit_code = 5


class EngineRefusedError(SamplerError):
    """An inference engine does not run this model at all: another sampler may."""


class KernelError(OversharpError):
    """The gradient kernel of a checkpoint cannot be computed, or failed its certificate."""

    exit_code = 10


class KernelTooLargeError(KernelError):
    """More rows than memory; about ``share`` of them would fit."""

    def __init__(self, message: str, share: float = 0.0) -> None:
        super().__init__(message, share)  # both, so that it survives being sent between processes
        self.share = share

    def __str__(self) -> str:
        return str(self.args[0])


class VerifierError(OversharpError):
    """A verifier is unknown or cannot run (a bad response is data, not an error)."""

    exit_code = 6


class StoreError(OversharpError):
    """The DuckDB file cannot be opened, written or understood."""

    exit_code = 7


class TrainingError(OversharpError):
    """A training run that cannot start, continue or finish."""

    exit_code = 8


class ImportFileError(OversharpError):
    """A file of another tool that cannot be read."""

    exit_code = 11


class ClusterError(OversharpError):
    """A Ray cluster that cannot be joined, or has no worker that starts."""

    exit_code = 12


class UnreadableError(OversharpError):
    """With ``--strict``: hardly a response of the base has an answer that can be read."""

    exit_code = 13


def first_line(error: Exception) -> str:
    r"""The first line of another library's message, at most 200 characters; the error's kind where it says nothing.

    >>> first_line(ValueError("\nno such file\nin the folder")), first_line(ValueError())
    ('no such file', 'ValueError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
