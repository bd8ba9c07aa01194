// The real binary, for tests of pages and of clients.
//
// Each server has its own temporary directory and free ports, and is ended by its process id. A failed test prints the server's log.

import { spawn } from "node:child_process";
import { accessSync, constants, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
export const TARGET = resolve(ROOT, process.env.CARGO_TARGET_DIR ?? "target");
const BINARY = process.env.WEIR_BIN ?? join(TARGET, "debug/weir");
/// The time limit of every wait.
export const PATIENCE_MS = 20_000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/// Calls `probe` until its result is truthy, and returns it. After the time limit the last error is reported.
export async function until(what, probe, patience_ms = PATIENCE_MS) {
  const end = Date.now() + patience_ms;
  for (let last; ; await sleep(40)) {
    try {
      const found = await probe();
      if (found) return found;
      last = found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`in ${patience_ms} ms this did not come: ${what} (last: ${last?.stack ?? last})`);
  }
}

/// The table of a zone in a configuration file.
export function zone(id, settings = {}) {
  const line = ([name, value]) => `${name} = ${JSON.stringify(value)}\n`;
  return `[[zone]]\nid = ${JSON.stringify(id)}\n${Object.entries(settings).map(line).join("")}`;
}

/// An address that stays the same when the server behind it is replaced, as that of a load balancer does.
class Door {
  #to = null;
  #open = new Set();

  static async open() {
    const door = new Door();
    door.server = net.createServer((client) => door.#through(client));
    await new Promise((done, failed) => door.server.once("error", failed).listen(0, "127.0.0.1", done));
    door.address = `127.0.0.1:${door.server.address().port}`;
    return door;
  }

  /// Forwards to `address` from now on, or to nobody if it is null. Open connections end.
  lead(address) {
    this.#to = address;
    for (const socket of this.#open) socket.destroy();
  }

  #through(client) {
    if (this.#to === null) return client.destroy();
    const [host, port] = this.#to.split(":");
    const server = net.connect(Number(port), host);
    for (const [from, to] of [[client, server], [server, client]]) {
      this.#open.add(from);
      from.setNoDelay(true).pipe(to);
      from.on("error", () => {}).on("close", () => {
        this.#open.delete(from);
        to.destroy();
      });
    }
  }

  async close() {
    this.lead(null);
    await new Promise((done) => this.server.close(done));
  }
}

/// A running server. `url` and `admin_url` stay the same after a restart.
export class Weir {
  #child = null;
  #stdout = "";
  #log = "";

  /// Starts a server for the test `t` with the text of a configuration file, and ends it with the test.
  static async start(t, { config = "", args = [], env = {} } = {}) {
    try {
      accessSync(BINARY, constants.X_OK);
    } catch {
      throw new Error(`there is no ${BINARY}: cargo build -p weir, or name one by WEIR_BIN`);
    }
    const weir = new Weir();
    weir.dir = mkdtempSync(join(tmpdir(), "weir-browser-"));
    [weir.args, weir.env] = [args, env];
    [weir.door, weir.admin_door] = [await Door.open(), await Door.open()];
    [weir.url, weir.admin_url] = [`http://${weir.door.address}`, `http://${weir.admin_door.address}`];
    t.after(async () => {
      if (t.passed === false) process.stderr.write(`--- the server's log:\n${weir.#log}---\n`);
      await weir.kill();
      await Promise.all([weir.door.close(), weir.admin_door.close()]);
      rmSync(weir.dir, { recursive: true, force: true });
    });
    weir.configure(config);
    await weir.up();
    return weir;
  }

  /// Writes another configuration file; `signal("SIGHUP")` makes the server read it.
  configure(config) {
    this.config = config;
    if (config) writeFileSync(join(this.dir, "weir.toml"), config);
  }

  /// Starts the server, also again, on the same data.
  async up() {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(WEIR_|RUST_LOG$)/.test(name)));
    Object.assign(env, { WEIR_LISTEN: "127.0.0.1:0", WEIR_ADMIN_LISTEN: "127.0.0.1:0", WEIR_DATA_DIR: join(this.dir, "data") });
    if (this.config) env.WEIR_CONFIG = join(this.dir, "weir.toml");
    this.#stdout = "";
    const options = { cwd: this.dir, env: { ...env, ...this.env }, stdio: ["ignore", "pipe", "pipe"] };
    const child = spawn(BINARY, ["serve", ...this.args], options);
    this.#child = child;
    child.stdout.on("data", (bytes) => (this.#stdout += bytes));
    child.stderr.on("data", (bytes) => (this.#log += bytes));
    this.ended = new Promise((done) => child.once("close", (code) => done(code)));
    const [public_at, admin_at] = await until("the server says where it listens", () => {
      if (child.exitCode !== null) throw new Error(`the server ended at its start: ${this.#log}`);
      const at = (before) => new RegExp(`${before} on http://(\\S+)\n`).exec(this.#stdout)?.[1];
      const both = [at("listening"), at("admin")];
      return both.every(Boolean) && both;
    });
    this.door.lead(public_at);
    this.admin_door.lead(admin_at);
  }

  signal(name) {
    this.#child.kill(name);
  }

  /// Kills the server, as a power cut would.
  async kill() {
    this.door.lead(null);
    this.admin_door.lead(null);
    this.#child?.kill("SIGKILL");
    await this.ended;
  }

  /// The log of the server.
  get log() {
    return this.#log;
  }

  /// Takes a place, or asks to enter, as an app does.
  async ask(path, body) {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${this.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: reply.status, body: reply.status === 204 ? null : await reply.json() };
  }

  /// Adds people in line ahead of the next newcomer. They poll until the test ends.
  async crowd(t, zone_id, count) {
    const join = async () => (await this.ask("/traffic/wait", { zoneId: zone_id })).body.token;
    const tokens = [];
    for (let i = 0; i < count; i += 1) tokens.push(await join());
    let over = false;
    const asking = (async () => {
      while (!over) {
        // The server may be away; ask again.
        await Promise.allSettled(tokens.map((token) => this.ask("/traffic/entry", { zoneId: zone_id, token })));
        await sleep(400);
      }
    })();
    t.after(() => {
      over = true;
      return asking;
    });
    return tokens;
  }
}
