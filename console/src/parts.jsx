// Small components that several pages use.

import { NUMBERS, WORDS } from "./policy.js";
import { count, part, span, t } from "./words.js";

export const ModeBadge = ({ mode }) => <span class={`badge mode-${mode}`}>{t(`mode.${mode}`)}</span>;

/** A rate against its limit: a bar and the number. */
export function Rate({ entered, limit, mode }) {
  const used = mode === "open" ? 1 : Math.min(1, entered / Math.max(1, limit));
  return (
    <span class="rate">
      <span class="rate-text">
        {count(entered)} <span class="of">/ {mode === "open" ? "∞" : count(limit)}</span>
      </span>
      <span class="meter" aria-hidden="true">
        <span class={used >= 0.995 ? "full" : ""} style={{ transform: `scaleX(${used})` }} />
      </span>
    </span>
  );
}

/** The expected wait of a newcomer. */
export function eta(zone) {
  const { eta_s, waiting } = zone.now;
  if (zone.policy.mode === "closed") return t("eta.closed");
  if (eta_s === null || eta_s === undefined) {
    if (zone.policy.mode === "hold") return t("eta.held");
    return waiting > 0 ? t("eta.unknown") : "–";
  }
  return eta_s === 0 ? t("eta.now") : span(eta_s);
}

export function etaRange(zone) {
  const range = zone.now.eta_range_s;
  if (!range || range[1] === 0) return "";
  return t("eta.range", { low: span(range[0]), high: span(range[1]) });
}

export const use = (value) => (value === null ? "–" : part(value));

/** The last minutes of a zone's line as a small chart, with its direction as a word. */
export function Spark({ points, width = 150, height = 24 }) {
  if (points.length < 2) return <span class="muted">–</span>;
  const top = Math.max(1, ...points.map((point) => point.waiting));
  const from = points[0].at;
  const long = Math.max(1, points.at(-1).at - from);
  const x = (point) => ((point.at - from) / long) * (width - 4) + 2;
  const y = (point) => height - 2 - (point.waiting / top) * (height - 5);
  const line = points.map((point) => `${x(point).toFixed(1)},${y(point).toFixed(1)}`).join(" ");
  const [was, is] = [points.at(-Math.min(6, points.length)).waiting, points.at(-1).waiting];
  const way = is > was * 1.1 + 5 ? "rising" : is < was * 0.9 - 5 ? "falling" : "steady";
  return (
    <>
      <svg class={`spark ${way}`} width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
        {is + was > 0 && (
          <polygon points={`${x(points[0]).toFixed(1)},${height - 1} ${line} ${x(points.at(-1)).toFixed(1)},${height - 1}`} />
        )}
        <polyline points={line} />
      </svg>
      <span class="unseen">{t(`trend.${way}`)}</span>
    </>
  );
}

export function Tile({ label, value, note, tone }) {
  return (
    <div class={`tile ${tone ?? ""}`}>
      <dt>{label}</dt>
      <dd>
        {value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

/** Why an action is not available, shown beside the disabled control. */
export const Denied = ({ role, id }) => (
  <p class="denied" id={id}>
    {t("denied", { role: t(`role.${role}`) })}
  </p>
);

/** The value of a policy field as people read it. */
export function shown(field, value) {
  if (value === undefined || value === null) return "–";
  if (WORDS.some((one) => one.field === field)) return t(`${field}.${value}`);
  if (field.startsWith("notice.")) return `“${value}”`;
  const { unit, is_optional_limit } = NUMBERS.find((one) => one.field === field) ?? {};
  if (is_optional_limit && value === 0) return t("unlimited");
  if (unit === "ms") return t("ms", { n: value });
  if (unit === "s") return span(value);
  return count(value);
}

export const fieldName = (field) =>
  field.startsWith("notice.") ? t("field.notice", { tag: field.slice(7) }) : t(`field.${field}`);
