// Accepts passes of Weir, each once. docs/app/clients.md describes what every verifier does.

import { Keys, type Machine } from "./keys.js";
import { Refusal } from "./refusal.js";
import { memory, type Spend } from "./spent.js";
import { LEEWAY_S, verify, type Pass } from "./verify.js";
import { within } from "./within.js";

export { Refusal, type Code } from "./refusal.js";
export type { Spend } from "./spent.js";
export type { Pass } from "./verify.js";

/** How much longer than a pass is accepted its name is kept, in seconds: the clocks of those that share the record may differ. */
const KEPT_S = 60;

/** Which passes. */
export interface Options {
  /** The address of Weir, such as `https://weir.example`. */
  weir: string;
  /** The zone of the passes. */
  zone: string;
  /** Weir's `pass.audience`. By default `weir`, as in Weir. */
  audience?: string;
  /** The record of spent passes, which all processes of a service must share. By default the memory of this process. */
  spent?: Spend;
}

/** The parts of a request that are read. Express and Fastify have more. */
interface Asked {
  headers: { authorization?: string | undefined };
  /** Names and values in turn. In Fastify they are in `raw`. */
  rawHeaders?: string[];
  raw?: { rawHeaders?: string[] };
}

/** The parts of Express's reply that are used. */
interface ExpressReply {
  status(status: number): { set(headers: Record<string, string>): { send(body: string): unknown } };
}

/** The parts of Fastify's reply that are used. */
interface FastifyReply {
  code(status: number): { headers(headers: Record<string, string>): { send(body: string): unknown } };
}

export interface Passes {
  /** Accepts a pass, for example the field `pass` of a form. Rejects with a `Refusal`. The pass is not spent then, except with
   * `record_away`: it may be spent. */
  accept(text: string): Promise<Pass>;
  /** Middleware of Express: takes the pass of `Authorization: Bearer …`, and puts it into `request.pass`. */
  express(request: Asked & { pass?: Pass }, reply: ExpressReply, next: (fault?: unknown) => void): Promise<void>;
  /** A `preHandler` of Fastify, in the same way. */
  fastify(request: Asked & { pass?: Pass }, reply: FastifyReply): Promise<unknown>;
}

/** Accepts the passes of one zone. Throws a `TypeError` if `weir` is not an address of http or https, or `zone` is empty. */
export function passes(options: Options): Passes {
  return passesOn(options, { nowMs: () => Date.now(), steadyMs: () => performance.now(), fetchMs: 5_000, spendMs: 5_000 });
}

/** The same on another machine, for tests. `spendMs` is the time limit of the record. */
export function passesOn(options: Options, machine: Machine & { nowMs(): number; spendMs: number }): Passes {
  const { weir, zone, audience = "weir" } = options;
  if (!zone || !audience) throw new TypeError("passes: zone and audience must not be empty");
  if (!/^https?:\/\/[^/]/.test(weir)) throw new TypeError(`passes: weir must be an address such as https://weir.example, not "${weir}"`);
  const nowS = () => machine.nowMs() / 1_000;
  const keys = new Keys(`${weir.replace(/\/+$/, "")}/.well-known/jwks.json`, machine);
  const spend = options.spent ?? memory(nowS);

  async function accept(text: string): Promise<Pass> {
    const pass = await verify(text, keys, audience, zone, nowS());
    const ask = async () => spend(`weir:spent:${pass.jti}`, Math.ceil(pass.exp) + LEEWAY_S + KEPT_S);
    const isFirst = await within(machine.spendMs, ask(), "the record does not answer").catch((fault: unknown) => {
      throw new Refusal("record_away", fault);
    });
    if (!isFirst) throw new Refusal("spent");
    return pass;
  }

  async function acceptOf({ headers: { authorization }, raw, rawHeaders = raw?.rawHeaders ?? [] }: Asked): Promise<Pass> {
    // Node keeps the first of two. A proxy before this service may have read the other one.
    const isTwice = rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === "authorization").length > 1;
    const text = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
    if (isTwice || text === undefined) throw new Refusal("no_pass");
    return accept(text);
  }

  return {
    accept,
    async express(request, reply, next) {
      try {
        request.pass = await acceptOf(request);
      } catch (fault) {
        if (!(fault instanceof Refusal)) return next(fault);
        return void reply.status(fault.status).set(fault.headers).send(fault.body);
      }
      next();
    },
    async fastify(request, reply) {
      try {
        request.pass = await acceptOf(request);
        return undefined;
      } catch (fault) {
        if (!(fault instanceof Refusal)) throw fault;
        return reply.code(fault.status).headers(fault.headers).send(fault.body);
      }
    },
  };
}
