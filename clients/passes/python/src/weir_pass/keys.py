"""The keys that Weir publishes.

Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any more is used for
a minute at most, unless Weir does not answer: then for an hour, which is as long as any pass is valid. Whoever shows a pass of a known key
waits for a fetch during its first second only. A text of keys that is wrong in any way replaces nothing. A key is unknown only if the last
fetch succeeded without it, and began after its name was asked for or the key was withdrawn. Otherwise, a later fetch may bring it.
"""

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
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
        self._asked_at = 0.0
        # Why the last fetch says nothing about a key.
        self._fault: Exception | None = None
        # Names that were asked for since the last fetch began, at most `MAX_KEYS`, and names that this fetch did not bring.
        self._wanted: set[str] = set()
        self._missed: set[str] = set()
        # The last fetch, and when it began, by this machine's clock. Its result is nothing.
        self._asking: Future[None] | None = None
        self._began_at = 0.0
        # Held for moments, for all of these.
        self._lock = threading.Lock()

    def find(self, kid: str) -> Key:
        """The key of this name. Raises `Refusal`. It may block for as long as a fetch takes."""
        if not self._is_ready(kid):
            asking, seconds = self._refresh(kid)
            wait([asking], seconds)
        return self._known_key(kid)

    async def find_async(self, kid: str) -> Key:
        """The same in asyncio. Nobody takes a thread while waiting: those of others are for good passes, too."""
        if not self._is_ready(kid):
            asking, seconds = self._refresh(kid)
            over = asyncio.wrap_future(asking)
            try:
                await asyncio.wait([over], timeout=seconds)
            finally:
                # This does not end the fetch, because others wait for the keys, too.
                over.cancel()
        return self._known_key(kid)

    def _known_key(self, kid: str) -> Key:
        with self._lock:
            if self._age() < OLDEST_S:
                if (key := self._known.get(kid)) is not None:
                    return key
                if kid in self._missed:
                    raise Refusal("unknown_key")
            raise Refusal("keys_away", self._asked_at + PAUSE_S - self._steady_s()) from self._fault

    def _is_ready(self, kid: str) -> bool:
        """Whether the key is known and fresh, so that nothing needs to be fetched."""
        return kid in self._known and self._age() < FRESH_S

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self._steady_s() - self._fetched_at

    def _refresh(self, kid: str) -> tuple[Future[None], float]:
        """Begins to fetch the keys, once for all who ask meanwhile, unless the last fetch was a moment ago.

        Returns the last fetch, and for how many seconds to wait for it. After a fifth of its limit, Weir is taken to be away wherever a known
        key will do.
        """
        with self._lock:
            now_s = self._steady_s()
            # Another caller may have fetched them meanwhile.
            if self._asking is None or (not self._is_ready(kid) and now_s - self._asked_at >= PAUSE_S):
                self._asked_at, self._began_at = now_s, time.monotonic()
                self._fault = TimeoutError("the keys do not come in time")
                self._asking = Future()
                self._asking.set_running_or_notify_cancel()
                missed, self._wanted, self._missed = self._wanted | {kid}, set(), set()
                # A thread of its own: one that waits would end with its caller. It does not keep the process from ending.
                threading.Thread(target=self._fetch_for, args=[self._asking, missed], name="weir-pass", daemon=True).start()
            elif len(self._wanted) < MAX_KEYS:
                self._wanted.add(kid)
            will_do = kid in self._known and self._age() < OLDEST_S
            limit_s = self._fetch_s / 5 if will_do else self._fetch_s
            return self._asking, max(0.0, self._began_at + limit_s - time.monotonic())

    def _fetch_for(self, asking: Future[None], missed: set[str]) -> None:
        keys, fault = None, None
        try:
            keys = _keys_of(_fetch(self._address, self._fetch_s))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the old keys stay, and the caller learns the cause
            fault = failure
        with self._lock:
            # A fetch that was given up may end after the next one.
            if asking is self._asking:
                if keys is not None:
                    self._missed = missed | self._known.keys()
                    self._known, self._fetched_at = keys, self._steady_s()
                    self._fault = LookupError("the keys were fetched a moment ago, without the key of this pass")
                else:
                    self._fault = fault
        asking.set_result(None)


def _fetch(address: str, limit_s: float) -> bytes:
    """The text at an address. Whatever comes, and however slowly, it ends at its limit, but for the look-up of a name."""
    ends = _Ends()
    # The timeout of a socket starts again with each byte, so another thread ends the connection.
    timer = threading.Timer(limit_s, ends.now)
    timer.daemon = True
    timer.start()
    try:
        # A cache in between would keep a withdrawn key for its own time, and a new one away.
        headers = {"Accept": "application/jwk-set+json", "Cache-Control": "no-cache"}
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.build_opener(_NoRedirect, *ends.handlers()).open(request, timeout=limit_s) as reply:
            # Any other success has no keys, or only a part of them.
            if reply.status != http.client.OK:
                raise ValueError(f"Weir answers {reply.status}")
            text = b""
            while piece := reply.read1(16_384):
                text += piece
                if len(text) > MAX_BYTES:
                    raise ValueError(f"the keys have more than {MAX_BYTES} bytes")
        # What was cut off may look whole: here, or by the other side. The module counts down from the length that the head said.
        if ends.are_over:
            raise TimeoutError("the keys come too slowly")
        if reply.length:
            raise http.client.IncompleteRead(text, reply.length)
        return text
    finally:
        timer.cancel()
        ends.close()


class _Reply(http.client.HTTPResponse):
    """The final reply. A proxy may send informational ones before it, of which the module skips only those with status 100."""

    def begin(self) -> None:
        super().begin()
        # 101 is final.
        while 101 < self.status < 200:
            self.headers = None
            super().begin()


class _Ends:
    """The ends of connections of one fetch, by which another thread can end them, also in the middle of a handshake of TLS."""

    def __init__(self) -> None:
        self.are_over = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def add(self, connected: socket.socket) -> None:
        with self._lock:
            if self.are_over:
                raise TimeoutError("the keys come too slowly")
            # A copy, because TLS takes the socket itself away.
            self._sockets.append(connected.dup())

    def now(self) -> None:
        with self._lock:
            self.are_over = True
            for one in self._sockets:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # It has ended already.
                    pass

    def close(self) -> None:
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """Handlers of http and https that add their sockets here."""
        ends = self

        def watched(kind: type) -> type:
            class Watched(kind):  # type: ignore[misc]
                response_class = _Reply
                _sock: socket.socket | None = None

                @property
                def sock(self) -> socket.socket | None:
                    return self._sock

                @sock.setter
                def sock(self, value: socket.socket | None) -> None:
                    self._sock = value
                    if type(value) is socket.socket:
                        ends.add(value)

            return Watched

        class Http(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                return self.do_open(watched(http.client.HTTPConnection), request)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> Any:
                return self.do_open(watched(http.client.HTTPSConnection), request)

        return [Http(), Https()]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would let somebody else say which keys there are."""

    def redirect_request(self, *_: Any) -> None:
        return None


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
