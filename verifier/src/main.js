// The page: reads files or texts, has them verified, and shows what was found.
//
// Invariants: nothing is sent anywhere. A text from a file is shown as text on one line, never as HTML. The result is announced, and the
// focus goes to its heading.

import { shown as spelled } from "./spelling.js";
import { verify_receipt, verify_record } from "./verify.js";
import { words } from "./words.js";

const $ = (id) => document.getElementById(id);
let language = navigator.language?.toLowerCase().startsWith("ko") ? "ko" : "en";
/** What is shown, so that it can be shown in the other language. */
let shown = null;
let is_running = false;

function say() {
  const text = words[language];
  document.documentElement.lang = language;
  document.title = `Weir: ${text.title}`;
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = text[element.dataset.word];
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", text[element.dataset.label]);
  for (const name of Object.keys(words)) $(name).setAttribute("aria-pressed", String(name === language));
  show();
}

function show() {
  $("results").hidden = shown === null;
  if (shown === null) return;
  const text = words[language];
  const is_right = shown.every(({ report }) => report.fault === null);
  $("verdict").textContent = is_right ? text.all_right : text.all_wrong;
  $("verdict").className = is_right ? "right" : "wrong";
  $("files").replaceChildren(...shown.flatMap(({ name, report }) => {
    const heading = document.createElement("h3"), list = document.createElement("ul");
    heading.textContent = name !== null ? spelled(name) : text[report.is_receipt ? "pasted_receipt" : "pasted_record"];
    const line = (kind, { code, values }) => {
      const item = document.createElement("li"), mark = document.createElement("b");
      mark.textContent = text[`${kind}_mark`];
      item.className = kind;
      item.append(mark, spelled(text[code](values)));
      list.append(item);
    };
    for (const step of report.steps) line("ok", step);
    if (report.fault) line("fault", report.fault);
    for (const limit of report.limits) line("note", limit);
    return [heading, list];
  }));
}

/** The files that were chosen, and the text that was pasted, each with its name. */
async function texts_of(which) {
  const read = async (file) => {
    try {
      if (file.size > 4_000_000) throw new Error(`${file.size} bytes`);
      return { name: file.name, text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.arrayBuffer()) };
    } catch (why) {
      return { name: file.name, why: why.message };
    }
  };
  const found = await Promise.all(Array.from($(`${which}-file`).files, read));
  const pasted = $(`${which}-text`).value;
  if (pasted.trim()) found.push({ name: null, text: pasted });
  return found;
}

const unreadable = (why) => ({ steps: [], limits: [], fault: { code: "unreadable", values: { why } } });

/** Lets the browser draw and answer. Progress is told in tenths, because a screen reader reads each change. */
const breathe = (done, total) => {
  const text = words[language].computing(10 * Math.floor((10 * done) / total));
  if ($("progress").textContent !== text) $("progress").textContent = text;
  return new Promise((go) => setTimeout(go));
};

async function verify() {
  const known = $("key").value.trim();
  const [records, receipts] = await Promise.all([texts_of("record"), texts_of("receipt")]);
  if (records.length + receipts.length === 0) {
    $("progress").textContent = words[language].nothing;
    return;
  }
  await breathe(0, 1);
  const found = [];
  let draw = null;
  // Receipts are held against the last record: the pasted one, if there is one.
  for (const { name, text, why } of records) {
    if (why) {
      found.push({ name, report: unreadable(why) });
      continue;
    }
    const { report, drawn } = await verify_record(text, known, breathe);
    draw = drawn;
    found.push({ name, report });
  }
  for (const { name, text, why } of receipts) {
    const report = why ? unreadable(why) : await verify_receipt(text, draw, known);
    report.is_receipt = true;
    found.push({ name, report });
  }
  shown = found;
  $("progress").textContent = "";
  show();
  $("verdict").focus();
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (is_running) return;
  is_running = true;
  $("verify").setAttribute("aria-disabled", "true");
  shown = null;
  show();
  try {
    await verify();
  } finally {
    is_running = false;
    $("verify").removeAttribute("aria-disabled");
  }
});
for (const name of Object.keys(words)) {
  $(name).addEventListener("click", () => {
    language = name;
    say();
  });
}
say();
