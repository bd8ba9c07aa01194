// A case of cases.json as a server plays it: it judges each call, and says what to reply. It knows no clock and no network.
//
// Invariant: a fault is kept when it happens, and a case passes only without faults and after its last step.

/// The fields of a reply that a case leaves out.
const WAITING = { etaSeconds: 30, etaRange: [20, 40], stale: false };

/// Whether `found` has everything that `wanted` has. Objects may have more.
export function fits(wanted, found) {
  if (typeof wanted !== "object" || wanted === null || Array.isArray(wanted)) return JSON.stringify(wanted) === JSON.stringify(found);
  return typeof found === "object" && found !== null && Object.entries(wanted).every(([name, value]) => fits(value, found[name]));
}

export class Script {
  faults = [];
  /// Called after each reply.
  ended = () => {};
  #steps;
  #repliedAtMs = null;
  /// The key of the place that the client is taking, and the keys of places that it had or gave up.
  #key = null;
  #usedKeys = new Set();
  /// The key of the last place that the client had or gave up.
  #lastKey = null;

  constructor({ steps }) {
    this.#steps = [...steps];
  }

  /// Whether all steps were made.
  get isOver() {
    return this.#steps.length === 0;
  }

  /// Takes the next step if it is not a call: what the user, the page or the clock does.
  action() {
    const [step] = this.#steps;
    if (!step || step.call) return null;
    if (step.user) this.#endKey();
    return this.#steps.shift();
  }

  /// Judges a call at a time. Returns its step: with the reply, and perhaps with what the user does before the reply.
  /// `isExact`: nothing delays the client, so it must not be late either.
  call({ call, body, atMs, isExact }) {
    const step = this.#steps.shift();
    if (!step?.call) {
      this.faults.push(`an unexpected call of ${call} with ${JSON.stringify(body)}; the next step is ${JSON.stringify(step)}`);
      return { reply: { problem: { status: 404, code: "unexpected" } } };
    }
    if (step.call !== call) this.faults.push(`called ${call} instead of ${step.call}`);
    if (body?.zoneId !== "Z") this.faults.push(`${call} is not for the zone Z: ${JSON.stringify(body)}`);
    const wanted = step.call === "wait" ? undefined : step.token;
    const isRight = body?.token === wanted || (step.call !== "wait" && !step.token);
    if (!isRight) this.faults.push(`${call} came with the token ${body?.token}, not ${wanted}`);
    if (call === "wait" && !step.late) this.#judgeKey(body?.idempotencyKey);
    // It looks for a place that nobody waits for any more.
    if (step.late && body?.idempotencyKey !== this.#lastKey) this.faults.push(`wait came with another key than ${this.#lastKey}`);
    // Who asks for a place has taken it, and whoever leaves takes it no more. A place that is gone has another key than the next one.
    if (call !== "wait" || step.user || step.reply?.problem?.code === "gone") this.#endKey();
    const [least, most] = step.after_ms ?? [0, Infinity];
    const after = this.#repliedAtMs === null ? 0 : atMs - this.#repliedAtMs;
    // Clocks of two processes, and timers, are a few milliseconds apart.
    if (after < least - (isExact ? 0.001 : 15)) this.faults.push(`${call} came ${after} ms after the last reply, before ${least}`);
    if (isExact && after > most + 0.001) this.faults.push(`${call} came ${after} ms after the last reply, after ${most}`);
    return step;
  }

  /// A `wait` is repeated with its key until its place is known, and no key is used for two places.
  #judgeKey(key) {
    if (!/^[A-Za-z0-9_-]{22,64}$/.test(key ?? "")) this.faults.push(`wait came with the key ${key}`);
    if (this.#usedKeys.has(key)) this.faults.push(`wait came with the key ${key} of an earlier place`);
    if (this.#key !== null && key !== this.#key) this.faults.push(`wait was repeated with the key ${key}, not ${this.#key}`);
    this.#key = key ?? null;
  }

  #endKey() {
    if (this.#key !== null) this.#usedKeys.add((this.#lastKey = this.#key));
    this.#key = null;
  }

  /// The reply to the last call was sent at this time.
  replied(atMs) {
    this.#repliedAtMs = atMs;
    this.ended();
  }

  /// Compares what the client said with the case. Returns all faults of the case.
  judge(states, wanted) {
    if (!this.isOver) this.faults.push(`the client did not come to: ${JSON.stringify(this.#steps[0])}`);
    const isSame = states.length === wanted.length && wanted.every((state, i) => fits(state, states[i]));
    const lines = (all) => all.map((state) => `\n  ${JSON.stringify(state)}`).join("");
    if (!isSame) this.faults.push(`the client said${lines(states)}\ninstead of${lines(wanted)}`);
    return this.faults;
  }
}

/// The HTTP reply of a step: `status`, `headers`, `body`; or the word for a reply that never comes whole.
export function httpOf(reply) {
  if (typeof reply === "string") return reply;
  const { waiting, entered, problem, raw, headers = {} } = reply;
  const json = (status, type, value) => ({ status, headers: { "content-type": type, ...headers }, body: JSON.stringify(value) });
  if (waiting) {
    const { token, ...fields } = waiting;
    return json(200, "application/json", { canEnter: false, token, waiting: { ...WAITING, ...fields } });
  }
  if (entered) return json(200, "application/json", { canEnter: true, ...entered });
  if (problem) return json(problem.status, "application/problem+json", { type: `urn:weir:problem:${problem.code}`, title: problem.code, ...problem });
  return { status: raw.status, headers: { "content-type": raw.type, ...headers }, body: raw.body };
}
