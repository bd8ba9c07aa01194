// A place in a line of Weir, for browsers, React Native and Node. docs/app/clients.md describes what each client of Weir does.

import { browser } from "./browser.js";
import { node } from "./node.js";
import { Place } from "./place.js";
import type { Platform } from "./platform.js";

export { browser } from "./browser.js";
export { native, type AppState, type AsyncStorage } from "./native.js";
export { node } from "./node.js";
export { NoEntry, type Eta, type Place, type State } from "./place.js";
export type { Platform, Storage } from "./platform.js";
export type { Action, Trouble } from "./problem.js";
export type { Reason } from "./reply.js";

/** Which place. */
export interface Options {
  /** The address of Weir, such as `https://weir.example`. */
  server: string;
  /** The zone's id. */
  zone: string;
  /** The machine. By default that of this browser, or of this process where there is no `document`. React Native passes `native(…)`. */
  platform?: Platform;
}

/**
 * Resumes this person's place in the zone, or takes one.
 * Throws a `TypeError` if `zone` is empty or `server` is not an address of http or https.
 */
export function wait({ server, zone, platform }: Options): Place {
  if (typeof zone !== "string" || zone === "") throw new TypeError("wait: zone must be a zone's id");
  const address = addressOf(server);
  return new Place(platform ?? (typeof document === "undefined" ? node() : browser()), address, zone);
}

function addressOf(server: string): string {
  let url: URL | null = null;
  try {
    url = new URL(server.endsWith("/") ? server : `${server}/`, globalThis.location?.href);
  } catch {
    // Reported below.
  }
  if (url && /^https?:$/.test(url.protocol)) return url.href;
  throw new TypeError(`wait: server must be an address such as https://weir.example, not "${server}"`);
}
