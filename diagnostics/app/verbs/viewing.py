"""The command ``view``: show a store in the browser, or write a static copy."""

from __future__ import annotations

import os
import secrets
import sys
import webbrowser
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.app.commands import Flag, Quiet, progress_sink
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import store_file
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.settings import require_memory
from oversharp.diagnostics.viewer.records import Only

if TYPE_CHECKING:
    import socket

    from oversharp.diagnostics.viewer.records import ViewSelection
    from oversharp.diagnostics.viewer.viewer import Viewer


def view(
    store: Path,
    /,
    *,
    series: str | None = None,
    step: int | None = None,
    since: int | None = None,
    only: Only = "all",
    search: str = "",
    bundle: Path | None = None,
    most: int = 100,
    port: int = 0,
    no_open: Flag = False,
    memory_gib: float | None = None,
    quiet: Quiet = False,
) -> int:
    """Show problems and responses of two checkpoints side by side in the browser, read-only.

    The page is served only to this machine, at an address with a random token. It loads nothing from other hosts.
    Ctrl-C ends the server. Until then, no audit can write to the store.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Name of the series to show first. Default: the first.
    step
        The later checkpoint to show first. Default: the last.
    since
        The checkpoint to compare with. Default: the base.
    only
        Problems to show first: lost, gained, fell, rose, changed significantly (sure), with accepted responses that
        have several boxes or that the problem's own verifier rejects (lenient), or with truncated responses (cut).
    search
        Text to search for in prompt, gold, id, and in the responses of the two checkpoints with their tool calls and
        observations; case-insensitive.
    bundle
        Write a static copy of this selection to a new directory instead of serving it. It opens from disk or from any
        web server, and can be shared.
    most
        Number of problems to copy, those with the smallest p first.
    port
        Port to serve on. Default: a free one.
    no_open
        Print the address only.
    memory_gib
        Memory limit for queries, in GiB. Default: 0.5.
    """
    from oversharp.diagnostics.viewer.listing import MEMORY_GIB, open_viewed
    from oversharp.diagnostics.viewer.viewer import Viewer

    require_memory(memory_gib)
    store = store_file(store)
    if most < 1:
        raise ConfigError(f"--most {most}: must be 1 or more")
    progress = progress_sink(quiet)
    stage = partial(progress.stage, "count samples")
    with _place(bundle, port) as place, open_viewed(store, stage, memory_gib or MEMORY_GIB, series=series) as opened:
        for note in opened.notes:
            print(f"note: {note}", file=sys.stderr)
        viewer = Viewer(opened)
        before, after = (None if number is None else str(number) for number in (since, step))
        chosen = replace(viewer.selection(series or viewer.series[0].name, before, after), only=only, search=search)
        if place is None:
            return _copy(viewer, chosen, bundle or Path(), most, progress)
        return _serve(viewer, chosen, place, no_open=no_open)


def _place(bundle: Path | None, port: int) -> AbstractContextManager[socket.socket | None]:
    """Return the socket to serve on; None for a copy.

    Raises ``ConfigError`` before the store is read.
    """
    from oversharp.diagnostics.viewer.bundle import require_bundle_place
    from oversharp.diagnostics.viewer.server import listen

    if bundle is None:
        return listen(port)
    require_bundle_place(bundle)
    return nullcontext()


def _copy(viewer: Viewer, chosen: ViewSelection, folder: Path, most: int, progress: ProgressSink) -> int:
    from oversharp.diagnostics.viewer.bundle import write_bundle

    written = write_bundle(viewer, chosen, folder, most=most, stage=progress.stage)
    left = written.n_selected - written.n_problems
    more = f"; --most {written.n_selected} also copies the other {left}" if left else ""
    print(
        f"{folder / 'index.html'}: {plural(written.n_problems, 'problem')}, "
        f"{plural(written.n_responses, 'response')}, {written.n_bytes / 1e6:.1f} MB{more}"
    )
    return 0


def _serve(viewer: Viewer, chosen: ViewSelection, place: socket.socket, *, no_open: bool) -> int:
    from oversharp.diagnostics.viewer.records import ViewStart
    from oversharp.diagnostics.viewer.server import ADDRESS, create_app, create_server

    token = secrets.token_urlsafe(24)
    address = f"http://{ADDRESS}:{place.getsockname()[1]}/{token}/"
    viewer.problems(chosen)  # cache the response to the page's first request
    start = ViewStart(store=viewer.store_name, series=viewer.series, selection=chosen)
    server = create_server(create_app(viewer, start, token))
    print(address, flush=True)
    print("press Ctrl-C to stop; until then no audit can write to the store", file=sys.stderr)
    if not no_open and _has_screen():
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[place])
    return 0


def _has_screen() -> bool:
    """Return whether a browser would open in a window.

    Otherwise Python starts a text browser in this terminal.
    """
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
