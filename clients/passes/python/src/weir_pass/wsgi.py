"""Passes in front of an app of WSGI: all of its requests need a pass in `Authorization: Bearer …`.

Mount such an app where a visit begins. A pass is accepted once, so later requests need a session.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from .passes import Passes
from .refusal import Refusal


class PassMiddleware:
    """The accepted pass is in `environ["weir.pass"]`."""

    def __init__(self, app: Callable[..., Iterable[bytes]], passes: Passes) -> None:
        self._app, self._passes = app, passes

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            environ["weir.pass"] = self._passes.accept(self._passes.bearer(environ.get("HTTP_AUTHORIZATION")))
        except Refusal as refusal:
            start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", refusal.headers)
            return [refusal.body]
        return self._app(environ, start_response)
