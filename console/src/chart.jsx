// One chart over time, with its figures as a table for people who cannot see it.
//
// Invariant: a chart is created once and then receives data. It is created again only if its style changes.

import uPlot from "uplot";
import { useEffect, useRef, useState } from "preact/hooks";

import { useDark } from "./frame.jsx";
import { count, part, spoken, t, timeOf } from "./words.js";

const HEIGHT = 160;
/** The number of rows of figures. */
const ROWS = 20;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the style sheet in the form that a canvas accepts. */
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/**
 * `lines`: `[{label, values, color, fill?, dash?, stepped?}]` over `at` (unix seconds), of which the last `long_s` are shown.
 * `unit`: "count" or "part".
 */
export function Chart({ title, at, lines, unit, sync, long_s }) {
  const box = useRef(null);
  const chart = useRef(null);
  /** The point under the pointer. */
  const [pointed, setAt] = useState(null);
  const long = useRef(long_s);
  long.current = long_s;
  const dark = useDark();
  const language = spoken();
  const write = (value) => (value === null || value === undefined ? "–" : unit === "part" ? part(value) : count(value));
  const data = [at, ...lines.map((line) => line.values)];

  useEffect(() => {
    const element = box.current;
    const axis = {
      stroke: resolved("--muted"),
      grid: { stroke: resolved("--line"), width: 1 },
      ticks: { stroke: resolved("--line"), width: 1, size: 4 },
      font: `11px ${color("--font")}`,
    };
    const two = (value) => String(value).padStart(2, "0");
    const made = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: sync } },
        scales: {
          x: { time: true, range: (_, __, last) => [(last ?? 0) - long.current, last ?? 0] },
          y: unit === "part" ? { range: [0, 1] } : { range: (_, __, high) => [0, Math.max(10, (high ?? 0) * 1.08)] },
        },
        axes: [
          {
            ...axis,
            space: 60,
            size: 26,
            values: (_, splits, __, ___, step) =>
              splits.map((s) => {
                const date = new Date(s * 1_000);
                const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
                return step < 60 ? `${minutes}:${two(date.getSeconds())}` : minutes;
              }),
          },
          { ...axis, size: 58, values: (_, splits) => splits.map(write) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label,
            stroke: resolved(line.color),
            fill: line.fill && resolved(line.fill),
            width: line.dash ? 1.5 : 2,
            dash: line.dash,
            // Too few points for a line.
            points: { show: (plot) => plot.data[0].length < 3 },
            paths: line.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          })),
        ],
        hooks: {
          setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
        },
      },
      data,
      element,
    );
    chart.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height: HEIGHT }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      made.destroy();
    };
  }, [dark, language]);
  useEffect(() => chart.current.setData(data), [at.at(-1), at.length, at[0], long_s, ...lines.map((line) => line.values.at(-1))]);

  const rows = at.map((_, n) => n).slice(-ROWS).reverse();
  return (
    <section class="chart" aria-label={title}>
      <h3>{title} {at[pointed] && <span class="at muted" aria-hidden="true">{timeOf(at[pointed] * 1_000)}</span>}</h3>
      <p class="legend">
        {lines.map((line, n) => (
          <span key={n}>
            <i style={{ background: `var(${line.color})` }} class={line.dash ? "dashed" : ""} aria-hidden="true" />
            {line.label} <b>{write(at[pointed] ? line.values[pointed] : line.values.at(-1))}</b>
          </span>
        ))}
      </p>
      <div class="plot" ref={box} aria-hidden="true" />
      <details>
        <summary>{t("figures")}<span class="unseen"> {title}</span></summary>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("column.time")}</th>
              {lines.map((line) => <th scope="col">{line.label}</th>)}
            </tr>
          </thead>
          <tbody>
            {rows.map((n) => (
              <tr>
                <th scope="row">{timeOf(at[n] * 1_000)}</th>
                {lines.map((line) => <td>{write(line.values[n])}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}
