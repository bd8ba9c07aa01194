"""Processes of a test: `redis-server` and `weir`, and calls to both."""

import asyncio
import json
import os
import pathlib
import signal
import socket
import time

# Ends what hangs. Nothing is expected to take that long.
PATIENCE_S = 120


class Fault(Exception):
    """The test found something that should not be."""


async def eventually(what, holds, every_s=0.05):
    """Waits until `holds()` is true, and returns that value."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        value = holds()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        await asyncio.sleep(every_s)
    raise Fault(f"not within {PATIENCE_S} s: {what}")


async def request(address, method, path, body=None, limit_s=10.0):
    """One call over a connection of its own: (status, header fields, body)."""
    host, port = address.removeprefix("http://").rsplit(":", 1)

    async def call():
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            payload = b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n"
            if body is not None:
                head += "Content-Type: application/json\r\n"
            writer.write(head.encode() + b"\r\n" + payload)
            raw = await reader.read()
        finally:
            writer.close()
        head, separator, text = raw.partition(b"\r\n\r\n")
        if not separator:
            raise ConnectionError("the connection ended before the reply")
        first, *lines = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if fields.get("transfer-encoding") == "chunked":
            chunks, rest = [], text
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                chunks.append(rest[: int(size, 16)])
                rest = rest[int(size, 16) + 2 :]
            text = b"".join(chunks)
        elif len(text) < int(fields.get("content-length", 0)):
            raise ConnectionError("the reply was cut")
        return int(first.split(" ")[1]), fields, text.decode()

    return await asyncio.wait_for(call(), limit_s)


class Process:
    """A process that is killed with the test."""

    all = []

    def __init__(self, name, child, log):
        self.name, self.child, self.log = name, child, log
        Process.all.append(self)

    def text(self):
        return self.log.read_text(errors="replace")

    def kill(self):
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGKILL)

    async def ended(self):
        return await asyncio.wait_for(self.child.wait(), PATIENCE_S)

    @classmethod
    async def end_all(cls):
        for process in cls.all:
            process.kill()
        for process in cls.all:
            await process.child.wait()


class Redis(Process):
    """A `redis-server` that keeps nothing on disk."""

    @classmethod
    async def start(cls, directory, name, *args):
        program = os.environ.get("REDIS_SERVER", "redis-server")
        directory.mkdir(parents=True)
        log = directory / "log"
        while True:
            # Another program may take the port before the server has it: then the server ends, and the next port is tried.
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            with log.open("w") as output:
                child = await asyncio.create_subprocess_exec(
                    program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(directory),
                    "--repl-diskless-sync-delay", "0", *args, stdout=output, stderr=output,
                )
            redis = cls(name, child, log)
            redis.port = port
            await eventually(f"{name} listens", lambda: child.returncode is not None or "Ready to accept" in redis.text())
            if child.returncode is None:
                return redis
            if "Address already in use" not in redis.text():
                raise Fault(f"{name} does not start: {redis.text()}")

    def command(self, *parts):
        """Sends a command, and returns its reply: a number, bytes, a list, or nothing."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            parts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
            with connection.makefile("rb") as stream:
                return self.reply(stream)

    def reply(self, stream):
        line = stream.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"-":
            raise Fault(f"{self.name}: {rest.decode()}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply(stream) for _ in range(int(rest))]
        return rest


class Weir(Process):
    """A server of one version."""

    @classmethod
    async def start(cls, version, directory, *args):
        """Starts it, and waits until it listens. `version` is its name and its program."""
        name, program = version
        log = directory / f"{name}-{len(Process.all)}.log"
        out = log.with_suffix(".out")
        with log.open("w") as errors, out.open("w") as output:
            child = await asyncio.create_subprocess_exec(
                program, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", *args,
                stdout=output, stderr=errors, env=environment(),
            )
        weir = cls(f"the {name} version", child, log)
        await eventually(f"{weir.name} listens", lambda: child.returncode is not None or "admin on " in out.read_text())
        if child.returncode is not None:
            return weir
        said = dict(line.split(" on ", 1) for line in out.read_text().splitlines() if " on " in line)
        weir.address, weir.admin = said["listening"], said["admin"]
        return weir

    async def stop(self):
        """Ends it as systemd does."""
        self.child.send_signal(signal.SIGTERM)
        status = await self.ended()
        if status != 0:
            raise Fault(f"{self.name} ended with code {status}: {self.text()}")

    async def get(self, path):
        return await request(self.admin, "GET", path)


def environment():
    """Without settings of whoever runs the test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}


async def run(program, *args):
    """Runs a command to its end: (exit code, what it said)."""
    child = await asyncio.create_subprocess_exec(
        program, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment()
    )
    said, _ = await asyncio.wait_for(child.communicate(), PATIENCE_S)
    return child.returncode, said.decode()


async def must(program, *args):
    """Runs a command that must succeed."""
    status, said = await run(program, *args)
    if status != 0:
        raise Fault(f"{' '.join(map(str, args))} ended with code {status}: {said}")
    return said


def write(path, text):
    """Writes a file that its owner alone can read."""
    path = pathlib.Path(path)
    path.touch(mode=0o600)
    path.write_text(text)
    return path
