// Bundles the console into the directory named: one page, one script, one style sheet, one icon.
//
// Invariant: the same sources and lock file give the same bytes, on any machine. So no name, time or path of the machine
// goes in, and what is bundled is named here.

import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error("usage: node build.mjs DIRECTORY");
  process.exit(64);
}

/** The licences of what is bundled: MIT asks that its text goes along. */
const notices = ["preact", "uplot"]
  .map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}`;
  })
  .join("\n\n----\n\n");

mkdirSync(join(out, "assets"), { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.jsx" },
  outdir: relative(here, join(out, "assets")),
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: `/*!\n${notices}\n*/`, css: "/*! With uPlot's style sheet: its licence is at the head of console.js. */" },
  logLevel: "warning",
});
for (const [from, to] of [["src/index.html", "index.html"], ["src/icon.svg", "assets/icon.svg"]]) {
  copyFileSync(join(here, from), join(out, to));
}
