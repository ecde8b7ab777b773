"""Read which models and routes a server has, and replace its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.http.transport import Transport
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.samplers.endpoint.completions import ServerKind

#: Largest time to load weights, in seconds.
LOAD_S = 1800.0
_CONTROL_S = 600.0
_VLLM_RELOAD = frozenset({"/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"})
_SGLANG_RELOAD = "/update_weights_from_disk"
_LOAD_ADAPTER = "/v1/load_lora_adapter"
#: Routes to set, and to read, the name of a server's weights.
_VLLM_VERSION, _VLLM_INFO, _SGLANG_INFO = "/update_weight_version", "/weight_info", "/get_model_info"


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """Kind of a server, its model names, and its routes (empty if it does not list them).

    ``base_models`` are the names of models that are no adapters.
    """

    kind: ServerKind
    models: tuple[str, ...]
    base_models: tuple[str, ...]
    routes: frozenset[str]

    @property
    def can_reload(self) -> bool:
        """Whether the server can replace its weights."""
        return self.routes >= _VLLM_RELOAD or _SGLANG_RELOAD in self.routes

    @property
    def can_load_adapters(self) -> bool:
        """Whether the server can load LoRA adapters."""
        return _LOAD_ADAPTER in self.routes


def read_server(transport: Transport) -> ServerInfo:
    """Ask a server for its models and routes. Raises ``EndpointError`` if it does not answer."""
    status, content = transport.run(transport.get("/v1/models"))
    if status in (401, 403):
        raise transport.refusal("/v1/models", status)
    rows = content.get("data") if isinstance(content, dict) else None
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    _, pages = transport.run(transport.get("/openapi.json"))
    paths = pages.get("paths") if isinstance(pages, dict) else None
    routes = frozenset(paths) if isinstance(paths, dict) else frozenset()
    owners = {row.get("owned_by") for row in rows}
    kind: ServerKind = "vllm" if "vllm" in owners else "sglang" if "sglang" in owners else "other"
    return ServerInfo(
        kind=kind,
        models=tuple(str(row.get("id")) for row in rows),
        base_models=tuple(str(row.get("id")) for row in rows if not row.get("parent")),
        routes=routes,
    )


def require_model(transport: Transport, info: ServerInfo, model: str | None) -> str:
    """Return the model name to use: ``model``, else the server's only one. Raises ``EndpointError``."""
    if model is not None:
        if info.models and model not in info.models and info.kind != "other":
            raise EndpointError(
                f"model {model!r}: {transport.url} has only {', '.join(info.models)}; pass one of these by --model, or "
                "in the file of --endpoints"
            )
        return model
    if len(info.base_models) != 1:
        listed = f"has {', '.join(info.models)}" if info.models else "does not list its models"
        raise EndpointError(f"{transport.url} {listed}; pass --model NAME")
    return info.base_models[0]


def reload_weights(
    transport: Transport, info: ServerInfo, path: Path, version: str, note: Callable[[str], None]
) -> None:
    """Replace the server's weights by those in ``path``, reset its prefix cache, and set its ``version``.

    Raises ``EndpointError`` if one of the requests fails. The server's weights are then unknown.
    """
    if _SGLANG_RELOAD in info.routes:
        answer = _post(transport, _SGLANG_RELOAD, {"model_path": str(path)}, timeout_s=LOAD_S)
        if not (isinstance(answer, dict) and answer.get("success")):
            raise EndpointError(f"{transport.url}{_SGLANG_RELOAD}: {_brief(answer)}; does the server see {path}?")
        _post(transport, "/flush_cache", None)
        return
    _post(transport, "/pause?mode=wait", None)
    try:
        _call_workers(transport, "reload_weights", {"weights_path": str(path)})
        # only CPU builds of vLLM need this, and only servers with oversharp's worker extension have it
        status, _ = transport.run(
            transport.post_once(
                "/collective_rpc", {"method": "oversharp_repack_tied_heads", "kwargs": {}}, timeout_s=_CONTROL_S
            )
        )
        if status != 200:
            note(
                f"{transport.url}: has no worker extension of oversharp; a CPU build of vLLM then keeps the old output "
                "head of a model with tied embeddings (docs/endpoints.md)"
            )
        _post(transport, "/reset_prefix_cache", None)
        if _VLLM_VERSION in info.routes:
            _post(transport, _VLLM_VERSION, {"new_version": version})
    finally:
        _post(transport, "/resume", None)


def serves_version(transport: Transport, info: ServerInfo, version: str, path: Path) -> bool:
    """Return whether the server has the weights of the last reload. True if it has no such route.

    A vLLM server keeps the version until it ends. An SGLang server keeps the path.
    """
    if _SGLANG_RELOAD in info.routes:
        route, name, wanted = _SGLANG_INFO, "model_path", str(path)
    else:
        route, name, wanted = _VLLM_INFO, "weight_version", version
    if route not in info.routes or (_SGLANG_RELOAD not in info.routes and _VLLM_VERSION not in info.routes):
        return True
    _, content = transport.run(transport.get(route))
    found = content.get(name) if isinstance(content, dict) else None
    return found is None or found == wanted


def load_adapter(transport: Transport, name: str, path: Path) -> None:
    """Load a LoRA adapter under a name. Raises ``EndpointError``."""
    _post(transport, _LOAD_ADAPTER, {"lora_name": name, "lora_path": str(path)}, timeout_s=LOAD_S)


def _call_workers(transport: Transport, method: str, arguments: dict[str, Any]) -> None:
    _post(transport, "/collective_rpc", {"method": method, "kwargs": arguments}, timeout_s=LOAD_S)


def _post(transport: Transport, path: str, body: Any, *, timeout_s: float = _CONTROL_S) -> Any:
    status, text = transport.run(transport.post_once(path, body, timeout_s=timeout_s))
    if status != 200:
        given = body.get("kwargs", body) if isinstance(body, dict) else {}
        about = f" for {', '.join(map(str, given.values()))}" if given else ""
        raise EndpointError(f"{transport.url}{path}{about}: status {status} ({_brief(text)}); see the server's log")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _brief(answer: object) -> str:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return " ".join(text.split())[:200]
