"""Accepts passes of one zone, each once.

Invariant: a name is first once, until its pass cannot be accepted any more. If the record does not answer, nobody enters.
"""

import asyncio
import contextvars
import inspect
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from .keys import Key, Keys
from .refusal import Refusal
from .verify import LEEWAY_S, Pass, Unverified

# How much longer than a pass is accepted its name is kept, in seconds: the clocks of those that share the record may differ.
KEPT_S = 60
# The time limit of the record in asyncio, in seconds: that of the keys.
SPEND_S = 5.0
# The most calls at once, in asyncio, of a record that is no function of asyncio.
THREADS = 32
# The most passes that one process remembers: some minutes' worth.
MOST = 1_000_000

Spend = Callable[[str, int], "bool | Awaitable[bool] | None"]


class Memory:
    """A record of spent passes in this process. It knows nothing of other processes, and forgets all when the process ends."""

    def __init__(self, now_s: Callable[[], float], most: int = MOST) -> None:
        self._now_s, self._most = now_s, most
        self._spent: dict[str, int] = {}
        # When to look for what has expired: not before something has, and once in a second at most. A look goes through all.
        self._look_s = math.inf
        self._lock = threading.Lock()

    def __call__(self, key: str, until_s: int) -> bool:
        with self._lock:
            if len(self._spent) >= self._most and self._look_s < (now_s := self._now_s()):
                self._spent = {known: end for known, end in self._spent.items() if end >= now_s}
                self._look_s = max(now_s + 1, min(self._spent.values(), default=math.inf))
            if key in self._spent:
                return False
            if len(self._spent) >= self._most:
                raise MemoryError(f"{self._most} passes are remembered already")
            self._spent[key] = until_s
            self._look_s = min(self._look_s, until_s)
            return True


class Passes:
    """Accepts the passes of one zone. It may be used by many threads and tasks.

    `weir` is the address of Weir, such as `https://weir.example`. `audience` is Weir's `pass.audience`. `spend(key, until_s)` is the
    record of spent passes, which all processes of a service must share: it records that the pass of this key was accepted and returns
    whether it is the first time, atomically, and keeps the key until `until_s`, in seconds since 1970. It may be a function of asyncio:
    then only `accept_async` works. Without it, the memory of this process is the record.

    Raises `ValueError` if `weir` is not an address of http or https, or `zone` or `audience` is empty.
    """

    def __init__(self, weir: str, zone: str, audience: str = "weir", spend: Spend | None = None) -> None:
        if not re.match(r"https?://[^/]", weir):
            raise ValueError(f"weir must be an address such as https://weir.example, not {weir!r}")
        if not zone or not audience:
            raise ValueError("zone and audience must not be empty")
        self._zone, self._audience = zone, audience
        self._keys = Keys(weir.rstrip("/") + "/.well-known/jwks.json")
        # Tests replace it.
        self._now_s: Callable[[], float] = time.time
        self._spend: Spend = spend or Memory(lambda: self._now_s())
        self._spend_s = SPEND_S
        # Its own, so that a record that hangs stops nothing else of the app. It has no thread before it is used.
        self._threads = ThreadPoolExecutor(THREADS, "weir-pass")

    def accept(self, text: str) -> Pass:
        """Accepts a pass, for example the field `pass` of a form. Raises `Refusal`.

        The pass is not spent then, except with `record_away`: it may be spent. It blocks until the record answers, so that must have a time
        limit of its own.
        """
        unverified = Unverified.read(text)
        accepted = self._verify(unverified, self._keys.find(unverified.kid))
        with _RecordAway():
            first = self._spend(*self._entry(accepted))
        if inspect.isawaitable(first):
            # Nothing was recorded, and an awaitable is true.
            if inspect.iscoroutine(first):
                first.close()
            raise TypeError("the record is one of asyncio: use accept_async")
        return self._judge(accepted, first)

    async def accept_async(self, text: str) -> Pass:
        """The same in asyncio. A record that is no function of asyncio runs in a thread. It is `record_away` after 5 s."""
        unverified = Unverified.read(text)
        accepted = self._verify(unverified, await self._keys.find_async(unverified.kid))
        with _RecordAway():
            async with asyncio.timeout(self._spend_s):
                first = await self._spend_async(*self._entry(accepted))
        return self._judge(accepted, first)

    async def _spend_async(self, key: str, until_s: int) -> object:
        if isinstance(self._spend, Memory) or inspect.iscoroutinefunction(self._spend):
            first = self._spend(key, until_s)
        else:
            run = contextvars.copy_context().run
            first = await asyncio.get_running_loop().run_in_executor(self._threads, run, self._spend, key, until_s)
        return await first if inspect.isawaitable(first) else first

    @staticmethod
    def bearer(authorization: str | None) -> str:
        """The pass of `Authorization: Bearer …`. Raises `Refusal`."""
        found = re.fullmatch(r"(?i:bearer) +(\S+)", authorization or "")
        if not found:
            raise Refusal("no_pass")
        return found[1]

    def _verify(self, unverified: Unverified, key: Key) -> Pass:
        return unverified.verify(key, self._audience, self._zone, self._now_s())

    @staticmethod
    def _entry(accepted: Pass) -> tuple[str, int]:
        return f"weir:spent:{accepted.jti}", math.ceil(accepted.exp) + LEEWAY_S + KEPT_S

    @staticmethod
    def _judge(accepted: Pass, first: object) -> Pass:
        if not first:
            raise Refusal("spent")
        return accepted


class _RecordAway:
    """Turns a failure of the record into a refusal."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        if isinstance(fault, Exception):
            raise Refusal("record_away") from fault
