// weir.js: a place for web pages without a build, as the global `Weir`. docs/app/waiting-page.md describes its interface.
// scripts/build-weir-js bundles it into crates/server/src/http/waiting_page/weir.js.

import { browser } from "./browser.js";
import { begin, type Place, type State } from "./place.js";

/** This script, which is known only while it is first run. A module is not told, so it looks for itself in the page. */
const own = (document.currentScript ?? document.querySelector('script[src*="/weir.js"]')) as HTMLScriptElement | null;

/** The address of Weir is that of this script. */
const HOME = new URL(".", own?.src || location.href).href;

/** A place that tells its states as events. */
class PlaceOfPage extends EventTarget {
  readonly #place: Place;

  constructor({ zone, server = HOME }: { zone: string; server?: string }) {
    super();
    this.#place = begin(server, zone, browser);
    this.#place.subscribe((state) => this.#tell(state));
  }

  anew(): void {
    this.#place.anew();
  }

  leave(): void {
    this.#place.leave();
  }

  receipt(event: string): Promise<string> {
    return this.#place.receipt(event);
  }

  stop(): void {
    this.#place.stop();
  }

  #tell(state: State): void {
    const dispatch = (name: string, detail: object) => this.dispatchEvent(new CustomEvent(name, { detail }));
    if (state.kind === "entered") return void dispatch("entered", { pass: state.pass, again: state.again });
    if (state.trouble) {
      const { action, retryMs, ...said } = state.trouble;
      const final = action !== "retry";
      dispatch("problem", { ...said, final, retry: final ? null : Math.ceil(retryMs / 1_000) });
    } else if (state.kind === "waiting") {
      const { rank, progress, eta, reason, stale, opensInMs, stock, beyondStock } = state;
      dispatch("waiting", { rank, progress, eta, reason, stale, opens_in_ms: opensInMs, stock, beyond_stock: beyondStock });
    }
  }
}

Object.assign(globalThis, { Weir: Object.freeze({ wait: (options: { zone: string; server?: string }) => new PlaceOfPage(options) }) });
