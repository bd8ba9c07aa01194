// A Node app behind the proxies. Each reply says in `X-Read-As` as what the target is read: by the routers of Express 5 and 4, by
// Express's file server, and by what apps without a framework do. `checkout` and `admin` are the handlers that Weir guards.
//
// The first argument is the directory of the packages. The app prints its port, and ends when its standard input ends.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import legacy from "node:url";

const require = createRequire(`${process.argv[2]}/`);
const express = require("express");
const express4 = require("express-4");

const site = mkdtempSync(path.join(tmpdir(), "weir-reader-"));
for (const [section, file] of [["checkout", "1"], ["admin", "x"]]) {
  mkdirSync(path.join(site, section));
  writeFileSync(path.join(site, section, file), section);
}

// Express ignores the case of letters, so all readings here do.
const sectionOf = (read) => /^\/(checkout|admin)(?:\/|$)/i.exec(read)?.[1].toLowerCase() ?? "other";

// What apps do without a router. A text that cannot be read is no reading.
const readings = {
  "url": (target) => new URL(target, "http://shop.example").pathname,
  "url-decoded": (target) => decodeURIComponent(new URL(target, "http://shop.example").pathname),
  "joined-url": (target) => new URL(`http://shop.example${target}`).pathname,
  "legacy-url": (target) => legacy.parse(target).pathname,
  "legacy-url-host": (target) => decodeURIComponent(legacy.parse(target, false, true).pathname),
  "normalized": (target) => path.posix.normalize(decodeURIComponent(target.split("?")[0])),
};
const attempt = (read, target) => {
  try {
    return sectionOf(read(target) ?? "/");
  } catch {
    return "none";
  }
};

// The routes of an app: fixed names first, then one that takes the names from parameters.
const routed = (router, wildcard, segments) => {
  for (const section of ["checkout", "admin"]) {
    router.use(`/${section}`, (request, response) => response.found(section));
  }
  router.use("/:section", (request, response, next) => {
    const section = sectionOf(`/${request.params.section}`);
    return section === "other" ? next() : response.found(section);
  });
  router.all(wildcard, (request, response) => response.found(sectionOf(`/${segments(request.params)}`)));
  router.use((request, response) => response.found("other"));
  router.use((error, request, response, next) => response.found("none"));
  return router;
};
const routers = {
  "express": routed(express.Router(), "/{*all}", ({ all }) => (all ?? []).join("/")),
  "express-4": routed(express4.Router(), "/*", (all) => all[0]),
};
// A router changes the request that it gets, so each gets one for itself.
const route = (router, request) => {
  let section = "none";
  const own = Object.assign(Object.create(request), { url: request.url, params: {} });
  router.handle(own, { found: (name) => { section = name; } }, () => {});
  return section;
};

const app = express();
const files = express.static(site, {
  redirect: false,
  setHeaders: (response, file) => response.readAs.push(`static=${sectionOf(file.slice(site.length))}`),
});
app.use(files, (request, response) => response.send(`${response.readAs.join(", ")}\n`));
app.use((error, request, response, next) => response.status(400).send("unreadable\n"));

let reached = 0;
const server = http.createServer((request, response) => {
  const { method, url } = request;
  // A preflight runs no handler.
  const read = method === "OPTIONS" ? [] : Object.entries(readings).map(([name, read]) => `${name}=${attempt(read, url)}`);
  if (method !== "OPTIONS") {
    read.push(...Object.entries(routers).map(([name, router]) => `${name}=${route(router, request)}`));
  }
  response.readAs = read;
  const { writeHead } = response;
  response.writeHead = (...head) => {
    // Counts what reached a handler that Weir guards, whatever brought it here: the test asks for the count past the proxy.
    if (!request.headers["x-not-counted"] && /=(checkout|admin)/.test(read.join())) {
      reached += 1;
      console.error(`node got ${method} ${url} ${JSON.stringify(request.rawHeaders)}: ${read}`);
    }
    response.setHeader("X-Read-As", read.join(", "));
    response.setHeader("X-Reached", reached);
    return writeHead.apply(response, head);
  };
  request.resume();
  app(request, response);
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume().on("end", () => {
  rmSync(site, { recursive: true });
  process.exit();
});
