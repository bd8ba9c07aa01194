// What went wrong, and what a client does about it: the table of docs/app/errors.md.
//
// Invariant: only a reply of Weir with a status of 4xx ends a place. Whatever a network or a proxy does, the client tries again.

import { LONGEST_AWAY_MS, retryAfterMs } from "./pace.js";
import type { Reply } from "./platform.js";
import { jsonOf } from "./reply.js";

/**
 * What a client does.
 * - `retry`: the client asks again by itself.
 * - `new place`: the place is lost. The user decides whether to take a new one, at the end of the line.
 * - `give up`: another try fails, too. An app, an address or a setting must change.
 */
export type Action = "retry" | "new place" | "give up";

/** A failure, in the words of Weir. */
export interface Trouble {
  /** A code of Weir's errors; `offline`: no reply; `away`: a reply that is not from Weir. */
  readonly code: string;
  /** One line for people, in English. */
  readonly title: string;
  /** What exactly is wrong, in English, or an empty text. */
  readonly detail: string;
  readonly action: Action;
  /** When the client asks again, in milliseconds from now; 0 unless `action` is `retry`. */
  readonly retryMs: number;
  /** The address of a page to which people can go on meanwhile, because the zone is closed around an event that names it; empty without one. */
  readonly page: string;
}

/** A call that did not succeed. */
export class Problem extends Error {
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly action: Action;
  /** What `Retry-After` said, in milliseconds; 0 without it. */
  readonly retryAfterMs: number;
  /** Where people can go on meanwhile; empty if nowhere. */
  readonly page: string;

  constructor(code: string, { status = 0, title = code, detail = "", retryAfterMs = 0, page = "" } = {}) {
    super(detail || title);
    this.name = "Problem";
    [this.code, this.title, this.detail, this.retryAfterMs, this.page] = [code, title, detail, retryAfterMs, page];
    this.action = actionOf(code, status);
  }
}

/** The address of a page as operators may write it: a web page without a user, or a path of Weir's host. */
const PAGE = /^(?=[!#-;=?-[\]-~]{1,1000}$)(?:https?:\/\/[^/?#@]+(?:[/?#]|$)|\/(?!\/))/;

function actionOf(code: string, status: number): Action {
  if (status < 400 || status >= 500 || status === 408 || status === 429) return "retry";
  return code === "gone" || code === "bad_token" ? "new place" : "give up";
}

/**
 * The problem of a problem document. One without the type of its code is not from Weir: a proxy in between has a problem, and may have codes
 * of its own.
 */
export function problemOf(document: unknown, status: number, retryMs = 0): Problem {
  const { type, code, title, detail, page } = (typeof document === "object" && document !== null ? document : {}) as Record<string, unknown>;
  if (typeof code !== "string" || !/^[a-z0-9_]{1,64}$/.test(code) || type !== `urn:weir:problem:${code}`) {
    return new Problem("away", { retryAfterMs: Math.min(retryMs, LONGEST_AWAY_MS) });
  }
  const text = (value: unknown) => (typeof value === "string" ? value.slice(0, 1_000) : "");
  const isPage = typeof page === "string" && PAGE.test(page);
  return new Problem(code, { status, title: text(title) || code, detail: text(detail), retryAfterMs: retryMs, page: isPage ? page : "" });
}

/** The problem of a reply that is not 2xx. */
export async function problemOfReply(reply: Reply): Promise<Problem> {
  return problemOf(await jsonOf(reply).catch(() => null), reply.status, retryAfterMs(reply.headers));
}
