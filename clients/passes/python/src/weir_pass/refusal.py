"""Why a pass is not accepted, and what HTTP says about it.

Invariant: a refusal tells callers nothing about keys, clocks or stores beyond its code. `__cause__` is for the log.
"""

import json
import math

TITLES = {
    "no_pass": "A pass is needed",
    "unreadable": "This is not a pass",
    "unknown_key": "The pass is signed by an unknown key",
    "forged": "The pass is forged",
    "not_yet_valid": "The pass is not valid yet",
    "expired": "The pass has expired",
    "other_service": "The pass is for another service",
    "spent": "The pass was used already",
    "keys_away": "Passes cannot be checked now",
    "record_away": "Passes cannot be accepted now",
}


class Refusal(Exception):
    """A pass is not accepted. `code` is a key of `TITLES`.

    `keys_away`: whether Weir publishes its key is not known, and cannot be asked now. `record_away`: the record of spent passes does not
    answer, or is full. For both, the pass may be shown again after `retry_after_s` seconds. The others are faults of the pass.
    """

    def __init__(self, code: str, retry_after_s: float = 10) -> None:
        super().__init__(TITLES[code])
        self.code = code
        self.retry_after_s = max(1, math.ceil(retry_after_s))

    @property
    def status(self) -> int:
        """401; or 503, if the fault is not the pass."""
        return 503 if self.code in ("keys_away", "record_away") else 401

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the reply."""
        common = [("Content-Type", "application/problem+json"), ("Cache-Control", "no-store")]
        if self.status == 503:
            return [*common, ("Retry-After", str(self.retry_after_s))]
        # A request without a pass is told no error, as RFC 6750 says.
        error = "" if self.code == "no_pass" else f', error="invalid_token", error_description="{self}"'
        return [*common, ("WWW-Authenticate", f'Bearer realm="weir"{error}')]

    @property
    def body(self) -> bytes:
        """The body of the reply: a problem document of RFC 9457."""
        return json.dumps({"type": "about:blank", "title": str(self), "status": self.status, "code": self.code}).encode()
