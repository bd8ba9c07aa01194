// The platform of Node 20 and newer, and of anything else with `fetch` and timers. It has no tabs and hears no signals, and polls.

import { randomKey } from "./key.js";
import type { Platform, Storage } from "./platform.js";

/** This process. Without `storage`, a place lasts as long as the process. */
export function node(storage: Storage | null = null): Platform {
  return {
    fetch: (address, request) => fetch(address, request),
    steadyMs: () => performance.now(),
    deviceMs: () => Date.now(),
    random: Math.random,
    key: randomKey,
    timer(ms, run) {
      const id = setTimeout(run, ms);
      return () => clearTimeout(id);
    },
    storage,
    tabs: null,
    streams: false,
    signals: () => () => {},
  };
}
