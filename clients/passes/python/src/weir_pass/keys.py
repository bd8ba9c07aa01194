"""The keys that Weir publishes.

Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any more is used for
a minute at most, unless Weir does not answer: then for an hour, which is as long as any pass is valid. A text of keys that is wrong in
any way replaces nothing.
"""

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from .refusal import Refusal

# After this time the keys are fetched again, because one may have been withdrawn.
FRESH_S = 60
# The shortest time between two fetches.
PAUSE_S = 10
# Older keys are not used.
OLDEST_S = 3_600
MAX_BYTES = 65_536
MAX_KEYS = 32
MIN_RSA_BITS = 2_048
MAX_RSA_BITS = 8_192
MAX_EXPONENT = 2**32


def decode(part: str) -> bytes:
    """The bytes of base64url without padding. Raises `ValueError`."""
    # Its error for a wrong length is a ValueError, too, and so is that of letters beyond ASCII.
    read = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    # The decoder skips letters that are none of base64url and takes bits that belong to no byte: one pass would have many texts.
    if base64.urlsafe_b64encode(read).rstrip(b"=") != part.encode():
        raise ValueError("not base64url")
    return read


def read_json(text: bytes) -> Any:
    """The value of a text in UTF-8. Raises `ValueError`, or `RecursionError`."""
    # The module would take UTF-16 and UTF-32, and NaN for a number.
    return json.loads(text.decode(), parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


class Key:
    """A published key. It names its algorithm: if a pass could choose it, a forger would choose a weak one."""

    def __init__(self, algorithm: str, public: Any) -> None:
        self.algorithm = algorithm
        self._public = public

    def verifies(self, text: bytes, mark: bytes) -> bool:
        """Whether `mark` is this key's signature of `text`."""
        try:
            if self.algorithm == "ES256":
                if len(mark) != 64:
                    return False
                r, s = (int.from_bytes(half) for half in (mark[:32], mark[32:]))
                self._public.verify(encode_dss_signature(r, s), text, ec.ECDSA(SHA256()))
            elif self.algorithm == "EdDSA":
                self._public.verify(mark, text)
            else:
                self._public.verify(mark, text, padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True


class Keys:
    """The keys at an address. It may be used by many threads."""

    def __init__(self, address: str) -> None:
        self._address = address
        # A clock that never jumps, in seconds. Tests replace both.
        self._steady_s: Callable[[], float] = time.monotonic
        self._fetch_s = 5.0
        self._known: dict[str, Key] = {}
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._fault: Exception | None = None
        self._asking = threading.Lock()

    def find(self, kid: str) -> Key:
        """The key of this name. Raises `Refusal`. It may block for as long as a fetch takes, unless `is_ready`."""
        if not self.is_ready(kid):
            self._refresh(kid)
        if self._age() >= OLDEST_S:
            raise Refusal("keys_away") from self._fault
        key = self._known.get(kid)
        if key is None:
            raise Refusal("unknown_key")
        return key

    def is_ready(self, kid: str) -> bool:
        """Whether the key is known and fresh, so that nothing needs to be fetched."""
        return kid in self._known and self._age() < FRESH_S

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self._steady_s() - self._fetched_at

    def _refresh(self, kid: str) -> None:
        """Fetches the keys, once for all who ask meanwhile."""
        with self._asking:
            # Another caller may have fetched them meanwhile.
            if self.is_ready(kid) or (self._asked_at is not None and self._steady_s() - self._asked_at < PAUSE_S):
                return
            self._asked_at = self._steady_s()
            try:
                self._known = _keys_of(self._fetch())
                self._fetched_at = self._steady_s()
            except Exception as fault:  # noqa: BLE001 - whatever it is, the old keys stay, and the caller learns the cause
                self._fault = fault

    def _fetch(self) -> bytes:
        until = time.monotonic() + self._fetch_s
        request = urllib.request.Request(self._address, headers={"Accept": "application/jwk-set+json"})
        with _opener.open(request, timeout=self._fetch_s) as reply:
            text = b""
            # The timeout of a socket starts again with each byte.
            while piece := reply.read1(16_384):
                text += piece
                if len(text) > MAX_BYTES:
                    raise ValueError(f"the keys have more than {MAX_BYTES} bytes")
                if time.monotonic() > until:
                    raise TimeoutError("the keys come too slowly")
        return text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would let somebody else say which keys there are."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _keys_of(text: bytes) -> dict[str, Key]:
    keys = read_json(text)["keys"]
    if not isinstance(keys, list):
        raise ValueError("the text of keys has no list of keys")
    if len(keys) > MAX_KEYS:
        raise ValueError(f"there are more than {MAX_KEYS} keys")
    known: dict[str, Key] = {}
    for jwk in keys:
        try:
            # The first of two keys with one name counts.
            if (key := _key_of(jwk)) is not None:
                known.setdefault(jwk["kid"], key)
        except (ValueError, TypeError, KeyError, AttributeError):
            # One bad key does not take the others away.
            continue
    return known


def _key_of(jwk: dict[str, Any]) -> Key | None:
    """The key of a JWK, or `None` if passes cannot be signed with it. Raises several errors for what is no key."""
    if not isinstance(jwk["kid"], str) or jwk.get("use", "sig") != "sig":
        return None
    number = lambda name: int.from_bytes(decode(jwk[name]))  # noqa: E731
    match (jwk.get("kty"), jwk.get("crv"), jwk["alg"]):
        case ("EC", "P-256", "ES256"):
            # This fails for a point that is not on the curve.
            return Key("ES256", ec.EllipticCurvePublicNumbers(number("x"), number("y"), ec.SECP256R1()).public_key())
        case ("OKP", "Ed25519", "EdDSA"):
            return Key("EdDSA", ed25519.Ed25519PublicKey.from_public_bytes(decode(jwk["x"])))
        case ("RSA", _, "RS256"):
            if not MIN_RSA_BITS <= number("n").bit_length() <= MAX_RSA_BITS or number("e") >= MAX_EXPONENT:
                return None
            return Key("RS256", rsa.RSAPublicNumbers(number("e"), number("n")).public_key())
    return None
