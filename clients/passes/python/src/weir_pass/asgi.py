"""Passes in front of an app of ASGI: all of its requests need a pass in `Authorization: Bearer …`.

Mount such an app where a visit begins. A pass is accepted once, so later requests need a session.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .passes import Passes
from .refusal import Refusal

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class PassMiddleware:
    """The accepted pass is in `scope["weir.pass"]`."""

    def __init__(self, app: App, passes: Passes) -> None:
        self._app, self._passes = app, passes

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        try:
            fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
            accepted = await self._passes.accept_async(self._passes.bearer(fields[0] if len(fields) == 1 else None))
        except Refusal as refusal:
            return await _refuse(scope, refusal, send)
        return await self._app({**scope, "weir.pass": accepted}, receive, send)


async def _refuse(scope: Scope, refusal: Refusal, send: Any) -> None:
    if scope["type"] == "websocket":
        # Before it is accepted, this is answered with 403.
        return await send({"type": "websocket.close", "code": 1008, "reason": refusal.code})
    headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})
