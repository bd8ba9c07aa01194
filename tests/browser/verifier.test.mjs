// The page that verifies draws, opened from the disk, without a server.
//
// The vectors are those of crates/draw/tests/vectors, which the Rust verifier passes. Invariant: the page makes no request.

import assert from "node:assert/strict";
import { createHash, createPrivateKey, createPublicKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { root } from "../../verifier/src/tree.js";
import { words } from "../../verifier/src/words.js";
import { axe, page, shot, until } from "./harness.mjs";

const PAGE = new URL("../../verifier/dist/verify-draw.html", import.meta.url).href;
const vector = (name) => JSON.parse(readFileSync(new URL(`../../crates/draw/tests/vectors/${name}`, import.meta.url)));
const text_file = (name, text) => ({ name, mimeType: "application/json", buffer: Buffer.from(text) });
const file = (name, value) => text_file(name, JSON.stringify(value));

async function opened(t, options) {
  const at = await page(t, PAGE, options);
  t.after(() => {
    const asked = at.context().requests?.filter(({ url }) => url !== PAGE) ?? [];
    assert.deepEqual(asked, [], "the page asks nobody");
  });
  return at;
}

/// Presses the button, and returns the heading and the lines of the result.
async function verified(at, patience_ms) {
  await at.evaluate(() => document.getElementById("verdict").textContent = "");
  await at.click("#verify");
  const heading = await until("there is a result", () => at.textContent("#verdict"), patience_ms);
  return { heading, lines: await at.locator("#files li").allTextContents() };
}

test("a record and a receipt are verified from the disk, in both languages", async (t) => {
  const at = await opened(t, { locale: "ko-KR" });
  const { record, receipts } = vector("drand.json");
  assert.equal(await at.getAttribute("html", "lang"), "ko");
  await at.setInputFiles("#record-file", file("record.json", record));
  await at.setInputFiles("#receipt-file", receipts.map((receipt, i) => file(`receipt-${i}.json`, receipt)));
  await at.fill("#key", record.key);
  const { heading, lines } = await verified(at);
  assert.equal(heading, words.ko.all_right, lines.join("\n"));
  assert.deepEqual(await axe(at), []);
  await shot(at, "verifier-ko");
  await at.click("#en");
  const english = await at.locator("#files li").allTextContents();
  assert.equal(await at.textContent("#verdict"), words.en.all_right);
  assert.ok(english.some((line) => line.includes("round 1000 of drand's quicknet")), english.join("\n"));
  assert.ok(english.some((line) => line.includes(`Place 0 has position ${receipts[0].position} of 10`)), english.join("\n"));
  assert.ok(!english.some((line) => /undefined|NaN|\[object/.test(line)), english.join("\n"));
  await shot(at, "verifier");
});

test("the published vectors of draws are right, and the wrong ones are refused", async (t) => {
  const at = await opened(t);
  for (const name of ["empty", "one", "five", "all-left", "nobody-left", "thousand", "later", "arrival", "stated-arrival", "lottery"]) {
    const { record, receipts } = vector(`${name}.json`);
    await at.setInputFiles("#record-file", file("record.json", record));
    await at.setInputFiles("#receipt-file", receipts.map((receipt, i) => file(`${i}.json`, receipt)));
    const { heading, lines } = await verified(at);
    assert.equal(heading, words.en.all_right, `${name}: ${lines.join("\n")}`);
  }
  for (const [name, expected] of [["right.json", words.en.all_right], ["wrong.json", words.en.all_wrong]]) {
    for (const { about, record, receipt } of vector(name)) {
      await at.setInputFiles("#record-file", record ? [file("record.json", record)] : []);
      await at.setInputFiles("#receipt-file", receipt ? [file("receipt.json", receipt)] : []);
      const { heading, lines } = await verified(at);
      assert.equal(heading, expected, `${about}: ${lines.join("\n")}`);
      assert.ok(!lines.some((line) => /undefined|NaN|[\u2028\u202e]/.test(line)), `${about}: ${lines.join("\n")}`);
      const faults = lines.filter((line) => line.startsWith(words.en.fault_mark));
      assert.equal(faults.length, name === "wrong.json" ? 1 : 0, `${about}: ${faults}`);
      if (/U\+202E/.test(about)) assert.ok(lines.some((line) => line.includes("dice\\u{2028}ok: \\u{202e}x")), lines.join("\n"));
    }
  }
});

test("each spelling of JSON is read or refused as published", async (t) => {
  const at = await opened(t);
  const invalid = { about: "a byte that is not UTF-8", right: false, record: Buffer.from([0x22, 0xff, 0x22]), receipt: null };
  for (const { about, right, record, receipt } of [...vector("texts.json"), invalid]) {
    await at.setInputFiles("#record-file", record ? [text_file("record.json", record)] : []);
    await at.setInputFiles("#receipt-file", receipt ? [text_file("receipt.json", receipt)] : []);
    const { heading, lines } = await verified(at);
    assert.equal(heading, right ? words.en.all_right : words.en.all_wrong, `${about}: ${lines.join("\n")}`);
  }
});

test("files and notes are read up to their limits", async (t) => {
  const at = await opened(t);
  const { record, receipts: [receipt] } = vector("drand.json");
  const check = async (expected, record_text, receipt_text) => {
    await at.setInputFiles("#record-file", [text_file("record.json", record_text)]);
    await at.setInputFiles("#receipt-file", receipt_text ? [text_file("receipt.json", receipt_text)] : []);
    assert.equal((await verified(at)).heading, words.en[expected], `${record_text.length} ${receipt_text?.length}`);
  };
  const json = JSON.stringify(record), json_receipt = JSON.stringify(receipt);
  const padded = (text, size) => text + " ".repeat(size - Buffer.byteLength(text));
  await check("all_right", padded(json, 4_000_000));
  await check("all_wrong", padded(json, 4_000_001));
  await check("all_right", json, padded(json_receipt, 200_000));
  await check("all_wrong", json, padded(json_receipt, 200_001));
  const noted = (size) => {
    // The dash has three bytes.
    const rest = size - Buffer.byteLength(`${record.checkpoint}\u2014  AAAAAAA=\n`);
    return JSON.stringify({ ...record, checkpoint: `${record.checkpoint}\u2014 ${"w".repeat(rest)} AAAAAAA=\n` });
  };
  await check("all_right", noted(50_000));
  await check("all_wrong", noted(50_001));
});

test("a receipt without its record is verified alone, and its position is said not to be computed", async (t) => {
  const at = await opened(t);
  const { receipts } = vector("five.json");
  await at.fill("#receipt-text", JSON.stringify(receipts[3]));
  const { heading, lines } = await verified(at);
  assert.equal(heading, words.en.all_right);
  assert.ok(lines.some((line) => line.includes("NOT computed again")), lines.join("\n"));
});

test("a repeated field and a key that is none are refused", async (t) => {
  const at = await opened(t);
  const json = JSON.stringify(vector("lottery.json").record);
  for (const [text, key, expected] of [
    [json.replace("{", '{"key" : "x\\\\\\"",'), "", words.en.field({ what: "record", field: "key" })],
    [json.replace('{"kind"', '{"kind":"stated","\\u006bind"'), "", words.en.field({ what: "record", field: "kind" })],
    [`\ufeff${json}`, "", null],
    [json, "shop.example/weir+c77d8173", words.en.given_key()],
  ]) {
    await at.fill("#record-text", text);
    await at.fill("#key", key);
    const { heading, lines } = await verified(at);
    assert.equal(heading, words.en.all_wrong, text);
    assert.ok(expected === null || lines.some((line) => line.endsWith(expected)), lines.join("\n"));
  }
});

test("the verifier works by keyboard and says what is missing", async (t) => {
  const at = await opened(t);
  await at.focus("#verify");
  await at.keyboard.press("Enter");
  await until("it says what is missing", async () => (await at.textContent("#progress")) === words.en.nothing);
  await at.focus("#record-text");
  await at.keyboard.insertText("{");
  await at.focus("#verify");
  await at.keyboard.press("Enter");
  await until("the focus is on the verdict", () => at.evaluate(() => document.activeElement.id === "verdict"));
  assert.equal(await at.textContent("#verdict"), words.en.all_wrong);
  assert.deepEqual(await axe(at), []);
});

test("the verifier has the same words in both languages", () => {
  assert.deepEqual(Object.keys(words.ko), Object.keys(words.en));
  for (const [name, text] of Object.entries(words.en)) assert.equal(typeof words.ko[name], typeof text, name);
});

test("a draw of 600,000 places is verified in the browser", async (t) => {
  const count = 600_000, bits = Buffer.alloc(count / 8, 0b11011111);
  const seed = Buffer.alloc(32, 7);
  const secret = createPrivateKey({ key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]), format: "der", type: "pkcs8" });
  const raw = createPublicKey(secret).export({ format: "der", type: "spki" }).subarray(-32);
  const name = "shop.example/weir", typed = Buffer.concat([Buffer.from([1]), raw]);
  const id = createHash("sha256").update(`${name}\n`).update(typed).digest().subarray(0, 4);
  const signed = (text) => `${text}\n\u2014 ${name} ${Buffer.concat([id, sign(null, Buffer.from(text), secret)]).toString("base64")}\n`;
  const text = [
    `${name}/E/Z`, count, Buffer.from(await root(bits, count, async () => {})).toString("base64"), "event E", "zone Z",
    "frozen 2026-11-27T10:59:50Z", "start 2026-11-27T11:00:00Z", "algorithm weir-draw-1", `in-line ${(count / 8) * 7}`,
    "randomness stated dice", "fallback wait", "",
  ].join("\n");
  const about = createHash("sha256").update(text).digest("base64");
  const record = {
    format: "weir-draw-record-1",
    key: `${name}+${id.toString("hex")}+${typed.toString("base64")}`,
    checkpoint: signed(text),
    places: bits.toString("base64"),
    randomness: { kind: "stated", statement: signed(`${name}/E/Z\ncheckpoint ${about}\nvalue 6\n`) },
  };
  const at = await opened(t);
  await at.setInputFiles("#record-file", file("record.json", record));
  const start = performance.now();
  const { heading, lines } = await verified(at, 60_000);
  t.diagnostic(`it took ${Math.round(performance.now() - start)} ms`);
  assert.equal(heading, words.en.all_right, lines.join("\n"));
  assert.ok(lines.some((line) => line.includes("The order of all 525,000 was computed again")), lines.join("\n"));
});
