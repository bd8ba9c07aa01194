// The harness works: it loads a page of the server and reports the page's faults.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Weir, axe, context, page, until, zone } from "./harness.mjs";

test("a server keeps its address and its places through a crash", async (t) => {
  const weir = await Weir.start(t, { config: zone("Z", { mode: "hold" }) });
  const { body } = await weir.ask("/traffic/wait", { zoneId: "Z" });
  await weir.kill();
  await assert.rejects(weir.ask("/traffic/wait", { zoneId: "Z" }));
  await weir.up();
  const again = await until("it answers again", () => weir.ask("/traffic/entry", { zoneId: "Z", token: body.token }));
  assert.equal(again.status, 200);
  assert.equal(again.body.waiting.rank, 1);
});

test("a page of the server is opened and its faults are reported", async (t) => {
  const weir = await Weir.start(t);
  const opened = await page(t, `${weir.url}/healthz`);
  assert.equal(await opened.textContent("body"), "ok");
  const { faults } = opened.context();
  const broken = await opened.context().newPage();
  const html = "<title>x</title><meta http-equiv=content-security-policy content=\"script-src 'self'\"><p onclick=x>y<img src=/none>";
  await broken.route("**/broken", (route) => route.fulfill({ contentType: "text/html", body: html }));
  await broken.goto(`${weir.url}/broken`);
  await until("the violation is reported", () => faults.some((fault) => fault.startsWith("breaks its policy: script-src")));
  assert.match((await axe(broken)).join("\n"), /html-has-lang[^]*image-alt/);
  faults.length = 0;
});

test("contexts are separate", async (t) => {
  const weir = await Weir.start(t);
  const [one, two] = [await context(t), await context(t)];
  for (const at of [one, two]) await (await at.newPage()).goto(`${weir.url}/healthz`);
  await one.pages()[0].evaluate(() => localStorage.setItem("a", "1"));
  assert.equal(await two.pages()[0].evaluate(() => localStorage.getItem("a")), null);
});
