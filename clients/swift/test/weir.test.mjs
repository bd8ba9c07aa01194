// The client in Swift, and the example of its README, against a running Weir.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Weir } from "../../../tests/browser/weir.mjs";
import { OPEN, withARunningWeir } from "../../conformance/weir.mjs";
import { drive } from "./driver.mjs";

withARunningWeir(drive);

test("the example of the README waits and enters", async (t) => {
  const text = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
  const example = /in ten lines\n\n```swift\n(.*?)```/s.exec(text("../README.md"))[1];
  assert(text("../Tests/Drive/Example.swift").includes(example), "Example.swift has the example");
  const weir = await Weir.start(t, { config: OPEN });
  const process = drive();
  t.after(() => process.end());
  const state = await new Promise((done) => process.begin({ server: weir.url, zone: "TEST_ZONE", do: "example" }, done));
  assert.equal(state.kind, "entered");
  assert.equal(JSON.parse(Buffer.from(state.pass.split(".")[1], "base64url")).zone, "TEST_ZONE");
});
