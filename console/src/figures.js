// A few figures from the `/metrics` of the server that the page asks.
//
// Invariant: a missing figure is null. A rate is known from the second reading on.

/** Parses the samples of a Prometheus text: `[{name, labels, value}]`. */
export function samples(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const read = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!read) continue;
    const labels = {};
    for (const [, name, value] of (read[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    found.push({ name: read[1], labels, value: Number(read[3]) });
  }
  return found;
}

function sum(all, name, fits = () => true) {
  const found = all.filter((one) => one.name === name && fits(one.labels));
  return found.length > 0 ? found.reduce((total, one) => total + one.value, 0) : null;
}

/** The counts of a histogram by upper bound, summed over all labels. */
function buckets(all, name) {
  const by = new Map();
  for (const one of all) {
    if (one.name !== `${name}_bucket`) continue;
    const bound = one.labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(one.labels.le);
    by.set(bound, (by.get(bound) ?? 0) + one.value);
  }
  return [...by].sort(([a], [b]) => a - b);
}

/** The quantile `part` of the values between two readings, in the unit of the buckets. */
export function quantile(before, after, part) {
  const was = new Map(before);
  const counts = after.map(([bound, value]) => [bound, value - (was.get(bound) ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  return counts.find(([, value]) => value >= part * total)[0];
}

/** The figures of one reading. */
export function look(text, at_ms) {
  const all = samples(text);
  return {
    at_ms,
    connections: sum(all, "weir_connections_open"),
    streams: sum(all, "weir_streams_open"),
    files: sum(all, "process_open_fds"),
    files_most: sum(all, "process_max_fds"),
    memory: sum(all, "process_resident_memory_bytes"),
    requests: sum(all, "weir_requests_total"),
    errors: sum(all, "weir_requests_total", (labels) => /^5/.test(labels.status ?? labels.code ?? "")),
    request_s: buckets(all, "weir_request_duration_seconds"),
    call_s: buckets(all, "weir_store_call_duration_seconds"),
    calls_failed: sum(all, "weir_store_calls_failed_total"),
    overflows: sum(all, "weir_kernel_listen_overflows_total"),
    events_lost: sum(all, "weir_events_lost_total"),
  };
}

/** The figures of two consecutive readings. */
export function figures(before, after) {
  const long_s = before ? (after.at_ms - before.at_ms) / 1_000 : 0;
  const rate = (of) => (before && long_s > 0 && after[of] !== null && before[of] !== null ? Math.max(0, after[of] - before[of]) / long_s : null);
  return {
    ...after,
    requests_a_second: rate("requests"),
    request_p95_s: before ? quantile(before.request_s, after.request_s, 0.95) : null,
    call_p95_s: before ? quantile(before.call_s, after.call_s, 0.95) : null,
  };
}
