// What the tests of the console share: tokens of its roles, a colleague who uses the admin API, and parts of its pages.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";

export const TOKENS = { viewer: "weir_of-a-viewer", operator: "weir_of-an-operator", admin: "weir_of-an-admin" };
const sha256 = (text) => createHash("sha256").update(text).digest("hex");
/// The configuration that accepts these tokens.
export const ROLES = Object.entries(TOKENS)
  .map(([role, token]) => `[[admin_token]]\nname = "a-${role}"\nrole = "${role}"\nsha256 = "${sha256(token)}"\n`)
  .join("");

/// A colleague who uses the admin API.
export async function api(weir, method, path, { body, match, token } = {}) {
  const headers = {};
  if (body) headers["content-type"] = "application/json";
  if (match) headers["if-match"] = match;
  if (token) headers.authorization = `Bearer ${token}`;
  const reply = await fetch(`${weir.admin_url}/admin/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(reply.ok, `${method} ${path}: ${reply.status} ${reply.ok ? "" : await reply.text()}`);
  return reply.json();
}

export const dialog = (page) => page.getByRole("dialog");
export const toast = (page) => page.locator(".toast");
