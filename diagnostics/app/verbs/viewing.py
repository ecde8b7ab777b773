"""``oversharp view``: problems and responses of a store in the browser, or a static copy of some."""

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
    """Read problems and responses in the browser, two checkpoints beside each other; nothing is changed.

    The page is for this machine alone, at an address with a random token in it, and asks for nothing elsewhere. Ctrl-C
    ends it; until then no audit can write to the store.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    series
        Name of the series to begin with. Default: the first.
    step
        The later checkpoint to begin with. Default: the last.
    since
        What it is compared with. Default: the base.
    only
        Problems to begin with: those that lost every correct sample, gained a first one, fell, rose, surely changed
        (sure), have accepted responses with several boxes or that the problem's own verifier refuses (lenient), or
        responses that were cut off (cut).
    search
        A text to begin with: in prompt, gold, id, or a response of the two checkpoints; letter case does not count.
    bundle
        Write a static copy of this selection to a new directory in place of serving: it opens from disk, or from any
        web server, and can be shared.
    most
        So many problems of the selection are copied, the surest change first.
    port
        Where to serve. Default: a free one.
    no_open
        Only print the address.
    memory_gib
        Most memory for queries, in GiB. Default: 0.5.
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
        chosen = replace(_selection(viewer, series, since, step), only=only, search=search)
        if place is None:
            return _copy(viewer, chosen, bundle or Path(), most, progress)
        return _serve(viewer, chosen, place, no_open=no_open)


def _place(bundle: Path | None, port: int) -> AbstractContextManager[socket.socket | None]:
    """Where to serve; None for a copy. What cannot be used is refused before the store is read."""
    from oversharp.diagnostics.viewer.bundle import require_bundle_place
    from oversharp.diagnostics.viewer.server import listen

    if bundle is None:
        return listen(port)
    require_bundle_place(bundle)
    return nullcontext()


def _selection(viewer: Viewer, series: str | None, since: int | None, step: int | None) -> ViewSelection:
    names = [one.name for one in viewer.series]
    before = None if since is None else str(since)
    return viewer.selection(series or names[0], before, None if step is None else str(step))


def _copy(viewer: Viewer, chosen: ViewSelection, folder: Path, most: int, progress: ProgressSink) -> int:
    from oversharp.diagnostics.viewer.bundle import write_bundle

    written = write_bundle(viewer, chosen, folder, most=most, stage=progress.stage)
    left = written.n_selected - written.n_problems
    more = f"; --most {written.n_selected} takes the other {left} too" if left else ""
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
    viewer.problems(chosen)  # what the page asks for first is at hand then
    start = ViewStart(store=viewer.store_name, series=viewer.series, selection=chosen)
    server = create_server(create_app(viewer, start, token))
    print(address, flush=True)
    print("Ctrl-C ends it; until then no audit can write to the store", file=sys.stderr)
    if not no_open and _has_screen():
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[place])
    return 0


def _has_screen() -> bool:
    """Whether a browser would open in a window: without one, Python starts a text browser in this very terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
