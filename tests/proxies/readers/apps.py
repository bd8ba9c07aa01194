"""Two Python apps behind the proxies: Flask on Werkzeug's server, and an ASGI app on hypercorn, which also speaks HTTP/2 in clear text.

Each reply says in `X-Read-As` as what the target is read. `checkout` and `admin` are the handlers that Weir guards. Prints both ports,
and ends when standard input ends.
"""

import asyncio
import logging
import os
import posixpath
import re
import socket
import sys
import threading
from urllib.parse import unquote, urlsplit

from flask import Flask, request
from hypercorn.asyncio import serve
from hypercorn.config import Config
from werkzeug.security import safe_join
from werkzeug.serving import WSGIRequestHandler, make_server

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def section_of(path):
    found = re.match(r"/(checkout|admin)(/|$)", path or "/")
    return found[1] if found else "other"


def attempt(read):
    """A text that cannot be read is no reading."""
    try:
        return section_of(read())
    except ValueError:
        return "none"


class Tally:
    """Counts the requests that reached what Weir guards, whatever brought them here: the test asks for the count past the proxy."""

    def __init__(self, name):
        self.name, self.reached, self.lock = name, 0, threading.Lock()

    def headers(self, read, counts, what):
        text = ", ".join(f"{name}={section}" for name, section in read.items())
        with self.lock:
            if counts and any(section in ("checkout", "admin") for section in read.values()):
                self.reached += 1
                print(f"{self.name} got {what}: {text}", file=sys.stderr, flush=True)
            return {"X-Read-As": text, "X-Reached": str(self.reached)}


flask, tally = Flask("reader"), Tally("flask")


class MethodOverride:
    """The middleware of Flask's documentation ("Adding HTTP Method Overrides")."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        method = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", "").upper()
        if method in METHODS:
            environ["REQUEST_METHOD"] = method
        return self.app(environ, start_response)


def reply(section):
    target = request.environ["REQUEST_URI"]
    read = {
        "flask": section,
        "files": attempt(lambda: (safe_join("/", request.path.lstrip("/")) or "/other").replace("//", "/")),
        "urlsplit": attempt(lambda: unquote(urlsplit(target).path)),
        "twice": attempt(lambda: unquote(request.path)),
    }
    what = f"{request.method} {target} {list(request.headers)}"
    return f"{read}\n", 200, tally.headers(read, "X-Not-Counted" not in request.headers, what)


for name in ("checkout", "admin"):
    for rule in (f"/{name}", f"/{name}/", f"/{name}/<path:rest>"):
        flask.add_url_rule(rule, f"{name} {rule}", lambda rest="", name=name: reply(name), methods=METHODS)
for rule in ("/", "/<path:rest>"):
    flask.add_url_rule(rule, rule, lambda rest="": reply("other"), methods=METHODS)
flask.wsgi_app = MethodOverride(flask.wsgi_app)


class Asgi:
    def __init__(self):
        self.tally = Tally("hypercorn")

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
            return
        path = scope["path"]
        read = {
            "asgi": section_of(path),
            "normalized": attempt(lambda: posixpath.normpath(path)),
            "twice": attempt(lambda: unquote(path)),
            "raw": attempt(lambda: urlsplit(scope["raw_path"].decode("latin1")).path),
        }
        # A preflight runs no handler.
        if scope["method"] == "OPTIONS":
            read = {"asgi": "other"}
        counts = b"x-not-counted" not in [name for name, _ in scope["headers"]]
        headers = self.tally.headers(read, counts, f"{scope['method']} {scope['raw_path']} {scope['headers']}")
        body = f"{read}\n".encode()
        head = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        head.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    of_flask = make_server("127.0.0.1", 0, flask, threaded=True)
    threading.Thread(target=of_flask.serve_forever, daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    config = Config()
    config.bind, config.errorlog, config.accesslog = [f"fd://{listener.fileno()}"], None, None
    config.keep_alive_timeout = 60
    print(of_flask.server_port, listener.getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    await serve(Asgi(), config, shutdown_trigger=asyncio.Event().wait)


asyncio.run(main())
