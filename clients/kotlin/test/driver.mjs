// Clients in Kotlin, in one JVM, driven by the program src/test/kotlin/weir/client/Drive.kt.

import { spawn } from "node:child_process";
import readline from "node:readline";

const classpath = process.env.CLIENT_CLASSPATH;
if (!classpath) throw new Error("CLIENT_CLASSPATH names no classes: run clients/kotlin/run, which builds them and sets it");

/// Starts the JVM, which ends with `end`. `begin` begins a client and returns it.
export function drive() {
  const jvm = spawn("java", ["-XX:TieredStopAtLevel=1", "-cp", classpath, "weir.client.DriveKt"], { stdio: ["pipe", "pipe", "inherit"] });
  const clients = new Map();
  const order = (message) => jvm.stdin.write(`${JSON.stringify(message)}\n`);
  readline.createInterface({ input: jvm.stdout }).on("line", (line) => {
    const { id, ...said } = JSON.parse(line);
    clients.get(id).hear(said);
  });
  const ended = new Promise((done) => jvm.once("exit", done));

  /// `http` is `jvm` or `android`; `kept` is what the storage has. `hear` is called with each state.
  function begin({ server, zone, http = "jvm", kept = null }, hear = () => {}) {
    const id = clients.size + 1;
    let hasLeft;
    const left = new Promise((done) => (hasLeft = done));
    const client = {
      state: { kind: "joining", trouble: null },
      stored: kept,
      hear({ state, stored }) {
        if (stored !== undefined) client.stored = stored;
        if (state === undefined) return;
        client.state = state;
        if (state.kind === "left") hasLeft();
        hear(state);
      },
      leave() {
        order({ id, do: "leave" });
        return left;
      },
      anew: () => order({ id, do: "anew" }),
      stop: () => order({ id, do: "stop" }),
    };
    clients.set(id, client);
    order({ id, do: "begin", server, zone, http, kept });
    return client;
  }

  return {
    begin,
    end() {
      jvm.stdin.end();
      jvm.kill();
      return ended;
    },
  };
}
