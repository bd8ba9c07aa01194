"""Verifies a pass: a JWT of RFC 7519, signed by a published key, for this audience and zone, and valid now.

Invariant: nothing in a pass is believed before its signature is verified, except which key to use.
"""

from dataclasses import dataclass
from typing import Any

from .keys import Key, decode, read_json
from .refusal import Refusal

# The largest difference between Weir's clock and this machine's, in seconds.
LEEWAY_S = 5
# The longest pass, in characters. Weir's have less than 1,500.
MAX_PASS = 8_192
MAX_JTI = 256
# A time beyond it, in seconds, is none.
MAX_SECONDS = 10**12


@dataclass(frozen=True)
class Pass:
    """What a pass says. `jti` is the name of the entry; `exp` is when the pass ends, in seconds since 1970."""

    zone: str
    jti: str
    exp: float


@dataclass(frozen=True)
class Unverified:
    """A pass that names its key, and of which nothing else is known."""

    kid: str
    algorithm: Any
    text: bytes
    body: str
    mark: bytes

    @classmethod
    def read(cls, text: str) -> "Unverified":
        """The parts of a text. Raises `Refusal`."""
        # A form may lack the field.
        parts = text.split(".") if isinstance(text, str) and len(text) <= MAX_PASS else []
        if len(parts) != 3:
            raise Refusal("unreadable")
        head, body, mark = parts
        fields = _fields_of(head)
        kid = fields.get("kid")
        # Nothing critical is known here, so RFC 7515 demands a refusal.
        if not isinstance(kid, str) or "crit" in fields:
            raise Refusal("unreadable")
        try:
            decode(body)
            return cls(kid, fields.get("alg"), f"{head}.{body}".encode(), body, decode(mark))
        except ValueError as fault:
            raise Refusal("unreadable") from fault

    def verify(self, key: Key, audience: str, zone: str, now_s: float) -> Pass:
        """The pass, if all of it is right at `now_s`, in seconds since 1970. Raises `Refusal`."""
        if self.algorithm != key.algorithm or not key.verifies(self.text, self.mark):
            raise Refusal("forged")
        claims = _fields_of(self.body)
        jti, nbf, exp, aud = (claims.get(name) for name in ("jti", "nbf", "exp", "aud"))
        if not _is_name(jti) or not _is_time(nbf) or not _is_time(exp):
            raise Refusal("unreadable")
        if now_s < nbf - LEEWAY_S:
            raise Refusal("not_yet_valid")
        if now_s >= exp + LEEWAY_S:
            raise Refusal("expired")
        if not (aud == audience or (isinstance(aud, list) and audience in aud)) or claims.get("zone") != zone:
            raise Refusal("other_service")
        return Pass(zone, jti, exp)


def _fields_of(part: str) -> dict[str, Any]:
    try:
        fields = read_json(decode(part))
    except (ValueError, RecursionError) as fault:
        raise Refusal("unreadable") from fault
    if not isinstance(fields, dict):
        raise Refusal("unreadable")
    return fields


def _is_name(jti: Any) -> bool:
    """Whether it may be part of a key in the record of spent passes."""
    return isinstance(jti, str) and 0 < len(jti) <= MAX_JTI and all("!" <= c <= "~" for c in jti)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_SECONDS
