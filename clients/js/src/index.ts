// A place in a line of Weir, for browsers, React Native and Node. docs/app/clients.md describes what each client of Weir does.

import { browser } from "./browser.js";
import { node } from "./node.js";
import { begin, type Place } from "./place.js";
import type { Platform } from "./platform.js";

export { browser } from "./browser.js";
export { native, type AppState, type AsyncStorage } from "./native.js";
export { node } from "./node.js";
export { NoEntry, type Eta, type Place, type State } from "./place.js";
export type { Platform, Storage } from "./platform.js";
export { Problem, type Action, type Trouble } from "./problem.js";
export type { Reason, Stock } from "./reply.js";

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
 * Throws a `TypeError` if `zone` is empty or `server` is not a plain address of http or https.
 */
export function wait({ server, zone, platform }: Options): Place {
  return begin(server, zone, () => platform ?? (typeof document === "undefined" ? node() : browser()));
}
