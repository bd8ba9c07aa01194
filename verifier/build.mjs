// Bundles the verifier into one file that needs nothing else: no server, no network, no other file.
//
// Invariants: the same sources and lock file give the same bytes, on any machine. The page's policy allows exactly this script
// and this style, by their digests, and no request at all.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error("usage: node build.mjs DIRECTORY");
  process.exit(64);
}

/** The licences of what is bundled: MIT asks that its text goes along. */
const notices = ["@noble/curves", "@noble/hashes"]
  .map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}`;
  })
  .join("\n\n----\n\n");

async function bundled(file, banner) {
  const { outputFiles } = await build({
    absWorkingDir: here,
    entryPoints: [join("src", file)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2022"],
    charset: "utf8",
    legalComments: "none",
    banner,
    logLevel: "warning",
  });
  // The text inside an element ends where the element would.
  return outputFiles[0].text.replaceAll("</script", "<\\/script").trim();
}

const digest = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const script = await bundled("main.js", { js: `/*!\n${notices}\n*/` });
const style = await bundled("style.css", {});
const policy = `default-src 'none'; script-src ${digest(script)}; style-src ${digest(style)}; base-uri 'none'; form-action 'none'`;
const parts = { policy, script, style };
const page = readFileSync(join(here, "src", "index.html"), "utf8").replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
mkdirSync(out, { recursive: true });
writeFileSync(join(out, "verify-draw.html"), page);
