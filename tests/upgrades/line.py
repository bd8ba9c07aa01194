"""People in one line, who see only what apps see, and what may never happen to them."""

import asyncio
import base64
import json
import random
import time

from lab import Fault, eventually, request


class Person:
    def __init__(self, number):
        self.number = number
        self.token = None
        self.first_rank = None
        # When the call was sent that gave the place, and when its reply came; the same of the entry.
        self.joined = self.entered = None
        self.passed = None


def claims_of(passed):
    """What a pass says."""
    payload = passed.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


class Line:
    """The people of one zone. They ask any of `servers`."""

    def __init__(self, zone, admit_per_minute, servers, seed):
        self.zone, self.admit_per_minute, self.servers = zone, admit_per_minute, list(servers)
        self.people, self.faults, self.tasks = [], [], []
        self.random = random.Random(seed)
        self.calls, self.unanswered = 0, 0

    def waiting(self):
        return [person for person in self.people if person.joined and not person.entered]

    def entered(self):
        return [person for person in self.people if person.entered]

    async def ask(self, server, path, **body):
        """(status, seconds to wait before the call is sent again, body). No reply is status 0."""
        self.calls += 1
        try:
            status, fields, text = await request(server.address, "POST", path, {"zoneId": self.zone, **body})
        except (OSError, asyncio.TimeoutError):
            self.unanswered += 1
            return 0, 0.5, {}
        return status, float(fields.get("retry-after", 1)), json.loads(text)

    async def join(self, count):
        """So many come, one after the other, and poll from then on."""
        for _ in range(count):
            person = Person(len(self.people))
            self.people.append(person)
            while not person.joined:
                sent = time.monotonic()
                status, again_s, body = await self.ask(self.random.choice(self.servers), "/traffic/wait")
                if status == 200:
                    person.token, person.joined = body["token"], (sent, time.monotonic())
                elif status in (0, 429, 503):
                    await asyncio.sleep(again_s)
                else:
                    raise Fault(f"a join was answered {status}: {body}")
            if body["canEnter"]:
                self.note_entry(person, sent, body)
            else:
                person.first_rank = body["waiting"]["rank"]
                self.tasks.append(asyncio.create_task(self.poll(person, body["waiting"]["pollingPeriod"])))

    async def poll(self, person, period_ms):
        # The first call since the last answer: perhaps it decided, and the reply was lost.
        first_sent = None
        while True:
            await asyncio.sleep(period_ms / 1000)
            sent = time.monotonic()
            status, again_s, body = await self.ask(self.random.choice(self.servers), "/traffic/entry", token=person.token)
            if status in (0, 429, 503):
                first_sent, period_ms = first_sent or sent, again_s * 1000
                continue
            if status != 200:
                self.faults.append(f"person {person.number} lost the place: {status} {body}")
                return
            if body["canEnter"]:
                self.note_entry(person, first_sent or sent, body)
                return
            person.token, first_sent = body["token"], None
            period_ms = body["waiting"]["pollingPeriod"]
            rank = body["waiting"]["rank"]
            if rank > person.first_rank:
                self.faults.append(f"person {person.number} had rank {person.first_rank}, and then {rank}")

    def note_entry(self, person, sent, body):
        person.token, person.passed = body["token"], body["pass"]
        person.entered = sent, time.monotonic()

    async def until(self, what, holds):
        """Waits until `holds()`. What may never happen ends the wait."""

        def checked():
            if self.faults:
                raise Fault("; ".join(self.faults[:5]))
            return holds()

        await eventually(what, checked)

    async def until_entered(self, count):
        await self.until(f"{count} people have entered", lambda: len(self.entered()) >= count)

    async def repeat(self, person, server):
        """Whoever entered asks again, and gets the same pass."""
        while True:
            status, again_s, body = await self.ask(server, "/traffic/entry", token=person.token)
            if status not in (0, 429, 503):
                break
            await asyncio.sleep(again_s)
        if status != 200 or not body["canEnter"]:
            raise Fault(f"person {person.number} has entered, and was answered {status} {body}")
        again, first = claims_of(body["pass"]), claims_of(person.passed)
        if (again["jti"], again["exp"]) != (first["jti"], first["exp"]):
            raise Fault(f"person {person.number} entered twice: {first}, {again}")

    def judge(self):
        """Fails for what may never happen, as far as people can know it: an entry was decided between its call and its reply."""
        entered = self.entered()
        passes = {claims_of(person.passed)["jti"] for person in entered}
        if len(passes) != len(entered):
            raise Fault(f"{len(entered)} people have {len(passes)} passes")
        part = -(-self.admit_per_minute // 10)
        most_in = {}
        for window_s, most in ((60, self.admit_per_minute), (6, part)):
            for first in entered:
                begins = first.entered[0]
                inside = sum(begins <= other.entered[0] and other.entered[1] <= begins + window_s for other in entered)
                most_in[window_s] = max(most_in.get(window_s, 0), inside)
            if most_in[window_s] > most:
                raise Fault(f"{most_in[window_s]} people entered within {window_s} s, and {most} may")
        # Slots are kept for those ahead who are present. So there are never as many ahead as a sub-window has slots.
        overtaken = 0
        for person in entered:
            ahead = sum(
                other.joined[1] < person.joined[0] and (not other.entered or other.entered[0] > person.entered[1])
                for other in self.people
                if other.joined
            )
            overtaken = max(overtaken, ahead)
        if overtaken >= part:
            raise Fault(f"somebody entered before {overtaken} people who had come earlier")
        return (
            f"{len(self.people)} came and {len(entered)} entered, at most {most_in[60]} in 60 s and {most_in[6]} in 6 s; {overtaken} ahead "
            f"at most; {self.calls} calls, {self.unanswered} without an answer"
        )

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
