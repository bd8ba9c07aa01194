// Small components that several pages use.

import { secondOf } from "./instant.js";
import { inForce } from "./order.js";
import { INSTANTS, NUMBERS, WORDS, ofEvent } from "./policy.js";
import { MOMENTS, PARTS } from "./schedule.js";
import { count, localOf, part, span, t } from "./words.js";

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
  const { mode } = inForce(zone);
  if (mode === "closed") return t("eta.closed");
  if (eta_s === null || eta_s === undefined) {
    if (mode === "hold") return t("eta.held");
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

/** An instant as it is written, with the time that the clocks here show then. */
export function instant(text) {
  const unix_s = secondOf(text);
  return unix_s === null ? text : t("instant.both", { written: text, here: localOf(unix_s) });
}

/** What people will see, and when. */
export function Course({ steps, now_s }) {
  if (steps.length === 0) return null;
  const when = ({ from_s, to_s }) =>
    from_s > now_s ? t("course.from", { at: localOf(from_s) }) : to_s === null ? t("course.now") : t("course.until", { at: localOf(to_s) });
  const inside = ({ is, policy }) => is === "enters" && policy.max_active > 0 && ` ${t("course.inside", { n: policy.max_active })}`;
  return (
    <div class="course">
      <h3>{t("course")}</h3>
      <ol>
        {steps.map((step) => (
          <li>
            <b>{when(step)}</b> {t(`course.${step.is}`, { rate: step.policy.admit_per_minute })}{inside(step)}
          </li>
        ))}
      </ol>
    </div>
  );
}

/** The value of an event's part as people read it. */
export function shownPart(name, value) {
  if (value === undefined && name === "order") return t("order.arrival");
  if (value === undefined) return ["randomness", "fallback", "before_page", "after_page"].includes(name) ? "–" : t(name === "notice" ? "event.notice.usual" : "event.usual");
  if (MOMENTS.includes(name)) return instant(value);
  if (name === "before" || name === "after") return t(`outside.${value}`);
  if (name === "order" || name === "fallback") return t(`${name}.${value}`);
  return name === "notice" || ["randomness", "before_page", "after_page"].includes(name) ? `“${value}”` : shown(name, value);
}

/** A whole event, a line for each part. */
function shownEvent(event) {
  const said = PARTS.filter((name) => event[name] !== undefined && name !== "notice");
  const texts = Object.entries(event.notice ?? {}).map(([tag, text]) => `${t("field.notice", { tag })}: “${text}”`);
  return [...said.map((name) => `${t(`event.part.${name}`)}: ${shownPart(name, event[name])}`), ...texts].join("\n");
}

const localOrWritten = (text) => (secondOf(text) === null ? text : localOf(secondOf(text)));

/** The value of a policy field as people read it. */
export function shown(field, value) {
  const event = ofEvent(field);
  if (event?.part) return shownPart(event.part, value);
  if (INSTANTS.some((one) => one.field === field) && value === null) return t("instant.none");
  if (value === undefined || value === null) return "–";
  if (event) return shownEvent(value);
  if (INSTANTS.some((one) => one.field === field)) return localOrWritten(value);
  if (WORDS.some((one) => one.field === field)) return t(`${field}.${value}`);
  if (field.startsWith("notice.")) return `“${value}”`;
  const { unit, is_optional_limit } = NUMBERS.find((one) => one.field === field) ?? {};
  if (is_optional_limit && value === 0) return t("unlimited");
  if (unit === "ms") return t("ms", { n: value });
  if (unit === "s") return span(value);
  return count(value);
}

export function fieldName(field) {
  const event = ofEvent(field);
  if (event?.part) return t("event.of", { id: event.id, part: t(`event.part.${event.part}`) });
  if (event) return t("event.named", { id: event.id });
  return field.startsWith("notice.") ? t("field.notice", { tag: field.slice(7) }) : t(`field.${field}`);
}

/** What a change changed, in one line. Long texts are only named. */
export function changeText(rows) {
  const text = ({ field, before, after }) => {
    const event = ofEvent(field);
    if (event && !event.part) return t(after ? "event.added" : "event.deleted", { id: event.id });
    if (field.startsWith("notice.") || event?.part === "notice") return fieldName(field);
    return `${fieldName(field)} ${shown(field, before)} → ${shown(field, after)}`;
  };
  return rows.map(text).join(", ");
}
