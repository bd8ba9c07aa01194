"""Passes in Django: a view with `needs_pass` needs one in `Authorization: Bearer …`.

    @needs_pass(passes)
    def enter(request): ...  # request.weir_pass is the accepted pass
"""

import functools
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from .passes import Passes
from .refusal import Refusal


def needs_pass(passes: Passes) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of synchronous views."""

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def judged(request: HttpRequest, *args: Any, **named: Any) -> Any:
            try:
                accepted = passes.accept(passes.bearer(request.headers.get("Authorization")))
            except Refusal as refusal:
                return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.headers))
            request.weir_pass = accepted  # type: ignore[attr-defined]
            return view(request, *args, **named)

        return judged

    return decorate
