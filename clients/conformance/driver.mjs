// Clients in another language, in one process, driven over its standard input and output with a line of JSON for each thing that happens.
//
// The process reads `{"id", "do": "begin", "server", "zone", "kept", …}` and `{"id", "do": "leave" | "anew" | "stop"}`, and writes
// `{"id", "state"}` and, after each change of the storage, `{"id", "stored"}`.

import { spawn } from "node:child_process";
import readline from "node:readline";

/// Starts the process, which ends with `end`. `begin` begins a client and returns it.
export function drive(command, args) {
  const process = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const clients = new Map();
  const order = (message) => process.stdin.write(`${JSON.stringify(message)}\n`);
  readline.createInterface({ input: process.stdout }).on("line", (line) => {
    // Other lines are what an example prints.
    if (!line.startsWith("{")) return;
    const { id, ...said } = JSON.parse(line);
    clients.get(id).hear(said);
  });
  const ended = new Promise((done) => process.once("exit", done));

  /// `kept` is what the storage has; `more` is for this process alone. `hear` is called with each state.
  function begin({ server, zone, kept = null, ...more }, hear = () => {}) {
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
    order({ id, do: "begin", server, zone, kept, ...more });
    return client;
  }

  return {
    begin,
    end() {
      process.stdin.end();
      process.kill();
      return ended;
    },
  };
}
