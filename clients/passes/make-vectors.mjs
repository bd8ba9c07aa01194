// Writes vectors.json: passes, published keys, and what a verifier must say about them. It makes new keys at each run, so every pass in
// the file changes. The passes of the case "of a running Weir" come from WEIR_BIN.
//
//   WEIR_BIN=target/debug/weir node clients/passes/make-vectors.mjs

import { createHash, createHmac, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { Weir, zone } from "../../tests/browser/weir.mjs";

const NOW = 1_900_000_000;
const [AUDIENCE, ZONE] = ["weir", "TEST_ZONE"];
const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

function key(kid, alg, modulusLength = 2_048) {
  const pair = {
    ES256: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
    EdDSA: () => generateKeyPairSync("ed25519"),
    RS256: () => generateKeyPairSync("rsa", { modulusLength }),
  }[alg]();
  return { kid, alg, secret: pair.privateKey, public: { ...pair.publicKey.export({ format: "jwk" }), kid, alg, use: "sig" } };
}

const signed = (text, { alg, secret }) => {
  const by = alg === "ES256" ? { key: secret, dsaEncoding: "ieee-p1363" } : secret;
  return sign(alg === "EdDSA" ? null : "sha256", Buffer.from(text), by).toString("base64url");
};

let serial = 0;
function claimsOf(more = {}) {
  serial += 1;
  return { aud: AUDIENCE, zone: ZONE, jti: `TEST_ZONE/0000002a/${serial}`, iat: NOW, nbf: NOW, exp: NOW + 300, ...more };
}
function pass(by, claims = {}, head = {}) {
  const body = typeof claims === "string" ? claims : claimsOf(claims);
  return passOf(by, encode({ alg: by.alg, typ: "JWT", kid: by.kid, ...head }), encode(body));
}
function passOf(by, head, body) {
  const text = `${head}.${body}`;
  return `${text}.${signed(text, by)}`;
}

const [a, b, c, stranger] = ["a", "b", "c", "a"].map((kid) => key(kid, "ES256"));
const [ed, rsa] = [key("ed", "EdDSA"), key("rsa", "RS256")];
// Lengths that fill no whole number of bytes.
const uneven = [2_049, 2_052, 2_055].map((bits) => key(`rsa${bits}`, "RS256", bits));
const set = (...keys) => ({ keys: keys.map((one) => one.public) });
const { alg: _, ...without_alg } = c.public;

// With the exponent 1, a signature is no more than its padded text.
const exponents = { exponent_0: [0], exponent_1: [1], exponent_2: [2], exponent_4: [4], exponent_2_32_1: [1, 0, 0, 0, 1] };
const sets = {
  all: set(a, ed, rsa, ...uneven),
  a: set(a),
  a_and_b: set(a, b),
  b: set(b),
  none: { keys: [] },
  // Keys that a verifier must not use, and one that it may: one bad key does not take the others away.
  odd: {
    keys: [
      { kty: "oct", kid: "secret", k: encode("secret"), alg: "HS256" },
      without_alg,
      { ...key("enc", "ES256").public, use: "enc" },
      { ...key("mixed", "RS256").public, alg: "ES256" },
      { ...c.public, kid: "mixed_too", alg: "EdDSA" },
      key("short", "RS256", 1_024).public,
      key("a_bit_short", "RS256", 2_047).public,
      // Nothing is ever signed with this number of 8,193 bits.
      { ...rsa.public, kid: "too_long", n: Buffer.concat([Buffer.of(1), randomBytes(1_023), Buffer.of(1)]).toString("base64url") },
      ...Object.entries(exponents).map(([kid, e]) => ({ ...rsa.public, kid, e: Buffer.from(e).toString("base64url") })),
      { kty: "EC", crv: "P-256", kid: "no_point", alg: "ES256", x: encode("x".repeat(32)), y: encode("y".repeat(32)) },
      { kid: 5 },
      "no key",
      null,
      a.public,
    ],
  },
  crowd: { keys: [...Array.from({ length: 32 }, (_, i) => ({ ...a.public, kid: `a${i}` })), a.public] },
};

const good = pass(a);
const [head, body, mark] = good.split(".");
const hs256 = (secret) => {
  const text = `${encode({ alg: "HS256", typ: "JWT", kid: "a" })}.${encode(claimsOf())}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
};
const der = () => {
  const text = `${head}.${body}`;
  return `${text}.${sign("sha256", Buffer.from(text), a.secret).toString("base64url")}`;
};

// A text whose last letter has bits that belong to no byte, with all of them set.
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const loose = (text) => text.slice(0, -1) + ALPHABET[ALPHABET.indexOf(text.at(-1)) | (text.length % 4 === 2 ? 15 : 3)];
// The padded text that RSA signs, which is the signature with the exponent 1.
const padded = (kid) => {
  const text = `${encode({ alg: "RS256", typ: "JWT", kid })}.${encode(claimsOf())}`;
  const digest = createHash("sha256").update(text).digest();
  const tail = Buffer.concat([Buffer.from("003031300d060960864801650304020105000420", "hex"), digest]);
  return `${text}.${Buffer.concat([Buffer.of(0, 1), Buffer.alloc(254 - tail.length, 255), tail]).toString("base64url")}`;
};
// A body with this text for a number of the claims, as a text has no such number.
const written = (name, number) => JSON.stringify(claimsOf({ [name]: "?" })).replace('"?"', number);

const cases = [];
const say = (name, expect, text, { jwks = "all", now = NOW + 1, claims } = {}) =>
  cases.push({ name, jwks, now, pass: text, expect, ...(claims && { claims }) });

say("a good pass", "ok", good, { claims: { zone: ZONE, jti: "TEST_ZONE/0000002a/1", exp: NOW + 300 } });
say("a good pass of EdDSA", "ok", pass(ed));
say("a good pass of RS256", "ok", pass(rsa));
say("several audiences, and claims that nobody knows", "ok", pass(a, { aud: ["shop", AUDIENCE], more: { deep: [null] } }));
say("a little early, as clocks differ", "ok", pass(a), { now: NOW - 5 });
say("a little late, as clocks differ", "ok", pass(a), { now: NOW + 304 });
say("too early", "not_yet_valid", pass(a), { now: NOW - 6 });
say("too late", "expired", pass(a), { now: NOW + 306 });
say("another audience", "other_service", pass(a, { aud: "other" }));
say("an audience that begins in the same way", "other_service", pass(a, { aud: "weir2" }));
say("audiences without ours", "other_service", pass(a, { aud: ["shop"] }));
say("another zone", "other_service", pass(a, { zone: "OTHER" }));
say("another key with the same name", "forged", pass(stranger));
say("other claims under the signature", "forged", `${head}.${encode(claimsOf({ exp: NOW + 9_999 }))}.${mark}`);
say("another head over the signature", "forged", `${encode({ alg: "ES256", typ: "JWT", kid: "a", x: 1 })}.${body}.${mark}`);
say("half a signature", "forged", `${head}.${body}.${mark.slice(0, 40)}`);
say("no signature", "forged", `${head}.${body}.`);
say("a signature of zeros", "forged", `${head}.${body}.${Buffer.alloc(64).toString("base64url")}`);
say("a signature with a zero between its halves", "forged", (() => {
  const bytes = Buffer.from(mark, "base64url");
  return `${head}.${body}.${Buffer.concat([bytes.subarray(0, 32), Buffer.of(0), bytes.subarray(32)]).toString("base64url")}`;
})());
say("a signature in another encoding", "forged", der());
say("without an algorithm", "forged", `${encode({ alg: "none", typ: "JWT", kid: "a" })}.${encode(claimsOf())}.`);
say("signed with the public key as a secret", "forged", hs256(JSON.stringify(a.public)));
say("signed with the public key's text as a secret", "forged", hs256(a.public.x));
say("another algorithm than the key's", "forged", pass(a, {}, { alg: "RS256" }));
say("a key that is not published", "unknown_key", pass(b));
say("a shared secret as a key", "unknown_key", hs256("secret").replace(/^[^.]*/, encode({ alg: "HS256", kid: "secret" })), { jwks: "odd" });
say("a key without an algorithm", "unknown_key", pass(c), { jwks: "odd" });
say("a right key beside odd ones", "ok", pass(a), { jwks: "odd" });
say("the odd key mixed_too", "unknown_key", pass({ ...c, kid: "mixed_too" }), { jwks: "odd" });
for (const kid of ["enc", "mixed", "short", "a_bit_short", "too_long", "no_point"]) {
  say(`the odd key ${kid}`, "unknown_key", pass({ ...a, kid }), { jwks: "odd" });
}
for (const kid of Object.keys(exponents)) say(`a key of RSA with ${kid}`, "unknown_key", padded(kid), { jwks: "odd" });
for (const one of uneven) say(`a good pass of RS256 with the key ${one.kid}`, "ok", pass(one));
say("without the name of a key", "unreadable", pass(a, {}, { kid: undefined }));
say("a name of a key that is no text", "unreadable", pass(a, {}, { kid: ["a"] }));
say("a head with critical parameters", "unreadable", pass(a, {}, { crit: ["b64"], b64: false }));
say("without an end", "unreadable", pass(a, { exp: undefined }));
say("an end that is a text", "unreadable", pass(a, { exp: String(NOW + 300) }));
for (const [what, number] of [["of the year 300,000", "1e13"], ["of 400 digits", "9".repeat(400)], ["beyond all numbers", "1e400"]]) {
  say(`an end ${what}`, "unreadable", pass(a, written("exp", number)));
  say(`a beginning ${what}`, "unreadable", pass(a, written("nbf", number)));
  say(`a beginning ${what} before 1970`, "unreadable", pass(a, written("nbf", `-${number}`)));
}
say("without a beginning", "unreadable", pass(a, { nbf: undefined }));
say("without a name", "unreadable", pass(a, { jti: undefined }));
say("an empty name", "unreadable", pass(a, { jti: "" }));
say("a name that is too long", "unreadable", pass(a, { jti: "x".repeat(257) }));
say("a name with a line break", "unreadable", pass(a, { jti: "x\r\nFLUSHALL" }));
say("a zone that is no text", "other_service", pass(a, { zone: [ZONE] }));
say("claims that are no object", "unreadable", pass(a, "[]"));
say("claims that are no JSON", "unreadable", pass(a, "{"));
say("nothing", "unreadable", "");
say("no pass", "unreadable", "hello");
say("two parts", "unreadable", `${head}.${body}`);
say("four parts", "unreadable", `${good}.x`);
say("padding", "unreadable", `${head}=.${body}.${mark}`);
say("letters of the other base64", "unreadable", `${head}.${body}.${mark.slice(0, -2)}+/`);
// Base64 that means the same bytes, or that a lax decoder takes for some.
say("a line break after the signature", "unreadable", `${good}\n`);
say("a line break in the signature", "unreadable", `${head}.${body}.${mark.slice(0, 40)}\r\n${mark.slice(40)}`);
say("a signature with bits of no byte", "unreadable", `${head}.${body}.${loose(mark)}`);
say("a signature with a letter of no byte", "unreadable", `${good}AAA`);
say("claims with bits of no byte", "unreadable", (() => {
  // One of three lengths in a row has such bits.
  const texts = ["", "x", "xx"].map((more) => encode(claimsOf({ more })));
  return passOf(a, head, loose(texts.find((text) => text.length % 4 === 3)));
})());
say("a signature of EdDSA with a byte more", "forged", (() => {
  const [head, body, mark] = pass(ed).split(".");
  return `${head}.${body}.${Buffer.concat([Buffer.from(mark, "base64url"), Buffer.of(0)]).toString("base64url")}`;
})());
// Other encodings than UTF-8.
const utf16 = (value) => Buffer.from(JSON.stringify(value), "utf16le").toString("base64url");
const broken = (value) => Buffer.from(JSON.stringify(value).replace(/\}$/, ',"x":"\xff"}'), "latin1").toString("base64url");
const bom = (value) => encode(`\ufeff${JSON.stringify(value)}`);
const header = { alg: "ES256", typ: "JWT", kid: "a" };
for (const [what, write] of [["in UTF-16", utf16], ["that are not UTF-8", broken], ["with a mark of the byte order", bom]]) {
  say(`claims ${what}`, "unreadable", passOf(a, head, write(claimsOf())));
  say(`fields of the head ${what}`, "unreadable", passOf(a, write(header), encode(claimsOf())));
}
say("a head that is no JSON", "unreadable", `${encode("{")}.${body}.${mark}`);
say("a head that is a list", "unreadable", `${encode("[]")}.${body}.${mark}`);
say("a head that is nothing", "unreadable", `${encode("null")}.${body}.${mark}`);
say("a pass that is too long", "unreadable", pass(a, { more: "x".repeat(8_192) }));

const serve = (what) => ({ serve: what });
// `retry_after`: when to come again, in seconds.
const show = (at, text, expect, retry_after) => ({ at, pass: text, expect, ...(retry_after && { retry_after }) });
const fetched = (count) => ({ fetches: count });
const fresh = () => pass(a);
const scenarios = [];
const tell = (name, ...steps) => scenarios.push({ name, steps });
const again = fresh();
tell(
  "each pass once", serve({ set: "a" }), show(1, again, "ok"), show(1, again, "spent"), show(2, fresh(), "ok"),
  show(303, again, "spent"),
);
tell("a pass that is refused is not used up", serve({ set: "a" }), { at: -10, pass: good, expect: "not_yet_valid" }, show(1, good, "ok"));
tell(
  "keys are fetched once for many passes", serve({ set: "a" }), ...Array.from({ length: 5 }, (_, i) => show(i, fresh(), "ok")),
  fetched(1), show(59, fresh(), "ok"), fetched(1), show(61, fresh(), "ok"), fetched(2),
);
tell(
  "a new key is fetched when it appears", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ set: "a_and_b" }),
  show(11, pass(b), "ok"), fetched(2), show(12, fresh(), "ok"), fetched(2),
);
tell(
  "unknown keys make a fetch in ten seconds at most, and a key is unknown if a later fetch does not bring it", serve({ set: "a" }),
  show(0, fresh(), "ok"), ...Array.from({ length: 4 }, (_, i) => show(2 * i, pass(c), "keys_away", 10 - 2 * i)), fetched(1),
  show(10, pass(c), "unknown_key"), show(11, pass(c), "unknown_key"), show(12, pass(b), "keys_away", 8), fetched(2),
);
const early = pass(b);
tell(
  "a good pass of a new key is not refused before the next fetch", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ set: "a_and_b" }),
  show(3, early, "keys_away", 7), show(4, fresh(), "ok"), fetched(1), show(10, early, "ok"), fetched(2),
);
for (const [name, what] of [["is away", { status: 503 }], ["hangs", { hang: true }]]) {
  const early = pass(b);
  tell(
    `a good pass of a new key is not refused while Weir ${name}`, serve({ set: "a" }), show(0, fresh(), "ok"), serve(what),
    show(11, early, "keys_away", 10), show(15, early, "keys_away", 6), show(16, fresh(), "ok"), fetched(2), serve({ set: "a_and_b" }),
    show(21, early, "ok"), fetched(3),
  );
}
const named = (i) => pass({ ...c, kid: `c${i}` });
tell(
  "of the names of unknown keys, 32 are remembered until the next fetch", serve({ set: "a" }), show(0, fresh(), "ok"),
  ...Array.from({ length: 33 }, (_, i) => show(1, named(i), "keys_away", 9)), show(2, fresh(), "ok"), fetched(1),
  show(10, named(0), "unknown_key"), show(11, named(31), "unknown_key"), show(11, named(32), "keys_away", 9),
  show(11, fresh(), "ok"), fetched(2), show(20, named(32), "unknown_key"), fetched(3),
);
tell(
  "a withdrawn key is forgotten within a minute", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ set: "b" }),
  show(59, fresh(), "ok"), show(61, fresh(), "unknown_key"), show(62, fresh(), "unknown_key"), fetched(2),
);
tell(
  "a key that the last fetch did not bring any more is unknown", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ set: "b" }),
  show(11, pass(b), "ok"), show(12, fresh(), "unknown_key"), fetched(2), serve({ status: 503 }), show(21, fresh(), "keys_away", 10),
);
tell(
  "people enter while Weir is away, by the last known keys", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ status: 503 }),
  show(61, fresh(), "ok"), show(62, fresh(), "ok"), fetched(2), show(72, fresh(), "ok"), fetched(3), serve({ set: "b" }),
  show(90, fresh(), "unknown_key"),
);
const long = (at) => pass(a, { nbf: NOW + at, exp: NOW + at + 300 });
tell(
  "keys that are older than any pass are not used", serve({ set: "a" }), show(0, fresh(), "ok"), serve({ status: 503 }),
  show(3_599, long(3_599), "ok"), show(3_661, long(3_661), "keys_away", 10),
);
tell(
  "nobody enters before the keys are known", serve({ status: 500 }), show(0, good, "keys_away", 10), show(5, good, "keys_away", 5),
  fetched(1), serve({ set: "a" }), show(11, good, "ok"), fetched(2),
);
for (const [name, what] of [
  ["that are no JSON", { body: "<html>" }],
  ["that are a list", { body: "[]" }],
  ["with a mark of the byte order", { body: `\ufeff${JSON.stringify(set(a))}` }],
  ["with a number that is none", { body: JSON.stringify({ ...set(a), more: 0 }).replace("0}", "NaN}") }],
  ["without keys", { body: "{}" }],
  ["whose list is an object", { body: '{"keys":{}}' }],
  ["whose list is a text", { body: '{"keys":"abc"}' }],
  ["with an error", { status: 500, set: "a" }],
  ["with the status 201", { status: 201, set: "a" }],
  ["with the status 203", { status: 203, set: "a" }],
  ["with the status 206", { status: 206, set: "a" }],
  ["of 33 members", { set: "crowd" }],
  ["of 70,000 bytes", { set: "a", padding: 70_000 }],
  ["behind a redirect", { redirect: "a" }],
  ["that do not come", { hang: true }],
  ["that come a byte at a time", { trickle: true }],
  // What came is whole by itself, but it is less than was said.
  ["that break off", { set: "a", cut: true }],
]) {
  tell(`keys ${name} are not taken`, serve(what), show(0, good, "keys_away"), serve({ set: "a" }), show(11, good, "ok"));
}
tell("informational replies are not the reply", serve({ set: "a", hints: true }), show(0, good, "ok"), fetched(1));
tell("an endless text of keys is not read", serve({ endless: true }), show(0, good, "keys_away"));

// A pass and the keys of a real server, at the time at which it was given out.
const ends = [];
const weir = await Weir.start({ after: (end) => ends.push(end), passed: true }, { config: zone(ZONE, { admit_per_minute: 600 }) });
const { body: answer } = await weir.ask("/traffic/wait", { zoneId: ZONE });
sets.weir = await (await fetch(`${weir.url}/.well-known/jwks.json`)).json();
for (const end of ends) await end();
const { nbf } = JSON.parse(Buffer.from(answer.pass.split(".")[1], "base64url"));
say("of a running Weir", "ok", answer.pass, { jwks: "weir", now: nbf + 1 });
say("of a running Weir, too late", "expired", answer.pass, { jwks: "weir", now: nbf + 306 });

const vectors = { audience: AUDIENCE, zone: ZONE, epoch: NOW, sets, cases, scenarios };
writeFileSync(new URL("vectors.json", import.meta.url), `${JSON.stringify(vectors, null, 1)}\n`);
