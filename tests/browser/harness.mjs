// The real binary and a real browser, for the tests of pages.
//
// Each page has its own browser context. A page that throws, violates its content security policy or calls another host than this
// machine fails its test. A failed test leaves a screenshot and the server's log.

import { accessSync, constants, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after } from "node:test";
import { pathToFileURL } from "node:url";
import { PATIENCE_MS, TARGET } from "./weir.mjs";

export { Weir, until, zone } from "./weir.mjs";

/// The directory of node_modules and screenshots.
export const OUT = process.env.WEIR_BROWSER_DIR ?? join(TARGET, "browser");
const BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

const modules = createRequire(join(OUT, "package.json"));
function installed(name) {
  try {
    return modules.resolve(name);
  } catch {
    throw new Error(`${name} is not installed in ${OUT}: run tests/browser/run, which does that`);
  }
}
/// The address of a module of tests/browser/package.json.
export const installed_module = (name) => pathToFileURL(installed(name)).href;

const { chromium } = modules(installed("playwright-core"));
const AXE = installed("axe-core");

/// The browser of all tests of a file. It is a promise, because several tests may ask for it at once.
let browser = null;
after(async () => (await browser)?.close());

function launched() {
  const names = process.env.CHROMIUM ? [process.env.CHROMIUM] : BROWSERS;
  const dirs = (process.env.PATH ?? "").split(":");
  const paths = names.flatMap((name) => (name.includes("/") ? [name] : dirs.map((dir) => join(dir, name))));
  const executablePath = paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  if (!executablePath) throw new Error("there is no Chromium: apt-get install chromium-headless-shell, or name one by CHROMIUM");
  // All pages are ours. A browser of root has no sandbox, and containers may not have one.
  browser ??= chromium.launch({ executablePath, chromiumSandbox: false, args: ["--disable-dev-shm-usage"] });
  return browser;
}

/// A new browser context for the test `t`. Its pages share storage. `options` are those of Playwright (locale, colorScheme,
/// viewport, reducedMotion, …).
export async function context(t, options = {}) {
  const made = await (await launched()).newContext({ locale: "en-US", ...options });
  made.setDefaultTimeout(PATIENCE_MS);
  made.faults = [];
  made.requests = [];
  made.on("request", (request) => {
    made.requests.push({ method: request.method(), url: request.url(), headers: request.headers(), body: request.postData() });
    const { protocol, hostname } = new URL(request.url());
    if (/^https?:$/.test(protocol) && !/^(127\.|localhost$)/.test(hostname)) made.faults.push(`asks another host: ${request.url()}`);
  });
  made.on("weberror", (fault) => made.faults.push(`throws: ${fault.error()?.stack ?? fault.error()}`));
  await made.exposeBinding("weir_policy_broken", (_, what) => void made.faults.push(`breaks its policy: ${what}`));
  await made.addInitScript(() => {
    addEventListener("securitypolicyviolation", (e) => {
      globalThis.weir_policy_broken(`${e.effectiveDirective}: ${e.blockedURI} at ${e.sourceFile}:${e.lineNumber}`);
    });
  });
  t.after(async () => {
    const { faults } = made;
    if (t.passed === false) {
      for (const [i, page] of made.pages().entries()) await picture(page, `FAILED ${t.name} ${i}`).catch(() => {});
    }
    await made.close();
    if (faults.length && t.passed !== false) throw new Error(`a page of this test\n${faults.join("\n")}`);
  });
  return made;
}

/// A page in a new context.
export async function page(t, url, options = {}) {
  const opened = await (await context(t, options)).newPage();
  await opened.goto(url);
  return opened;
}

/// How many places of a zone were taken, as the metrics say: up to a second late.
export async function joined(weir, id) {
  const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
  return Number(new RegExp(`^weir_zone_joined_total\\{zone="${id}"\\} (\\d+)$`, "m").exec(metrics)?.[1] ?? 0);
}

/// Saves a screenshot under target/browser for somebody who wants to see the page: only with WEIR_SCREENSHOTS=1. No test judges by it, and
/// on a busy machine a browser may take longer for a picture than a test waits.
export async function shot(page, name) {
  if (process.env.WEIR_SCREENSHOTS) await picture(page, name);
}

async function picture(page, name) {
  mkdirSync(OUT, { recursive: true });
  await page.screenshot({ path: join(OUT, `${name.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 100)}.png`), fullPage: true });
}

/// The faults that axe finds: rule, description and place, one text each. An accessible page has none.
export async function axe(page) {
  if (!(await page.evaluate(() => "axe" in globalThis))) {
    const { source } = modules(AXE);
    // axe runs through the debugger, which no content security policy can forbid.
    await page.evaluate(`${source}; undefined`);
  }
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.flatMap(({ id, help, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${help}: ${html} ${failureSummary}`));
}
