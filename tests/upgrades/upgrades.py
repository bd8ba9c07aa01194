#!/usr/bin/env python3
"""Two versions at one store: upgrades.py BEFORE NOW, two programs. See `run`."""

import asyncio
import datetime
import json
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile

from lab import Fault, Process, Redis, Weir, eventually, must, request, run, write
from line import Line

# 30 people in six seconds.
ADMIT_PER_MINUTE = 300
ZONE = "Z"


def zones(mode, more=""):
    return (
        f'[[zone]]\nid = "{ZONE}"\nadmit_per_minute = {ADMIT_PER_MINUTE}\npolling_period_ms = 2000\nidle_timeout_s = 60\n'
        f'mode = "{mode}"\n{more}'
    )


def keys(directory):
    """The keys that all servers of a store have."""
    write(directory / "seal.key", secrets.token_hex(32))
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], check=True, capture_output=True, text=True
    )
    write(directory / "pass.pem", key.stdout)
    return f'seal.key_file = "{directory}/seal.key"\npass.key_file = "{directory}/pass.pem"\n'


def says(name, text):
    print(f"{name}: {text}", flush=True)


# What no log may have: a state that a version cannot use, a register that it gives back, a panic.
UNWANTED = ("cannot be used as it is", "written back", "panicked", "no server wrote", "did not answer with")


def logs_are_clean(*servers):
    for server in servers:
        for line in server.text().splitlines():
            if any(text in line for text in UNWANTED):
                raise Fault(f"{server.name} says: {line}")


class Store:
    """A primary with a replica, and what servers need to use them."""

    @classmethod
    async def start(cls, directory):
        store = cls()
        store.directory = directory
        store.primary = await Redis.start(directory / "primary", "the primary")
        store.replica = await Redis.start(directory / "replica", "the replica", "--replicaof", "127.0.0.1", str(store.primary.port))
        await eventually("the replica has what the primary has", lambda: b"master_link_status:up" in store.replica.command("INFO", "replication"))
        addresses = f"redis://127.0.0.1:{store.primary.port},127.0.0.1:{store.replica.port}"
        store.config = write(directory / "weir.toml", f'store = "{addresses}"\n{keys(directory)}')
        return store

    async def server(self, version):
        name, _ = version
        return await Weir.start(version, self.directory, "--config", str(self.config), "--data-dir", str(self.directory / f"data-{name}"))

    async def apply(self, version, text):
        """Changes zones by the command line of a version. Later ones end a hold only if they are told to."""
        told = ["--replace"] if "--replace" in await must(version[1], "zones", "apply", "--help") else []
        await must(version[1], "zones", "apply", *told, str(write(self.directory / "zones.toml", text)), "--config", str(self.config))

    async def fail_over(self, line):
        """The primary dies with the last entries, which the replica has not heard of, and the replica takes over."""
        self.replica.command("REPLICAOF", "NO", "ONE")
        await line.until_entered(len(line.entered()) + 10)
        self.primary.kill()
        await self.primary.ended()


async def one_line(directory, first, second):
    """A line that servers of one version began gets a server of the other version, a failover, and loses the first server."""
    name = f"{first[0]}, then {second[0]}"
    store = await Store.start(directory)
    await store.apply(first, zones("hold"))
    leaves = await store.server(first)
    line = Line(ZONE, ADMIT_PER_MINUTE, [leaves], seed=1)
    await line.join(100)
    stays = await store.server(second)
    line.servers.append(stays)
    await asyncio.gather(line.join(50), line.join(50))
    says(name, "200 people wait at both")

    await store.apply(second, zones("auto"))
    await line.until_entered(50)
    await asyncio.gather(line.join(25), line.join(25))
    await store.fail_over(line)
    before = len(line.entered())
    says(name, f"the primary died when {before} had entered")
    await line.until_entered(before + 20)
    await asyncio.gather(line.join(25), line.join(25))
    says(name, f"{len(line.entered())} have entered; the first server leaves")
    line.servers.remove(leaves)
    await leaves.stop()
    await line.until("all have entered", lambda: len(line.entered()) == 300)
    for person in line.people[::10]:
        await line.repeat(person, stays)
    await line.end()
    says(name, line.judge())
    logs_are_clean(leaves, stays)
    return name, store, stays


async def a_server_of_before_refuses_the_register(name, store, before, now):
    """A field of a zone that the version before does not know: it says so, leaves it alone, and serves what it served."""
    await store.apply(now, zones("hold", event_at(datetime.timedelta(days=30))))
    await eventually("the version before says what it cannot read", lambda: "upgrade this server if a newer one wrote it" in before.text())
    status, _, text = await request(before.address, "POST", "/traffic/wait", {"zoneId": ZONE})
    if status != 200:
        raise Fault(f"{before.name} does not serve the zone any more: {status} {text}")
    kept = store.replica.command("HGET", "weir:v1:{zones}", ZONE)
    if b"sale" not in kept:
        raise Fault(f"the event is lost: {kept}")
    says(name, "the version before says that it cannot read a zone with a draw, and leaves it alone")


async def a_later_layout_is_left_alone(name, store, server, now):
    """What this version says when a later one has written the zone's state: here, a header with more numbers."""
    await store.apply(now, zones("hold"))
    line = Line(ZONE, ADMIT_PER_MINUTE, [server], seed=1)

    async def is_held():
        _, _, text = await request(server.address, "POST", "/traffic/wait", {"zoneId": ZONE})
        return '"canEnter":false' in text

    await eventually("the zone is held", is_held)
    await line.join(1)
    key = f"weir:v1:{{{ZONE}}}:z"
    kept = store.replica.command("GET", key)
    numbers = kept[-1]
    later = kept[: 8 * numbers] + bytes(8 * (200 - numbers)) + kept[8 * numbers : -1] + bytes([200])
    store.replica.command("SET", key, later)
    status, said = 0, ""
    reason = "a newer version of Weir wrote it: the state of the zone has 200 numbers"

    async def is_not_ready():
        nonlocal said
        _, _, said = await server.get("/readyz")
        return "newer: " in said and reason in said

    await eventually("/readyz says that the state is newer", is_not_ready)
    status, fields, text = await request(server.address, "POST", "/traffic/wait", {"zoneId": ZONE})
    if status != 503 or "store_away" not in text or "retry-after" not in fields:
        raise Fault(f"a join was answered {status} {text}")
    status, _, text = await request(server.address, "POST", "/traffic/entry", {"zoneId": ZONE, "token": line.people[0].token})
    if status != 200 or '"stale":true' not in text:
        raise Fault(f"a poll was answered {status} {text}")
    named = sum(reason in said for said in server.text().splitlines())
    if named != 1:
        raise Fault(f"the log names it {named} times")

    async def is_found():
        _, report = await run(now[1], "doctor", "--config", str(store.config))
        return "newer: " in report and "upgrade this server" in report

    await eventually("the doctor finds it", is_found)
    if store.replica.command("GET", key) != later:
        raise Fault("the state was touched")
    store.replica.command("SET", key, kept)

    async def is_served():
        status, _, _ = await request(server.address, "POST", "/traffic/wait", {"zoneId": ZONE})
        return status == 200

    await eventually("the zone is served again", is_served)
    await line.end()
    if line.faults:
        raise Fault("; ".join(line.faults))
    says(name, f"a later layout is left alone: {json.loads(said)['detail']}")


async def upgrade(work, before, now):
    name, store, stays = await one_line(work / "upgrade", before, now)
    await a_later_layout_is_left_alone(name, store, stays, now)
    await stays.stop()


async def rollback(work, before, now):
    name, store, stays = await one_line(work / "rollback", now, before)
    await a_server_of_before_refuses_the_register(name, store, stays, now)
    await stays.stop()


# A draw by a value that an operator states.
EVENT = """
[[zone.event]]
id = "sale"
prequeue_from = "{prequeue}"
begins = "{begins}"
ends = "{ends}"
order = "draw"
randomness = "stated: a number that is said afterwards"
fallback = "wait"
"""


def event_at(begins_in):
    """An event that begins then. Its pre-queue begins two minutes before that."""
    begins = datetime.datetime.now(datetime.timezone.utc) + begins_in
    minutes = datetime.timedelta(minutes=1)
    at = {"prequeue": begins - 2 * minutes, "begins": begins, "ends": begins + 60 * minutes}
    return EVENT.format(**{name: instant.strftime("%Y-%m-%dT%H:%M:%SZ") for name, instant in at.items()})


class Directory:
    """The data directory of an embedded store. Servers of both versions open it, one after the other."""

    def __init__(self, directory):
        directory.mkdir()
        self.directory, self.line = directory, Line(ZONE, ADMIT_PER_MINUTE, [], seed=1)

    async def open(self, version, text):
        config = write(self.directory / "weir.toml", text)
        args = ("--config", str(config), "--store", "memory", "--data-dir", str(self.directory / "data"))
        self.server = await Weir.start(version, self.directory, *args)
        if self.server.child.returncode is None:
            self.line.servers = [self.server]
        return self.server

    async def all_have_places(self):
        """Each person is answered by the server that runs now as by the one before. Nobody may enter meanwhile."""
        for person in self.line.waiting():
            status, _, body = await self.line.ask(self.server, "/traffic/entry", token=person.token)
            if status != 200 or not body["canEnter"] and body["waiting"]["rank"] > person.first_rank:
                raise Fault(f"{self.server.name}: person {person.number} of rank {person.first_rank} was answered {status} {body}")
        for person in self.line.entered()[::5]:
            await self.line.repeat(person, self.server)


async def in_one_directory(work, before, now):
    of = Directory(work / "embedded")
    name = "one directory"
    await of.open(before, zones("hold"))
    await of.line.join(60)
    await of.server.stop()
    for version, mode in ((now, "hold"), (now, "auto"), (before, "hold"), (before, "auto"), (now, "hold")):
        await of.open(version, zones(mode))
        if mode == "hold":
            await of.all_have_places()
            await of.line.join(20)
        else:
            await of.line.until_entered(len(of.line.entered()) + 10)
        await of.server.stop()
        logs_are_clean(of.server)
    if of.line.faults:
        raise Fault("; ".join(of.line.faults))
    says(name, of.line.judge())

    # A draw is written in a way that the version before takes for damage, and that this one names.
    event = event_at(datetime.timedelta(seconds=5))
    await of.line.end()
    await of.open(now, zones("auto", event))
    status, _, place = await of.line.ask(of.server, "/traffic/wait")
    if status != 200:
        raise Fault(f"a join was answered {status} {place}")

    async def is_stated():
        status, _, _ = await request(of.server.admin, "POST", f"/admin/v1/zones/{ZONE}/draws/sale", {"value": "3 1 6 6 2 5"})
        return status == 200

    async def is_dealt():
        status, _, body = await of.line.ask(of.server, "/traffic/entry", token=place["token"])
        return status == 200 and (body["canEnter"] or body["waiting"].get("reason") != "draw")

    await eventually("the draw takes its value", is_stated)
    await eventually("the line is dealt", is_dealt)
    await of.server.stop()
    refused = await of.open(before, zones("hold"))
    status, said = await refused.ended(), refused.text()
    says(name, f"the version before ends with code {status}: {said.strip().splitlines()[-1]}")
    if status != 74 or not re.search("has format 3, and this weir reads format 2; use the version of weir that wrote it", said):
        raise Fault(f"{refused.name} should refuse the journal with code 74: {status} {said}")
    refused = await of.open(before, f'[otlp]\nendpoint = "http://127.0.0.1:1"\n{zones("hold")}')
    status, said = await refused.ended(), refused.text()
    if status != 64 or "otlp" not in said:
        raise Fault(f"{refused.name} should refuse a setting that it does not know with code 64: {status} {said}")
    await of.open(now, zones("auto", event))
    if not await is_dealt():
        raise Fault("the deal is lost")
    await of.server.stop()


async def main():
    before, now = ("before", sys.argv[1]), ("now", sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="weir-upgrades-") as work:
        work = pathlib.Path(work)
        try:
            await in_one_directory(work, before, now)
            await asyncio.gather(upgrade(work, before, now), rollback(work, before, now))
        except BaseException:
            for process in Process.all:
                print(f"--- {process.name}\n{process.text()[-4000:]}", file=sys.stderr)
            raise
        finally:
            await Process.end_all()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Fault as fault:
        sys.exit(f"tests/upgrades: {fault}")
