"""Isolation of untrusted programs: the back ends of this machine, strongest first.

Each back end is a command that starts a Python interpreter in a jail. The jail sees a read-only /usr, an empty
read-only root, /proc and three devices. It has no network, and its own processes, users and mounts. If oversharp runs
as root, jails run as the user with the number 65534, because limits on processes do not apply to root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from oversharp.diagnostics.records.errors import ConfigError, VerifierError

UNPRIVILEGED = 65534
#: Names of the back ends, as recorded with grades and printed by ``oversharp doctor``; strongest first.
BUBBLEWRAP, NAMESPACES, UNSANDBOXED = "bubblewrap", "namespaces", "unsandboxed"
#: Interpreters in a folder that every jail sees. One in a user's home may be unreadable for another user.
_INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
#: The same program gives the same result in each run.
_ENVIRONMENT: Mapping[str, str] = MappingProxyType({"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "HOME": "/", "PATH": ""})
_FLAGS = ("-s", "-S", "-B")
_BUBBLEWRAP = """
    --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc
    --dir /dev --dev-bind /dev/null /dev/null --dev-bind /dev/zero /dev/zero --dev-bind /dev/urandom /dev/urandom
    --dir /tmp --remount-ro / --unshare-all --die-with-parent --new-session --as-pid-1 --cap-drop ALL --chdir /tmp
"""
#: The same with the tools of util-linux. As process 1 the interpreter gets no signal from the jail. Without
#: capabilities it cannot change the mounts.
_NAMESPACES = """
mount -t tmpfs -o size=1m,mode=755 none /tmp
cd /tmp
mkdir usr proc dev tmp old
mount --rbind /usr usr
mount -o remount,bind,ro usr
for link in bin lib lib64; do [ ! -e /$link ] || ln -s usr/$link $link; done
mount -t proc proc proc
for device in null zero urandom; do : > dev/$device; mount --bind /dev/$device dev/$device; done
mount -o remount,bind,ro /tmp
pivot_root . old
umount -l /old
cd /tmp
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""
_UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount"),
    *("--propagation", "private", "sh", "-ec", _NAMESPACES, "jail"),
)
_allows_unsandboxed = False
_server_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A way to isolate programs: its name, and the command before the interpreter's."""

    name: str
    command: tuple[str, ...]

    def start(self, code: tuple[str, ...], control: int) -> subprocess.Popen[bytes]:
        """Start the jail's interpreter with ``code`` as its arguments. It inherits the descriptor ``control``."""
        is_root = os.geteuid() == 0
        command = [*self.command, interpreter(), *_FLAGS, *code]
        path = os.environ.get("PATH", os.defpath)  # to find the back end's command
        return subprocess.Popen(
            command if not self.command else [shutil.which(command[0], path=path) or command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(control,),
            env={**_ENVIRONMENT, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            start_new_session=True,
            user=UNPRIVILEGED if is_root else None,
            group=UNPRIVILEGED if is_root else None,
            extra_groups=[] if is_root else None,
        )


def all_backends() -> tuple[Backend, ...]:
    """Return the back ends whose commands are installed, strongest first. They may not work here."""
    known = (
        Backend(name=BUBBLEWRAP, command=("bwrap", *_BUBBLEWRAP.split())),
        Backend(name=NAMESPACES, command=_UNSHARE),
        Backend(name=UNSANDBOXED, command=()),
    )
    return tuple(backend for backend in known if not backend.command or shutil.which(backend.command[0]))


def allow_unsandboxed() -> None:
    """Let this process run programs without isolation if no back end works. Only the user's flag may call this."""
    global _allows_unsandboxed
    _allows_unsandboxed = True


def allows_unsandboxed() -> bool:
    """Return whether programs may run without isolation."""
    return _allows_unsandboxed


def use_server(url: str) -> None:
    """Run the programs of this process on a SandboxFusion server. Only the user's flag may call this.

    Raises ``ConfigError`` if ``url`` is not an address.
    """
    global _server_url
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--sandbox-url {url}: not an address; give http://HOST:PORT of a SandboxFusion server")
    _server_url = url


def server_url() -> str | None:
    """Return the address of the server that runs programs; None if they run on this machine."""
    return _server_url


@cache
def interpreter() -> str:
    """Return the path of the Python that runs programs.

    Raises ``VerifierError`` if there is none in a folder that jails see.
    """
    own = os.path.realpath(sys.executable)
    for path in (*_INTERPRETERS, own if own.startswith("/usr/") else ""):
        if path and os.access(path, os.X_OK):
            return path
    raise VerifierError(f"code tasks need one of {', '.join(_INTERPRETERS)}; install Python with the system's packages")
