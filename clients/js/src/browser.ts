// The platform of a browser. Each part may be absent, and each may throw: where cookies are blocked, or in a sandboxed frame.

import { randomKey } from "./key.js";
import type { Platform, Storage } from "./platform.js";
import { tabsOf, type TabsParts } from "./tabs.js";

/** What `get` gives, or null where the browser refuses it. */
function orNull<T>(get: () => T | undefined): T | null {
  try {
    return get() ?? null;
  } catch {
    return null;
  }
}

/** This page's machine. */
export function browser(): Platform {
  const local = orNull(() => globalThis.localStorage);
  const storage: Storage | null = local && {
    get: (key) => local.getItem(key),
    set: (key, value) => local.setItem(key, value),
    remove: (key) => local.removeItem(key),
  };
  const deviceMs = () => Date.now();
  const timer = (ms: number, run: () => void) => {
    const id = setTimeout(run, ms);
    return () => clearTimeout(id);
  };
  const tabs = tabsOf({
    locks: orNull(() => navigator.locks) as TabsParts["locks"],
    channel: orNull(() => globalThis.BroadcastChannel) && ((name) => new BroadcastChannel(name)),
    storageEvents(hear) {
      const onStorage = (event: StorageEvent) => hear(event.key);
      addEventListener("storage", onStorage);
      return () => removeEventListener("storage", onStorage);
    },
    storage: local,
    deviceMs,
    random: Math.random,
    timer,
  });
  return {
    fetch: (address, request) => fetch(address, request),
    steadyMs: () => performance.now(),
    deviceMs,
    random: Math.random,
    key: randomKey,
    timer,
    storage,
    tabs,
    streams: true,
    signals(hear) {
      const life = new AbortController();
      const { signal } = life;
      const shown = () => document.visibilityState === "visible" && hear("shown");
      document.addEventListener("visibilitychange", shown, { signal });
      document.addEventListener("resume", shown, { signal });
      addEventListener("pageshow", (event) => (event.persisted ? hear("restored") : shown()), { signal });
      addEventListener("online", () => hear("online"), { signal });
      addEventListener("offline", () => hear("offline"), { signal });
      return () => life.abort();
    },
    // A beacon follows redirects. So it is only for browsers that cut off each `fetch` of a page that closes.
    ...(!("keepalive" in Request.prototype) && { beacon: (address: string, text: string) => void navigator.sendBeacon(address, text) }),
    warn(server) {
      if (!navigator.onLine || new URL(server).origin === globalThis.origin) return;
      const cure =
        globalThis.origin === "null"
          ? "this page has no origin, because it is in a sandbox without allow-same-origin"
          : `add "${globalThis.origin}" to cors_origins`;
      console.warn(
        `Weir: no reply of ${server} can be read. If the network tab shows 403 foreign_origin: ${cure}. ` +
          "If it shows no status, the server is not reachable.",
      );
    },
  };
}
