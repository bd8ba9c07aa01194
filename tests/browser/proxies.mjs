// The real proxies in front of a site, with the recipes of deploy/proxies as they are, but for the addresses. Each is ended with its
// test, and its log is shown if the test failed. A missing one fails the test and says how to get it.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./harness.mjs";

// No other process uses this part of the loopback network, and each proxy has a port of its own: proxies cannot say which port they
// were given.
const pid = process.pid;
const HOST = `127.${64 | ((pid >> 16) & 63)}.${(pid >> 8) & 255}.${pid & 255}`;
let port = 8100;

/// For each kind: the files that it needs, by name, and the arguments of its program.
const KINDS = {
  caddy: ({ recipe, dir, own }) => ({
    files: { Caddyfile: recipe("Caddyfile").replaceAll(":8000 {", `:${own} {\n\tbind ${HOST}`).replaceAll("\n:", "\nhttp://:") },
    args: ["run", "--adapter", "caddyfile", "--config", join(dir, "Caddyfile")],
    env: { XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir },
  }),
  envoy: ({ recipe, dir, own }) => ({
    files: { "envoy.yaml": recipe("envoy.yaml").replace("address: 0.0.0.0, port_value: 8000", `address: ${HOST}, port_value: ${own}`) },
    args: ["--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c", join(dir, "envoy.yaml")],
  }),
  nginx: ({ recipe, dir, own }) => {
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((of) => `${of}_temp_path ${dir}/${of}; `).join("");
    const site = recipe("nginx.conf").replace("http {", `http { access_log off; ${paths}`).replaceAll("listen 8000", `listen ${HOST}:${own}`);
    return {
      files: { "nginx.conf": `pid ${dir}/pid; error_log stderr warn;\n${site}` },
      args: ["-e", "stderr", "-g", "daemon off; master_process off;", "-p", dir, "-c", join(dir, "nginx.conf")],
    };
  },
  traefik: ({ recipe, dir, own }) => ({
    files: {
      "dynamic.yml": recipe("traefik.yml"),
      "traefik.yml":
        `entryPoints: { site: { address: "${HOST}:${own}" } }\nproviders: { file: { filename: ${join(dir, "dynamic.yml")} } }\n` +
        "global: { checkNewVersion: false, sendAnonymousUsage: false }\n",
    },
    args: [`--configFile=${join(dir, "traefik.yml")}`],
  }),
};

/// The names of the kinds.
export const PROXIES = Object.keys(KINDS);

/// The statuses of the waiting page behind each kind: Envoy takes 503 for a failure of Weir.
export const page_status = (kind) => (kind === "envoy" ? 429 : 503);

/// Starts a proxy in front of an app at `app_port`, which asks the Weir at `weir_at`. Returns the site's address.
export async function proxy(t, kind, weir_at, app_port) {
  const dir = mkdtempSync(join(tmpdir(), `weir-${kind}-`));
  const own = (port += 1);
  const socket = (of) => `address: 127.0.0.1, port_value: ${of}`;
  const recipe = (file) =>
    readFileSync(new URL(`../../deploy/proxies/${file}`, import.meta.url), "utf8")
      .replaceAll("127.0.0.1:8080", weir_at)
      .replaceAll("shop.example", HOST)
      .replaceAll("127.0.0.1:3000", `127.0.0.1:${app_port}`)
      .replaceAll(socket(8080), socket(weir_at.split(":")[1]))
      .replaceAll(socket(3000), socket(app_port));
  const { files, args, env = {} } = KINDS[kind]({ recipe, dir, own });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
  const program = process.env[kind.toUpperCase()] ?? kind;
  const child = spawn(program, args, { cwd: dir, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (log += bytes));
  const ended = new Promise((done) => child.once("error", (error) => done((log += error))).once("close", done));
  t.after(async () => {
    if (t.passed === false) process.stderr.write(`--- the log of ${kind}:\n${log}---\n`);
    child.kill("SIGKILL");
    await ended;
    rmSync(dir, { recursive: true, force: true });
  });
  const url = `http://${HOST}:${own}`;
  await until(`${kind} serves`, async () => {
    if (child.exitCode !== null || !child.pid) throw new Error(`${kind} does not run; scripts/test takes it from a package: ${log}`);
    // It does not listen at once.
    return (await fetch(`${url}/healthz`).catch(() => null))?.status === 200;
  });
  return url;
}
