// The verifier of Node, with the vectors that all verifiers share, and in Express and Fastify.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import { test } from "node:test";

const dist = process.env.PASSES_DIST;
if (!dist) throw new Error("PASSES_DIST names no directory: run clients/passes/run node, which builds the package and sets it");
const { Refusal, passes, passesOn } = await import(`${dist}/index.js`);
const { memory } = await import(`${dist}/spent.js`);
const packages = createRequire(`${dist}/index.js`);
const vectors = JSON.parse(readFileSync(new URL("../../vectors.json", import.meta.url), "utf8"));

/// Listens on a free port until the test ends.
async function listen(t, handle) {
  const server = http.createServer(handle);
  await new Promise((done, failed) => server.once("error", failed).listen(0, "127.0.0.1", done));
  t.after(() => (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${server.address().port}`;
}

/// A Weir that publishes keys as the steps of a scenario say. `at.fetches` counts.
async function publisher(t) {
  const at = { what: null, fetches: 0 };
  at.address = await listen(t, (request, response) => {
    if (request.url === "/elsewhere") return response.end(JSON.stringify(vectors.sets.a));
    assert.equal(request.url, "/.well-known/jwks.json");
    at.fetches += 1;
    // As a cache does that has older keys.
    if (request.headers["cache-control"] !== "no-cache") return response.end('{"keys":[]}');
    const { set, status = 200, body, padding = 0, redirect, hang, endless, trickle, cut, hints } = at.what;
    if (hang) return;
    if (redirect) return response.writeHead(302, { location: "/elsewhere" }).end();
    if (trickle) {
      const byte = setInterval(() => response.write(" "), 100);
      return response.on("close", () => clearInterval(byte));
    }
    if (endless) {
      const more = () => {
        while (response.write(" ".repeat(16_384)));
        response.once("drain", more);
      };
      response.on("error", () => {});
      return more();
    }
    const text = body ?? JSON.stringify(vectors.sets[set] ?? {}) + " ".repeat(padding);
    if (cut) return response.writeHead(200, { "content-length": text.length + 1 }).write(text, () => response.destroy());
    if (hints) {
      response.writeProcessing();
      response.writeEarlyHints({ link: "</style.css>; rel=preload" });
    }
    response.writeHead(status).end(text);
  });
  return at;
}

/// A verifier whose clocks a test sets, in seconds. `clock.fetchMs` is the limit of a fetch: short only where nothing comes.
function verifier(address, clock, more = {}) {
  const nowMs = () => clock.now * 1_000;
  const machine = { nowMs, steadyMs: nowMs, spendMs: clock.spendMs ?? 20_000, get fetchMs() { return clock.fetchMs ?? 20_000; } };
  return passesOn({ weir: address, zone: vectors.zone, audience: vectors.audience, ...more }, machine);
}

const said = (passes, text) => passes.accept(text).then((pass) => ["ok", pass], (fault) => [fault.code ?? String(fault.stack), fault]);

test("every pass of the vectors is judged as they say", async (t) => {
  const at = await publisher(t);
  for (const { name, jwks, now, pass, expect, claims } of vectors.cases) {
    at.what = { set: jwks };
    const [code, found] = await said(verifier(at.address, { now }), pass);
    assert.equal(code, expect, name);
    if (claims) assert.deepEqual(found, claims, name);
  }
});

for (const { name, steps } of vectors.scenarios) {
  test(`scenario: ${name}`, async (t) => {
    const at = await publisher(t);
    const clock = { now: vectors.epoch };
    const passes = verifier(at.address, clock);
    for (const step of steps) {
      if (step.serve) {
        at.what = step.serve;
        clock.fetchMs = step.serve.hang || step.serve.trickle ? 500 : 20_000;
      }
      if (step.fetches) assert.equal(at.fetches, step.fetches, `fetches before ${JSON.stringify(step)}`);
      if (!step.pass) continue;
      clock.now = vectors.epoch + step.at;
      const [code, fault] = await said(passes, step.pass);
      assert.equal(code, step.expect, `at ${step.at} s`);
      if (step.retry_after) assert.equal(fault.headers["retry-after"], String(step.retry_after), `at ${step.at} s`);
    }
  });
}

const good = vectors.cases[0];
const ready = async (t, more) => {
  const at = await publisher(t);
  at.what = { set: "all" };
  return [verifier(at.address, { now: good.now }, more), at];
};

test("of a hundred who show one pass at once one enters, and the keys are fetched once", async (t) => {
  const [passes, at] = await ready(t);
  const all = await Promise.all(Array.from({ length: 100 }, () => said(passes, good.pass)));
  assert.equal(all.filter(([code]) => code === "ok").length, 1);
  assert.equal(all.filter(([code]) => code === "spent").length, 99);
  assert.equal(at.fetches, 1);
});

test("nobody waits long for a Weir that hangs, where the key is known", async (t) => {
  const at = await publisher(t);
  at.what = { set: "all" };
  const clock = { now: good.now, fetchMs: 10_000 };
  const passes = verifier(at.address, clock);
  assert.equal((await said(passes, good.pass))[0], "ok");
  [at.what, clock.now] = [{ hang: true }, good.now + 61];
  const begun = performance.now();
  for (let i = 0; i < 4; i += 1) assert.equal((await said(passes, good.pass))[0], "spent");
  assert.ok(performance.now() - begun < 7_500, "it waits for a fifth of the limit, and once");
  assert.equal(at.fetches, 2);
});

test("a fetch whose text never ends is given up, also where fetch ignores its signal", async (t) => {
  // As in Node 20, once the garbage was collected.
  t.mock.method(globalThis, "fetch", async () => new Response(new ReadableStream({ pull: () => new Promise(() => {}) })));
  const passes = verifier("http://127.0.0.1:9", { now: good.now, fetchMs: 100 });
  const fault = await passes.accept(good.pass).catch((fault) => fault);
  assert.deepEqual([fault.code, fault.cause.message], ["keys_away", "Weir did not send its keys within 100 ms"]);
});

test("the memory has a limit, and forgets what has expired", async () => {
  let now = 0;
  const spend = memory(() => now, 2);
  assert.deepEqual([await spend("a", 10), await spend("a", 10), await spend("b", 20)], [true, false, true]);
  await assert.rejects(spend("c", 30));
  now = 11;
  assert.equal(await spend("c", 30), true);
  assert.equal(await spend("b", 20), false);
});

test("a full memory looks for what has expired once in a second at most", async () => {
  let now = 0;
  const spend = memory(() => now, 2);
  assert.deepEqual([await spend("a", 10), await spend("b", 11)], [true, true]);
  now = 11;
  assert.equal(await spend("c", 30), true);
  now = 12;
  await assert.rejects(spend("d", 30));
  now = 13;
  assert.equal(await spend("d", 30), true);
});

test("the shared record is asked for the pass's name until after its end, and nobody enters without it", async (t) => {
  const asked = [];
  const [passes] = await ready(t, { spent: async (...words) => asked.push(words) > 0 });
  assert.equal((await said(passes, good.pass))[0], "ok");
  assert.deepEqual(asked, [[`weir:spent:${good.claims.jti}`, good.claims.exp + 65]]);
  const throws = () => {
    throw new Error("no Redis");
  };
  for (const spent of [throws, async () => throws()]) {
    const [away] = await ready(t, { spent });
    const fault = await away.accept(good.pass).catch((fault) => fault);
    assert.deepEqual([fault.code, fault.status, fault.cause.message], ["record_away", 503, "no Redis"]);
  }
});

test("a record that does not answer is away", async (t) => {
  const at = await publisher(t);
  at.what = { set: "all" };
  const passes = verifier(at.address, { now: good.now, spendMs: 50 }, { spent: () => new Promise(() => {}) });
  const fault = await passes.accept(good.pass).catch((fault) => fault);
  assert.deepEqual([fault.code, fault.cause.message], ["record_away", "the record does not answer within 50 ms"]);
});

const needs_redis = { skip: !process.env.PASSES_REDIS && "PASSES_REDIS names no Redis" };

/// The record of docs/app/clients.md, as it is written there, in the Redis at this address, with a prefix: the tests of other languages use
/// this Redis, too. `now` is the clock of the service, in seconds.
async function redis_record(t, url, prefix, now = () => Date.now() / 1_000) {
  const [, code] = /^```js\n(\/\/ Node, redis 5[^]*?)^```$/m.exec(readFileSync(new URL("../../../../docs/app/clients.md", import.meta.url), "utf8"));
  const given = { createClient: packages("redis").createClient, randomUUID, url, console: { error() {} }, Date: { now: () => now() * 1_000 } };
  const AsyncFunction = (async () => {}).constructor;
  const made = await new AsyncFunction(...Object.keys(given), `${code}; return { client, spent };`)(...Object.values(given));
  t.after(() => made.client.destroy());
  return [(key, until) => made.spent(prefix + key, until), made.client];
}

test("services that share a Redis accept a pass once", needs_redis, async (t) => {
  const [spent, client] = await redis_record(t, process.env.PASSES_REDIS, "node:", () => good.now);
  const two = [(await ready(t, { spent }))[0], (await ready(t, { spent }))[0]];
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => said(two[i % 2], good.pass)));
  assert.equal(all.filter(([code]) => code === "ok").length, 1);
  assert.equal(all.filter(([code]) => code === "spent").length, 19);
  const life = await client.ttl(`node:weir:spent:${good.claims.jti}`);
  assert.ok(life > 300 && life <= good.claims.exp + 65 - good.now, `it is kept for ${life} s`);
});

test("a Redis whose clock is ahead does not forget a spent pass", needs_redis, async (t) => {
  const now = Math.floor(Date.now() / 1_000) - 3_600;
  const [spent] = await redis_record(t, process.env.PASSES_REDIS, "node-ahead:", () => now);
  assert.deepEqual([await spent("a", now + 365), await spent("a", now + 365)], [true, false]);
});

test("a pass is not taken for a spent one where a reply of Redis is lost", needs_redis, async (t) => {
  const to = new URL(process.env.PASSES_REDIS);
  let lost = 0;
  const proxy = net.createServer((near) => {
    const far = net.connect(to.port, to.hostname);
    let is_lost = false;
    near.on("data", (bytes) => {
      // The first SET reaches Redis. Its reply does not come back, and the connection ends.
      is_lost ||= lost === 0 && bytes.includes("weir:spent:");
      far.write(bytes);
    });
    far.on("data", (bytes) => {
      if (!is_lost) return near.write(bytes);
      lost += 1;
      near.destroy();
    });
    for (const one of [near, far]) one.on("error", () => {}).on("close", () => (near.destroy(), far.destroy()));
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  t.after(() => proxy.close());
  const [spent] = await redis_record(t, `redis://127.0.0.1:${proxy.address().port}`, "node-lost:");
  const [passes] = await ready(t, { spent });
  assert.equal((await said(passes, good.pass))[0], "ok");
  assert.equal((await said(passes, good.pass))[0], "spent");
  assert.equal(lost, 1);
});

test("a Redis that goes away does not end the service, and passes are accepted when it is back", needs_redis, async (t) => {
  const to = new URL(process.env.PASSES_REDIS);
  const sockets = new Set();
  let is_away = false;
  const proxy = net.createServer((near) => {
    if (is_away) return near.destroy();
    const far = net.connect(to.port, to.hostname);
    near.pipe(far).pipe(near);
    for (const one of [near, far]) sockets.add(one.on("error", () => {}));
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  t.after(() => proxy.close());
  const [spent] = await redis_record(t, `redis://127.0.0.1:${proxy.address().port}`, "node-away:");
  const [passes] = await ready(t, { spent });
  is_away = true;
  for (const socket of sockets) socket.destroy();
  assert.equal((await said(passes, good.pass))[0], "record_away");
  is_away = false;
  assert.equal((await said(passes, good.pass))[0], "ok");
});

test("a form without the field has no pass", async (t) => {
  const [passes] = await ready(t);
  for (const text of [undefined, null, 5, ["a.b.c"]]) assert.equal((await said(passes, text))[0], "unreadable");
});

test("options that cannot be right are refused", () => {
  for (const options of [{ weir: "weir.example", zone: "Z" }, { weir: "http://w", zone: "" }, { weir: "http://w", zone: "Z", audience: "" }]) {
    assert.throws(() => passes(options), TypeError);
  }
});

const ask = (address, pass) => fetch(`${address}/enter`, { method: "POST", headers: pass === undefined ? {} : { authorization: pass } });

/// The status of a request with two headers, which `fetch` cannot send.
const askTwice = (address, ...authorization) =>
  new Promise((done, failed) => {
    const request = http.request(`${address}/enter`, { method: "POST", headers: { authorization } }, (reply) => done(reply.resume().statusCode));
    request.on("error", failed).end();
  });

/// Express and Fastify answer the same.
async function behaves(address) {
  for (const second of ["Bearer hello", `Bearer ${good.pass}`]) assert.equal(await askTwice(address, `Bearer ${good.pass}`, second), 401);
  const reply = await ask(address, `Bearer ${good.pass}`);
  assert.equal(reply.status, 200);
  assert.equal(await reply.text(), good.claims.jti);
  for (const [pass, code, header] of [
    [undefined, "no_pass", 'Bearer realm="weir"'],
    ["Basic YTpi", "no_pass", 'Bearer realm="weir"'],
    [`Bearer ${good.pass}`, "spent", 'Bearer realm="weir", error="invalid_token", error_description="The pass was used already"'],
    ["Bearer hello", "unreadable", 'Bearer realm="weir", error="invalid_token", error_description="This is not a pass"'],
  ]) {
    const refused = await ask(address, pass);
    assert.deepEqual([refused.status, refused.headers.get("www-authenticate")], [401, header]);
    assert.equal(refused.headers.get("content-type").split(";")[0], "application/problem+json");
    assert.equal(refused.headers.get("cache-control"), "no-store");
    const { code: found, status } = await refused.json();
    assert.deepEqual([found, status], [code, 401]);
  }
}

async function away(address) {
  const refused = await ask(address, `Bearer ${good.pass}`);
  assert.deepEqual([refused.status, refused.headers.get("retry-after"), (await refused.json()).code], [503, "10", "keys_away"]);
}

test("in Express, a pass leads to the handler and a refusal is clear", async (t) => {
  const express = packages("express");
  const app = (check) => express().post("/enter", check.express, (request, response) => response.send(request.pass.jti));
  const [passes, at] = await ready(t);
  await behaves(await listen(t, app(passes)));
  at.what = { status: 500 };
  await away(await listen(t, app(verifier(at.address, { now: good.now }))));
});

test("in Fastify, a pass leads to the handler and a refusal is clear", async (t) => {
  const { fastify } = packages("fastify");
  const app = async (check) => {
    const made = fastify();
    t.after(() => made.close());
    made.post("/enter", { preHandler: check.fastify }, async (request) => request.pass.jti);
    return made.listen({ host: "127.0.0.1", port: 0 });
  };
  const [passes, at] = await ready(t);
  await behaves(await app(passes));
  at.what = { status: 500 };
  await away(await app(verifier(at.address, { now: good.now })));
});

test("a fault that is no refusal is the service's own", async (t) => {
  const [passes] = await ready(t);
  const faults = [];
  // Nothing can be put into this request.
  await passes.express(Object.freeze({ headers: { authorization: `Bearer ${good.pass}` } }), null, (fault) => faults.push(fault));
  assert.ok(faults[0] instanceof TypeError && !(faults[0] instanceof Refusal));
});
