"""Passes in FastAPI: a route that depends on `NeedsPass` needs one in `Authorization: Bearer …`.

    app.add_exception_handler(Refusal, answer)

    @app.post("/enter")
    async def enter(accepted: Annotated[Pass, Depends(NeedsPass(passes))]): ...
"""

from fastapi import Request, Response

from .passes import Passes
from .refusal import Refusal
from .verify import Pass


class NeedsPass:
    """Gives the route the accepted pass. Raises `Refusal`, which `answer` turns into a reply."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    async def __call__(self, request: Request) -> Pass:
        fields = request.headers.getlist("authorization")
        return await self._passes.accept_async(self._passes.bearer(fields[0] if len(fields) == 1 else None))


async def answer(_: Request, refusal: Refusal) -> Response:
    """The reply to a refused pass."""
    return Response(refusal.body, refusal.status, dict(refusal.headers))
