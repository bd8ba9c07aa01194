// The console's client of the admin API.
//
// Invariant: the token travels only in a header. Every call ends within TIMEOUT_MS.

import { tokenOf } from "./kept.js";

const ROOT = "/admin/v1";
const TIMEOUT_MS = 10_000;

/** A call that failed. `status` is 0 if there was no reply. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? "");
    this.status = status;
    /** The stable code of the problem document, or `unreachable` if there was no reply. */
    this.code = problem.code ?? "";
    this.problem = problem;
  }
}

const fields = (more) => {
  const token = tokenOf();
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
};

async function fault(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy may answer with something other than JSON.
  }
  return new Refused(response.status, typeof problem === "object" && problem ? problem : {});
}

/**
 * Calls `method path` and returns the content of the reply.
 *
 * @throws {Refused}
 */
export async function call(method, path, { body, ifMatch, token } = {}) {
  const headers = fields({ Accept: "application/json" });
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (ifMatch) headers["If-Match"] = `"${ifMatch.replace(/^"|"$/g, "")}"`;
  const init = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" };
  let response;
  try {
    response = await fetch(ROOT + path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) return await response.json();
  } catch (error) {
    throw new Refused(0, { code: "unreachable", detail: String(error.message ?? error) });
  }
  throw await fault(response);
}

/**
 * Opens the stream of events.
 *
 * @throws {Refused}
 */
export async function openEvents(kinds, signal) {
  const path = `${ROOT}/events?kinds=${encodeURIComponent(kinds.join(","))}`;
  let response;
  try {
    response = await fetch(path, { headers: fields({ Accept: "text/event-stream" }), cache: "no-store", signal });
  } catch (error) {
    throw new Refused(0, { code: "unreachable", detail: String(error.message ?? error) });
  }
  if (!response.ok) throw await fault(response);
  return response;
}

/** Reads a text outside the API: `/metrics` or `/readyz`. Returns status and text. */
export async function text(path) {
  try {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    return { status: response.status, text: await response.text() };
  } catch {
    return { status: 0, text: "" };
  }
}

export const zonePath = (id) => `/zones/${encodeURIComponent(id)}`;
