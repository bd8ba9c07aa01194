// Why a pass is not accepted, and what HTTP says about it.
//
// Invariant: a refusal says nothing about keys, clocks or stores beyond its code. The caller can log the cause.

/**
 * Why.
 * - `no_pass`: the request has none.
 * - `unreadable`: it is not a pass of Weir.
 * - `unknown_key`: Weir does not publish its key.
 * - `forged`: the signature does not match.
 * - `not_yet_valid`, `expired`: by this machine's clock.
 * - `other_service`: it is for another audience or zone.
 * - `spent`: it was accepted before.
 * - `keys_away`: whether Weir publishes its key is not known, and cannot be asked now.
 * - `record_away`: the record of spent passes does not answer, or is full.
 */
export type Code =
  | "no_pass"
  | "unreadable"
  | "unknown_key"
  | "forged"
  | "not_yet_valid"
  | "expired"
  | "other_service"
  | "spent"
  | "keys_away"
  | "record_away";

const TITLES: Record<Code, string> = {
  no_pass: "A pass is needed",
  unreadable: "This is not a pass",
  unknown_key: "The pass is signed by an unknown key",
  forged: "The pass is forged",
  not_yet_valid: "The pass is not valid yet",
  expired: "The pass has expired",
  other_service: "The pass is for another service",
  spent: "The pass was used already",
  keys_away: "Passes cannot be checked now",
  record_away: "Passes cannot be accepted now",
};

/** A pass is not accepted. */
export class Refusal extends Error {
  readonly code: Code;
  /** 401; or 503, if the fault is not the pass. */
  readonly status: 401 | 503;
  /** After how many seconds the pass may be shown again, if the status is 503. */
  readonly retryAfterS: number;

  constructor(code: Code, cause?: unknown, retryAfterS = 10) {
    super(TITLES[code], { cause });
    this.name = "Refusal";
    this.code = code;
    this.status = code === "keys_away" || code === "record_away" ? 503 : 401;
    this.retryAfterS = Math.max(1, Math.ceil(retryAfterS));
  }

  /** The headers of the reply. */
  get headers(): Record<string, string> {
    const common = { "content-type": "application/problem+json", "cache-control": "no-store" };
    if (this.status === 503) return { ...common, "retry-after": String(this.retryAfterS) };
    // A request without a pass is told no error, as RFC 6750 says.
    const error = this.code === "no_pass" ? "" : `, error="invalid_token", error_description="${this.message}"`;
    return { ...common, "www-authenticate": `Bearer realm="weir"${error}` };
  }

  /** The body of the reply: a problem document of RFC 9457. */
  get body(): string {
    return JSON.stringify({ type: "about:blank", title: this.message, status: this.status, code: this.code });
  }
}
