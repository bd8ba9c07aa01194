"use strict";
const root = document.documentElement;
const speak = (lang) => {
  root.lang = root.dataset.lang = lang;
  document.querySelectorAll("[data-speak]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.speak === lang)));
};
document.querySelectorAll("[data-speak]").forEach((b) => b.addEventListener("click", () => speak(b.dataset.speak)));
speak((navigator.languages || [navigator.language || "en"]).map((l) => l.slice(0, 2)).find((l) => l === "ko" || l === "en") || "en");
// The charts read out the rows of their own tables.
document.querySelectorAll(".plot[data-left]").forEach((plot) => {
  const figure = plot.closest("figure");
  const rows = [...figure.querySelectorAll("tbody tr")];
  const heads = [...figure.querySelectorAll("thead th")];
  const said = figure.querySelector("output");
  const left = Number(plot.dataset.left), width = Number(plot.dataset.width);
  const cursor = document.createElement("div");
  cursor.className = "cursor"; cursor.hidden = true; plot.append(cursor);
  let now = -1;
  const show = (index) => {
    now = Math.max(0, Math.min(rows.length - 1, index));
    const cells = [...rows[now].children];
    said.textContent = cells.map((c, i) => `${heads[i].innerText} ${c.innerText}`).join(" · ");
    cursor.hidden = false;
    cursor.style.left = `${100 * (left + width * Number(rows[now].dataset.x))}%`;
  };
  plot.addEventListener("pointermove", (e) => {
    const box = plot.getBoundingClientRect();
    const x = ((e.clientX - box.left) / box.width - left) / width;
    let best = 0;
    rows.forEach((r, i) => { if (Math.abs(Number(r.dataset.x) - x) < Math.abs(Number(rows[best].dataset.x) - x)) best = i; });
    if (rows.length) show(best);
  });
  plot.addEventListener("pointerleave", () => { cursor.hidden = true; said.textContent = ""; });
  plot.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[e.key];
    if (!rows.length || !(step || e.key === "Home" || e.key === "End")) return;
    e.preventDefault();
    show(step ? now + step : e.key === "Home" ? 0 : rows.length - 1);
  });
});
