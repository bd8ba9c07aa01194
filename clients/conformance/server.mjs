// A server that misbehaves as cases.json says, on a free port of this machine. It knows nothing of the client that calls it.

import { readFileSync } from "node:fs";
import http from "node:http";
import { Script, httpOf } from "./script.mjs";

export const CASES = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/// The most bytes of a request that are read.
const MAX_BODY = 4_096;
/// How much of an endless reply is sent in one piece, and at most.
const PIECE = "x".repeat(16_384);
const MOST_PIECES = 4_096;

/// Starts a server for one case. `act` is called with what the user does, and with the call before it. Returns the address, the script,
/// and `close`.
export async function serve(one, act) {
  const script = new Script(one);
  const next = async (call) => {
    for (let step; (step = script.action()); ) await act(step, call);
  };
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) {
      text += piece;
      if (text.length > MAX_BODY) return request.destroy();
    }
    const call = /^\/traffic\/(wait|entry|leave)$/.exec(request.url)?.[1];
    let body = null;
    try {
      body = JSON.parse(text);
    } catch {
      script.faults.push(`${request.url} came without JSON: ${text}`);
    }
    if (!call || request.method !== "POST") script.faults.push(`an unknown call: ${request.method} ${request.url}`);
    const step = script.call({ call, body, atMs: performance.now(), isExact: false });
    if (step.user) await act({ user: step.user }, null);
    send(httpOf(step.reply), response);
    script.replied(performance.now());
    await next(call);
  });
  await new Promise((done, failed) => server.once("error", failed).listen(0, "127.0.0.1", done));
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { address: `http://127.0.0.1:${server.address().port}`, script, close };
}

function send(reply, response) {
  if (reply === "silent") return;
  if (reply === "lost") return response.socket.destroy();
  if (reply === "broken") {
    response.writeHead(200, { "content-type": "application/json", "content-length": 500 });
    return response.write('{"canEnter":false,"token":"t', () => response.socket.destroy());
  }
  if (reply === "endless") {
    response.writeHead(200, { "content-type": "application/json" });
    let pieces = 0;
    const more = () => {
      while (pieces++ < MOST_PIECES && response.write(PIECE));
      if (pieces < MOST_PIECES) response.once("drain", more);
    };
    response.on("error", () => {});
    return more();
  }
  const { status, headers, body } = reply;
  // Node adds its own Date only where there is none.
  response.writeHead(status, headers).end(body);
}
