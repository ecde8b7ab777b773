"""One-line errors for a command line or a path that cannot be used."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from oversharp.diagnostics.records.names import synonym

#: Operating-system errors about a path.
_REFUSALS = (
    errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP,
)  # fmt: skip
#: Characters of a path or a value that an error quotes.
_MOST_SHOWN = 120


def wrong_arguments_text(error: CycloptsError, arguments: Sequence[str], *, commands: Collection[str]) -> str:
    """Return what is wrong with ``arguments`` and what to do, in one line."""
    command = arguments[0] if arguments and arguments[0] in commands else ""
    usage = f"see oversharp {command} --help" if command else "see oversharp --help"
    steps = [one for one in arguments if one.isdigit()]
    if command == "diff" and "--steps" not in arguments and len(steps) == 2:
        return f"diff needs --steps; did you mean --steps {' '.join(steps)}?"
    match error:
        case UnknownOptionError() if error.token.source == "cli":
            option = (error.token.keyword or error.token.value).partition("=")[0]
            flags = [name for one in error.argument_collection if one.parse for name in one.names]
            return f"unknown option: {_shown(option)}; {_nearest(option, flags)}{usage}"
        case UnknownCommandError() if not command:
            return f"unknown command: {_shown(arguments[0])}; {_nearest(arguments[0], commands)}{usage}"
        case MissingArgumentError() if error.argument is not None:
            name = error.keyword or error.argument.name
            is_given = any(one.partition("=")[0] == name for one in arguments)
            return f"{name} {'needs a value' if is_given else 'is missing'}; {usage}"
        case UnusedCliTokensError():
            left = " ".join(map(_shown, error.unused_tokens or []))
            return f"too many arguments: {left}; remove them ({usage})"
    wrong = " ".join(map(_shown, str(error).split()))
    return f"{wrong} ({usage})"


def refused_path_text(error: OSError) -> str | None:
    """Return the error for a file or directory that cannot be used; None for other errors."""
    if error.errno == errno.ENOSPC:
        where = error.filename or "the output directory"
        return f"{where}: the disk is full; free some space and run the same command again"
    if error.errno not in _REFUSALS or not error.filename:
        return None
    where = _shown(str(error.filename))
    return f"{where}: cannot be used ({error.strerror}); pass another path, or change its permissions"


def _nearest(given: str, known: Collection[str]) -> str:
    """Return a question with the option or command that was probably meant, by meaning, then by spelling."""
    plain = {name.lstrip("-").replace("-", "_"): name for name in known}
    meant = plain.get(synonym(given.lstrip("-").replace("-", "_"), plain) or "")
    near = [meant] if meant else get_close_matches(given, known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def _shown(word: str) -> str:
    return word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}…"
