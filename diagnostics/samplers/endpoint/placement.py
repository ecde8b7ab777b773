"""Put a checkpoint behind a URL, by one of the ways in ``places.How``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from oversharp.diagnostics.http.transport import Transport
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.endpoint.commands import CommandServer
from oversharp.diagnostics.samplers.endpoint.completions import CompletionClient
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, ServedPlace
from oversharp.diagnostics.samplers.endpoint.servers import (
    ServerInfo,
    load_adapter,
    read_server,
    reload_weights,
    require_model,
    serves_version,
)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A checkpoint behind a URL: the client of its server, and its model name."""

    client: CompletionClient
    model: str


@dataclass(kw_only=True)
class _OpenServer:
    """Connections to one server.

    ``loaded`` is the hash of the weights that it was last asked to load, ``reloaded`` their path if they replaced
    others. ``is_known`` is false after a fault: the server may have been restarted, so ``info`` is read again.
    """

    client: CompletionClient
    info: ServerInfo
    loaded: str | None = None
    reloaded: Path | None = None
    is_known: bool = True


class Placement:
    """Keeps connections to the servers of a series, and makes them serve one checkpoint after the other."""

    def __init__(self, settings: EndpointSettings, note: Callable[[str], None]) -> None:
        self._settings, self._note = settings, note
        self._servers: dict[str, _OpenServer] = {}
        self._command: tuple[str, CommandServer] | None = None  # checkpoint id, and the server that serves it

    def place_checkpoint(self, checkpoint: Checkpoint) -> ServedModel:
        """Make ``checkpoint`` answer, and return its client and model name.

        Raises ``EndpointError`` if no server answers, or if it cannot serve this checkpoint.
        """
        place = self._settings.place_of(checkpoint)
        if place.how == "serve":
            return self._place_by_command(place, checkpoint)
        url = place.url or ""
        if url not in self._servers:
            self._servers[url] = self._open(url)
        server = self._servers[url]
        if not server.is_known:
            server.info, server.is_known = read_server(server.client.transport), True
        how = self._resolve_how(place, checkpoint, server)
        if how == "adapters" and checkpoint.kind == "lora":
            return ServedModel(client=server.client, model=self._place_adapter(checkpoint, server))
        model = require_model(server.client.transport, server.info, place.model)
        if how == "reload":
            self._reload(checkpoint, server)
        return ServedModel(client=server.client, model=model)

    def forget_weights(self) -> None:
        """Load weights and adapters again before the next checkpoint, because a server may have been restarted."""
        for server in self._servers.values():
            server.loaded, server.is_known = None, False

    def is_placed(self, checkpoint: Checkpoint) -> bool:
        """Return whether the server still has the weights that it was asked to load.

        A server that was restarted has not. True if it has no route for that, or was asked for no weights.
        """
        place = self._settings.place_of(checkpoint)
        server = self._servers.get(place.url or "")
        if server is None or server.loaded is None or server.reloaded is None:
            return True
        return serves_version(server.client.transport, server.info, server.loaded, server.reloaded)

    def rest(self) -> None:
        """Stop the server that a command started, if there is one."""
        if self._command is not None:
            self._command[1].close()
            self._forget(self._command[1].url)
            self._command = None

    def close(self) -> None:
        """Stop servers that commands started, and close the connections."""
        self.rest()
        for url in list(self._servers):
            self._forget(url)

    def _open(self, url: str) -> _OpenServer:
        transport = self._connect(url)
        try:
            info = read_server(transport)
        except BaseException:
            transport.close()
            raise
        return _OpenServer(client=CompletionClient(transport, info.kind), info=info)

    def _connect(self, url: str) -> Transport:
        settings = self._settings
        return Transport(
            url, api_key=settings.api_key, key_name=settings.key_env, limits=settings.limits, note=self._note
        )

    def _resolve_how(self, place: ServedPlace, checkpoint: Checkpoint, server: _OpenServer) -> str:
        if place.how != "auto":
            return place.how
        if self._settings.by_step:  # the file has a place for each checkpoint
            return "names"
        info, url = server.info, server.client.transport.url
        if checkpoint.kind == "lora" and info.can_load_adapters:
            return "adapters"
        if checkpoint.kind == "lora":
            raise EndpointError(
                f"{checkpoint.label}: {url} cannot load adapters; start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, or pass --model with {step} if it has a name for each adapter"
            )
        if info.can_reload:
            return "reload"
        if info.can_load_adapters and server.loaded is None:  # the model under the adapters of the series
            server.loaded = checkpoint.weights_hash
            return "adapters"
        if server.loaded == checkpoint.weights_hash:
            return "adapters"
        if not info.models:
            raise EndpointError(
                f"{url}: lists no models at /v1/models, so it may be no OpenAI-compatible server; check --endpoint, "
                "or pass --model with {step} if it has a name for each checkpoint"
            )
        raise EndpointError(
            f"{checkpoint.label}: {url} has one model and cannot load other weights; pass --model with {{step}} if it "
            "has a name for each checkpoint, start vLLM with VLLM_SERVER_DEV_MODE=1, or pass --serve COMMAND"
        )

    def _place_adapter(self, checkpoint: Checkpoint, server: _OpenServer) -> str:
        name = f"{checkpoint.label.replace('/', '-')}-{checkpoint.weights_hash[:8]}"  # a reused name keeps old weights
        if name not in server.info.models:
            load_adapter(server.client.transport, name, checkpoint.path.resolve())
            server.info = replace(server.info, models=(*server.info.models, name))
        return name

    def _reload(self, checkpoint: Checkpoint, server: _OpenServer) -> None:
        if checkpoint.kind == "lora":
            raise EndpointError(f'{checkpoint.label}: is an adapter, which how = "reload" cannot load; use "adapters"')
        if server.loaded != checkpoint.weights_hash:
            server.loaded = None
            path = checkpoint.path.resolve()
            reload_weights(server.client.transport, server.info, path, checkpoint.weights_hash, self._note)
            server.loaded, server.reloaded = checkpoint.weights_hash, path

    def _place_by_command(self, place: ServedPlace, checkpoint: Checkpoint) -> ServedModel:
        if self._command is None or self._command[0] != checkpoint.checkpoint_id or not self._command[1].is_running:
            self.rest()
            started = CommandServer(place, checkpoint, self._settings.log_folder)
            self._command = (checkpoint.checkpoint_id, started)
            transport = self._connect(started.url)
            try:
                started.wait(transport, self._note)
                info = read_server(transport)
            except BaseException:
                transport.close()
                self.rest()
                raise
            self._servers[started.url] = _OpenServer(client=CompletionClient(transport, info.kind), info=info)
        server = self._servers[self._command[1].url]
        return ServedModel(client=server.client, model=require_model(server.client.transport, server.info, place.model))

    def _forget(self, url: str) -> None:
        server = self._servers.pop(url, None)
        if server is not None:
            server.client.transport.close()
