// The hook in React, also in its strict mode, which mounts, unmounts and mounts each component.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { built } from "./built.mjs";
import { World, settle } from "./world.mjs";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const { usePlace } = await built("react");
const packages = createRequire(`${process.env.CLIENT_DIST}/index.js`);
const { StrictMode, act, createElement } = packages("react");
const { create } = packages("react-test-renderer");

/// Renders the hook. Returns the last result, and how to render and unmount.
async function render(options) {
  const used = {};
  function Probe(props) {
    Object.assign(used, usePlace(props));
    return null;
  }
  let root;
  const tree = (props) => createElement(StrictMode, null, createElement(Probe, props));
  await act(async () => void (root = create(tree(options))));
  const steps = (run) => act(async () => void (await run()));
  return { used, steps, again: (props) => steps(() => root.update(tree(props))), end: () => steps(() => root.unmount()) };
}

const options = (world, zone = "Z") => ({ server: "https://weir.test", zone, platform: world.platform() });

test("a component takes one place, shows it, and enters", async () => {
  const replies = [{ waiting: { token: "t1", rank: 2, pollingPeriod: 1_000 } }, { entered: { token: "t1", pass: "p" } }];
  const world = new World(() => replies.shift());
  const { used, steps, again, end } = await render(options(world));
  await steps(settle);
  assert.deepEqual([used.state.kind, used.state.rank], ["waiting", 2]);
  const { leave, anew } = used;
  // A platform that is made anew for each render is no other place.
  await again(options(world));
  assert.deepEqual([used.leave, used.anew], [leave, anew]);
  await steps(() => world.run(2_000));
  assert.deepEqual([used.state.kind, used.state.pass], ["entered", "p"]);
  assert.deepEqual(world.calls.map(({ call }) => call), ["wait", "entry"]);
  await end();
});

test("another zone is another place, and an unmounted component asks no more", async () => {
  const world = new World(() => ({ waiting: { token: "t1", rank: 2, pollingPeriod: 1_000 } }));
  const { steps, again, end } = await render(options(world));
  await steps(settle);
  await again(options(world, "OTHER"));
  await steps(settle);
  assert.deepEqual(world.calls.map(({ body }) => body.zoneId), ["Z", "OTHER"]);
  await steps(() => world.run(5_000));
  const polled = new Set(world.calls.slice(2).map(({ body }) => body.zoneId));
  assert.deepEqual([...polled], ["OTHER"]);
  await end();
  const before = world.calls.length;
  await world.run(60_000);
  assert.equal(world.calls.length, before);
});

test("the pass of one zone is never shown as one of another", async () => {
  const world = new World(({ body: { zoneId } }) => (zoneId === "Z" ? { entered: { token: "t1", pass: "of Z" } } : { waiting: { token: "t2", rank: 2, pollingPeriod: 1_000 } }));
  const shown = [];
  function Probe(props) {
    const { state } = usePlace(props);
    shown.push(`${props.zone}: ${state?.pass ?? state?.kind ?? null}`);
    return null;
  }
  let root;
  await act(async () => void (root = create(createElement(Probe, options(world)))));
  await act(settle);
  await act(async () => void root.update(createElement(Probe, options(world, "OTHER"))));
  await act(settle);
  assert.ok(shown.includes("Z: of Z") && shown.at(-1) === "OTHER: waiting", shown.join(", "));
  assert.ok(!shown.includes("OTHER: of Z"), shown.join(", "));
  await act(async () => void root.unmount());
});

test("a user leaves and takes a new place", async () => {
  const nothing = { raw: { status: 204, type: "text/plain", body: "" } };
  const world = new World(({ call }) => (call === "leave" ? nothing : { waiting: { token: "t1", rank: 2, pollingPeriod: 1_000 } }));
  const { used, steps, end } = await render(options(world));
  await steps(settle);
  await steps(() => used.leave());
  assert.equal(used.state.kind, "left");
  await steps(async () => {
    used.anew();
    await settle();
  });
  assert.equal(used.state.kind, "waiting");
  assert.deepEqual(world.calls.map(({ call }) => call), ["wait", "leave", "wait"]);
  await end();
});
