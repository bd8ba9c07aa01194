"""The verifier of Python, with the vectors that all verifiers share, and in front of apps."""

import asyncio
import io
import json
import os
import secrets
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

from weir_pass import Pass, Passes, Refusal
from weir_pass import asgi, wsgi
from weir_pass.passes import Memory

VECTORS = json.loads((Path(__file__).resolve().parents[2] / "vectors.json").read_text())
GOOD = VECTORS["cases"][0]


class Publisher:
    """A Weir that publishes keys as `what` says, on a free port."""

    def __init__(self) -> None:
        self.what: dict = {}
        self.fetches = 0
        self._over = threading.Event()
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        what = {"set": "a"} if request.path == "/elsewhere" else self.what
        self.fetches += request.path == "/.well-known/jwks.json"
        if request.headers["Cache-Control"] != "no-cache":
            # As a cache does that has older keys.
            what = {"body": '{"keys":[]}'}
        if what.get("hang"):
            self._over.wait()
            return
        if what.get("slow_head"):
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            try:
                while not self._over.wait(0.1):
                    request.wfile.write(b"x")
            except OSError:
                # The verifier reads no more.
                pass
            return
        if what.get("redirect"):
            request.send_response(302)
            request.send_header("Location", "/elsewhere")
            request.end_headers()
            return
        text = what.get("body") or json.dumps(VECTORS["sets"].get(what.get("set"), {}))
        if what.get("hints"):
            request.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
        request.send_response(what.get("status", 200))
        if what.get("cut"):
            request.send_header("Content-Length", str(len(text) + 1))
        request.end_headers()
        try:
            while what.get("trickle") and not self._over.wait(0.1):
                request.wfile.write(b" ")
            while what.get("endless"):
                request.wfile.write(b" " * 16_384)
            request.wfile.write((text + " " * what.get("padding", 0)).encode())
        except OSError:
            # The verifier reads no more.
            pass

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Clock:
    """The clocks of a verifier, in seconds."""

    def __init__(self, now: float) -> None:
        self.now = now


def verifier(address: str, clock: Clock, **more: object) -> Passes:
    passes = Passes(address, VECTORS["zone"], VECTORS["audience"], **more)
    passes._now_s = passes._keys._steady_s = lambda: clock.now
    passes._keys._fetch_s = 20
    return passes


def said(passes: Passes, text: str) -> str | Pass:
    try:
        return passes.accept(text)
    except Refusal as refusal:
        return refusal.code


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.at = Publisher()
        self.addCleanup(self.at.close)
        self.at.what = {"set": "all"}

    def passes(self, **more: object) -> Passes:
        """A verifier of the first pass of the vectors."""
        return verifier(self.at.address, Clock(GOOD["now"]), **more)


class TestVectors(Case):
    def test_every_pass_is_judged_as_the_vectors_say(self) -> None:
        for case in VECTORS["cases"]:
            with self.subTest(case["name"]):
                self.at.what = {"set": case["jwks"]}
                found = said(verifier(self.at.address, Clock(case["now"])), case["pass"])
                self.assertEqual("ok" if isinstance(found, Pass) else found, case["expect"])
                if "claims" in case:
                    self.assertEqual(found, Pass(**case["claims"]))

    def test_every_scenario(self) -> None:
        for scenario in VECTORS["scenarios"]:
            with self.subTest(scenario["name"]):
                at = Publisher()
                self.addCleanup(at.close)
                clock = Clock(VECTORS["epoch"])
                passes = verifier(at.address, clock)
                for step in scenario["steps"]:
                    at.what = step.get("serve", at.what)
                    # The limit is short only where nothing comes.
                    passes._keys._fetch_s = 0.5 if at.what.get("hang") or at.what.get("trickle") else 20
                    if "fetches" in step:
                        self.assertEqual(at.fetches, step["fetches"], step)
                    if "pass" in step:
                        clock.now = VECTORS["epoch"] + step["at"]
                        code, after = "ok", None
                        try:
                            passes.accept(step["pass"])
                        except Refusal as refusal:
                            code, after = refusal.code, dict(refusal.headers).get("Retry-After")
                        self.assertEqual(code, step["expect"], step)
                        if "retry_after" in step:
                            self.assertEqual(after, str(step["retry_after"]), step)


class TestWeirAway(Case):
    """A Weir that hangs, or a proxy before it that sends the head of its reply a byte at a time."""

    def passes_of_a_minute_ago(self, limit_s: float) -> Passes:
        """A verifier that knows the key of the good pass, and has accepted it."""
        clock = Clock(GOOD["now"])
        passes = verifier(self.at.address, clock)
        passes._keys._fetch_s = limit_s
        self.assertIsInstance(said(passes, GOOD["pass"]), Pass)
        clock.now += 61
        return passes

    def test_nobody_waits_long_where_the_key_is_known(self) -> None:
        for what in ({"hang": True}, {"slow_head": True}):
            with self.subTest(what):
                self.at.what, self.at.fetches = {"set": "all"}, 0
                passes = self.passes_of_a_minute_ago(10)
                self.at.what = what
                begun = time.monotonic()
                self.assertEqual([said(passes, GOOD["pass"]) for _ in range(4)], ["spent"] * 4)
                self.assertLess(time.monotonic() - begun, 7.5, "it waits for a fifth of the limit, and once")
                self.assertEqual(self.at.fetches, 2)

    def test_a_fetch_ends_at_its_limit_however_slowly_the_head_comes(self) -> None:
        self.at.what = {"slow_head": True}
        passes = self.passes()
        passes._keys._fetch_s = 0.5
        begun = time.monotonic()
        self.assertEqual(said(passes, GOOD["pass"]), "keys_away")
        self.assertLess(time.monotonic() - begun, 10)
        # Its thread ends, too. The test hangs if it does not.
        for thread in threading.enumerate():
            if thread.name == "weir-pass":
                thread.join()

    def test_passes_of_unknown_keys_do_not_keep_a_good_one_waiting(self) -> None:
        unknown = next(case["pass"] for case in VECTORS["cases"] if case["name"] == "a key that is not published")
        clock = Clock(GOOD["now"])
        passes = verifier(self.at.address, clock, spend=lambda key, until: True)
        self.assertIsInstance(said(passes, GOOD["pass"]), Pass)
        self.at.what = {"hang": True}
        clock.now += 11

        async def ask() -> None:
            flood = [asyncio.create_task(passes.accept_async(unknown)) for _ in range(100)]
            await asyncio.sleep(0)
            self.assertIsInstance(await passes.accept_async(GOOD["pass"]), Pass)
            self.assertFalse(any(one.done() for one in flood), "it waited until the fetch ended")
            for one in flood:
                one.cancel()
            await asyncio.gather(*flood, return_exceptions=True)

        asyncio.run(ask())


def at_once(*all_passes: Passes) -> list[str | Pass]:
    """What a hundred callers with one pass are told."""
    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(lambda i: said(all_passes[i % len(all_passes)], GOOD["pass"]), range(100)))


def patient_redis(url: str) -> "redis.Redis":  # noqa: F821
    """As docs/app/clients.md says it."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 1))


def record(client: object, prefix: str, now_s: object = time.time) -> object:
    """As docs/app/clients.md says it, with a prefix: the tests of other languages use this Redis, too. `now_s` is the service's clock."""

    def spend(key: str, until: int) -> bool:
        mine = secrets.token_hex(16)
        life = until - int(now_s())
        return client.set(prefix + key, mine, nx=True, get=True, ex=life) in (None, mine, mine.encode())

    return spend


class LosingProxy:
    """A proxy before a Redis. The first command about a spent pass reaches Redis, but the connection ends before its reply."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("redis://").split(":")
        self._far = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self.has_lost = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=[near], daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        """One command and one reply in turn, as this client sends them."""
        with near, socket.create_connection(self._far) as far:
            while command := near.recv(16_384):
                far.sendall(command)
                reply = far.recv(16_384)
                if b"weir:spent:" in command and not self.has_lost:
                    self.has_lost = True
                    return
                near.sendall(reply)

    def __enter__(self) -> "LosingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


class TestRecord(Case):
    def test_of_a_hundred_who_show_one_pass_at_once_one_enters(self) -> None:
        told = at_once(self.passes())
        self.assertEqual((sum(isinstance(one, Pass) for one in told), told.count("spent")), (1, 99))
        self.assertEqual(self.at.fetches, 1)

    def test_of_a_hundred_tasks_with_one_pass_one_enters(self) -> None:
        passes = self.passes()

        async def ask() -> list[object]:
            return await asyncio.gather(*(passes.accept_async(GOOD["pass"]) for _ in range(100)), return_exceptions=True)

        told = asyncio.run(ask())
        self.assertEqual(sum(isinstance(one, Pass) for one in told), 1)
        self.assertEqual({one.code for one in told if isinstance(one, Refusal)}, {"spent"})
        self.assertEqual(self.at.fetches, 1)

    def test_the_memory_has_a_limit_and_forgets_what_has_expired(self) -> None:
        clock = Clock(0)
        spend = Memory(lambda: clock.now, 2)
        self.assertEqual([spend("a", 10), spend("a", 10), spend("b", 20)], [True, False, True])
        self.assertRaises(MemoryError, spend, "c", 30)
        clock.now = 11
        self.assertEqual([spend("c", 30), spend("b", 20)], [True, False])

    def test_a_full_memory_looks_for_what_has_expired_once_in_a_second_at_most(self) -> None:
        clock = Clock(0)
        spend = Memory(lambda: clock.now, 2)
        self.assertEqual([spend("a", 10), spend("b", 11)], [True, True])
        clock.now = 11
        self.assertTrue(spend("c", 30))
        clock.now = 12
        self.assertRaises(MemoryError, spend, "d", 30)
        clock.now = 13
        self.assertTrue(spend("d", 30))

    def test_nobody_enters_without_the_shared_record(self) -> None:
        asked = []

        def away(*words: object) -> bool:
            asked.append(words)
            raise OSError("no Redis")

        async def away_async(*words: object) -> bool:
            return away(*words)

        for passes, accept in (
            (self.passes(spend=away), lambda passes: passes.accept(GOOD["pass"])),
            (self.passes(spend=away), lambda passes: asyncio.run(passes.accept_async(GOOD["pass"]))),
            (self.passes(spend=away_async), lambda passes: asyncio.run(passes.accept_async(GOOD["pass"]))),
        ):
            with self.assertRaises(Refusal) as refused:
                accept(passes)
            self.assertEqual((refused.exception.code, refused.exception.status), ("record_away", 503))
            self.assertEqual(str(refused.exception.__cause__), "no Redis")
            self.assertEqual(asked.pop(), (f"weir:spent:{GOOD['claims']['jti']}", GOOD["claims"]["exp"] + 65))

    @unittest.skipUnless("PASSES_REDIS" in os.environ, "PASSES_REDIS names no Redis")
    def test_services_that_share_a_redis_accept_a_pass_once(self) -> None:
        import redis

        with redis.Redis.from_url(os.environ["PASSES_REDIS"]) as client:
            spend = record(client, "py:", lambda: GOOD["now"])
            told = at_once(self.passes(spend=spend), self.passes(spend=spend))
            self.assertEqual((sum(isinstance(one, Pass) for one in told), told.count("spent")), (1, 99))
            life = client.ttl(f"py:weir:spent:{GOOD['claims']['jti']}")
            self.assertTrue(300 < life <= GOOD["claims"]["exp"] + 65 - GOOD["now"], life)

    @unittest.skipUnless("PASSES_REDIS" in os.environ, "PASSES_REDIS names no Redis")
    def test_a_redis_whose_clock_is_ahead_does_not_forget_a_spent_pass(self) -> None:
        import redis

        now = int(time.time()) - 3_600
        with redis.Redis.from_url(os.environ["PASSES_REDIS"]) as client:
            spend = record(client, "py-ahead:", lambda: now)
            self.assertEqual([spend("a", now + 365), spend("a", now + 365)], [True, False])

    @unittest.skipUnless("PASSES_REDIS" in os.environ, "PASSES_REDIS names no Redis")
    def test_a_pass_is_not_taken_for_a_spent_one_where_a_reply_of_redis_is_lost(self) -> None:
        with LosingProxy(os.environ["PASSES_REDIS"]) as proxy, patient_redis(proxy.address) as client:
            passes = self.passes(spend=record(client, "py-lost:"))
            self.assertIsInstance(said(passes, GOOD["pass"]), Pass)
            self.assertEqual(said(passes, GOOD["pass"]), "spent")
            self.assertTrue(proxy.has_lost)

    @unittest.skipUnless("PASSES_REDIS" in os.environ, "PASSES_REDIS names no Redis")
    def test_a_redis_that_hangs_is_away_soon(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            with patient_redis(f"redis://127.0.0.1:{silent.getsockname()[1]}") as client:
                begun = time.monotonic()
                self.assertEqual(said(self.passes(spend=record(client, "")), GOOD["pass"]), "record_away")
                self.assertLess(time.monotonic() - begun, 15)

    def test_in_asyncio_a_record_that_does_not_answer_is_away(self) -> None:
        ended = threading.Event()
        self.addCleanup(ended.set)

        async def never(*_: object) -> bool:
            await asyncio.Event().wait()
            return True

        for spend in (never, lambda *_: ended.wait()):
            passes = self.passes(spend=spend)
            passes._spend_s = 0.2
            with self.assertRaises(Refusal) as refused:
                asyncio.run(passes.accept_async(GOOD["pass"]))
            self.assertEqual(refused.exception.code, "record_away")

    def test_a_record_of_asyncio_works_in_asyncio_only(self) -> None:
        async def spend(key: str, until: int) -> bool:
            return True

        self.assertRaises(TypeError, self.passes(spend=spend).accept, GOOD["pass"])
        self.assertIsInstance(asyncio.run(self.passes(spend=spend).accept_async(GOOD["pass"])), Pass)

    def test_a_form_without_the_field_has_no_pass(self) -> None:
        for text in (None, 5, ["a.b.c"]):
            with self.assertRaises(Refusal) as refused:
                self.passes().accept(text)  # type: ignore[arg-type]
            self.assertEqual(refused.exception.code, "unreadable")

    def test_options_that_cannot_be_right_are_refused(self) -> None:
        for options in (("weir.example", "Z"), ("http://w", ""), ("http://w", "Z", "")):
            self.assertRaises(ValueError, Passes, *options)


class TestApps(Case):
    """Each app answers with the `jti` of the pass."""

    def behaves(self, ask: object) -> None:
        """`ask(authorization)` returns status, headers with names in lower case, and body."""
        status, _, body = ask(f"Bearer {GOOD['pass']}")
        self.assertEqual((status, body.decode().strip('"')), (200, GOOD["claims"]["jti"]))
        for authorization, code, error in (
            (None, "no_pass", ""),
            ("Basic YTpi", "no_pass", ""),
            (f"Bearer {GOOD['pass']}", "spent", ', error="invalid_token", error_description="The pass was used already"'),
            ("bearer hello", "unreadable", ', error="invalid_token", error_description="This is not a pass"'),
        ):
            status, headers, body = ask(authorization)
            self.assertEqual((status, json.loads(body)["code"], json.loads(body)["status"]), (401, code, 401))
            self.assertEqual(headers["www-authenticate"], f'Bearer realm="weir"{error}')
            self.assertEqual((headers["content-type"], headers["cache-control"]), ("application/problem+json", "no-store"))

    def is_away(self, make: object) -> None:
        self.at.what = {"status": 500}
        status, headers, body = make(self.passes())(f"Bearer {GOOD['pass']}")
        self.assertEqual((status, headers["retry-after"], json.loads(body)["code"]), (503, "10", "keys_away"))

    def test_wsgi(self) -> None:
        def app(environ: dict, start_response: object) -> list[bytes]:
            start_response("200 OK", [])
            return [environ["weir.pass"].jti.encode()]

        make = lambda passes: wsgi_client(wsgi.PassMiddleware(app, passes))  # noqa: E731
        self.behaves(make(self.passes()))
        self.is_away(make)

    def test_asgi(self) -> None:
        async def app(scope: dict, receive: object, send: object) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": scope["weir.pass"].jti.encode()})

        make = lambda passes: asgi_client(asgi.PassMiddleware(app, passes))  # noqa: E731
        self.behaves(make(self.passes()))
        self.is_away(make)

    def test_asgi_passes_the_lifespan_on_and_closes_websockets(self) -> None:
        seen, sent = [], []

        async def app(scope: dict, receive: object, send: object) -> None:
            seen.append(scope["type"])

        async def send(message: dict) -> None:
            sent.append(message["type"])

        guarded = asgi.PassMiddleware(app, self.passes())
        asyncio.run(guarded({"type": "lifespan"}, None, send))
        asyncio.run(guarded({"type": "websocket", "headers": []}, None, send))
        self.assertEqual((seen, sent), (["lifespan"], ["websocket.close"]))

    def test_two_authorizations_are_none(self) -> None:
        async def app(*_: object) -> None:
            self.fail("it needs a pass")

        ask = asgi_client(asgi.PassMiddleware(app, self.passes()))
        self.assertEqual(ask(f"Bearer {GOOD['pass']}", "Bearer hello")[0], 401)

    def test_fastapi(self) -> None:
        from fastapi import Depends, FastAPI
        from weir_pass.fastapi import NeedsPass, answer

        def make(passes: Passes) -> object:
            app = FastAPI()
            app.add_exception_handler(Refusal, answer)

            @app.post("/enter")
            async def enter(accepted: Annotated[Pass, Depends(NeedsPass(passes))]) -> str:
                return accepted.jti

            return asgi_client(app)

        self.behaves(make(self.passes()))
        self.is_away(make)

    def test_django(self) -> None:
        import django
        from django.conf import settings

        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF="", SECRET_KEY="of a test")
            django.setup()
        from django.core.handlers.wsgi import WSGIHandler
        from django.http import HttpResponse
        from django.test import override_settings
        from django.urls import path
        from weir_pass.django import needs_pass

        def make(passes: Passes) -> object:
            @needs_pass(passes)
            def enter(request: object) -> HttpResponse:
                return HttpResponse(request.weir_pass.jti)

            urls = type("urls", (), {"urlpatterns": [path("enter", enter)]})
            overridden = override_settings(ROOT_URLCONF=urls)
            overridden.enable()
            self.addCleanup(overridden.disable)
            return wsgi_client(WSGIHandler())

        self.behaves(make(self.passes()))
        self.is_away(make)


def wsgi_client(app: object) -> object:
    def ask(authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/enter", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80"}
        environ |= {"wsgi.url_scheme": "http", "wsgi.errors": io.StringIO(), "wsgi.input": io.BytesIO()}
        if authorization is not None:
            environ["HTTP_AUTHORIZATION"] = authorization
        began: list = []
        body = app(environ, lambda status, headers, *_: began.extend((status, headers)))
        return int(began[0].split()[0]), {name.lower(): value for name, value in began[1]}, b"".join(body)

    return ask


def asgi_client(app: object) -> object:
    def ask(*authorizations: str | None) -> tuple[int, dict[str, str], bytes]:
        headers = [(b"authorization", one.encode()) for one in authorizations if one is not None]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/enter", "raw_path": b"/enter"}
        scope |= {"query_string": b"", "headers": headers, "scheme": "http", "root_path": "", "client": None, "server": None}
        sent: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict) -> None:
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])

    return ask


if __name__ == "__main__":
    unittest.main()
