"""Accepts passes of Weir, each once. docs/app/clients.md describes what every verifier does.

`Passes` judges passes. `weir_pass.fastapi` and `weir_pass.django` put it in front of a route, `weir_pass.asgi` and `weir_pass.wsgi` in
front of any app.
"""

from .passes import Passes
from .refusal import Refusal
from .verify import Pass

__all__ = ["Pass", "Passes", "Refusal"]
