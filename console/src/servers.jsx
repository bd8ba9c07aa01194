// Servers, their stores, and the figures of the server that the page asks.
//
// Invariant: data that did not arrive is shown as missing. Nothing is shown as good without a report.

import { useRef, useState } from "preact/hooks";

import { Refused, call, text } from "./api.js";
import { askAny } from "./change.jsx";
import { figures, look } from "./figures.js";
import { useEvery, useLive, usePage } from "./hooks.js";
import { may, show } from "./live.js";
import { Denied, Tile } from "./parts.jsx";
import { count, dayOf, has, span, t } from "./words.js";

const ASK_MS = 2_000;
const LOOK_MS = 5_000;

/** The polling period that a server tells because it is busy, and why; an older server does not say. */
function polling({ polling_period_ms: period_ms, busy }) {
  if (period_ms === undefined) return "–";
  if (period_ms === 0) return t("polling.wished");
  return t("polling.stretched", { span: span(period_ms / 1_000), why: has(`busy.${busy}`) ? t(`busy.${busy}`) : busy });
}

export function Servers() {
  const live = useLive();
  const heading = usePage(t("nav.servers"));
  const [heard, set] = useState(null);
  const [fault, setFault] = useState(null);
  const [ready, setReady] = useState(null);
  const [shown, setShown] = useState(null);
  const last = useRef(null);
  /** The overflows of the accept queue when the page was opened; only later ones are news. */
  const old = useRef(null);
  const [asked, ask] = useState(0);
  useEvery(ASK_MS, async (isOver) => {
    try {
      const [servers, is] = await Promise.all([call("GET", "/servers"), text("/readyz")]);
      if (isOver()) return;
      set(servers);
      setReady(is);
      setFault(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(error);
    }
  }, [asked]);
  useEvery(LOOK_MS, async (isOver) => {
    const { status, text: metrics } = await text("/metrics");
    if (isOver()) return;
    const now = status === 200 ? look(metrics, performance.now()) : null;
    setShown(now && figures(last.current, now));
    last.current = now;
    old.current ??= now?.overflows ?? null;
  }, []);

  const isAdmin = may("admin");
  const here = heard?.servers.find((server) => server.here);
  const drain = (draining) =>
    askAny({
      title: t(draining ? "drain" : "drain.end"),
      text: t(draining ? "drain.then" : "drain.end.then", { server: here?.name ?? "" }),
      label: t(draining ? "drain" : "drain.end"),
      said: t(draining ? "drain.done" : "drain.end.done"),
      act: async () => {
        await call("PUT", "/drain", { body: { draining } });
        ask((n) => n + 1);
        show();
      },
    });
  const figure = (value, write = count) => (value === null || value === undefined ? "–" : write(value));
  const ms = (s) => (s === Number.POSITIVE_INFINITY ? t("beyond") : t("under", { n: t("ms", { n: Number((s * 1_000).toPrecision(3)) }) }));
  return (
    <main id="main">
      <div class="head">
        <h1 ref={heading} tabindex="-1">{t("nav.servers")}</h1>
        <span class="space" />
        {here && (
          <button
            type="button"
            class={here.draining ? "" : "danger"}
            disabled={!isAdmin}
            aria-describedby={isAdmin ? undefined : "why-not"}
            onClick={() => drain(!here.draining)}
          >
            {t(here.draining ? "drain.end" : "drain")}
          </button>
        )}
      </div>
      {!isAdmin && <Denied role="admin" id="why-not" />}
      {fault && <p class="warning mild">{t("servers.away")}</p>}
      {!heard && !fault && <p class="empty">{t("loading")}</p>}
      {heard && (
        <table class="plain cards" role="table" aria-label={t("nav.servers")}>
          <thead role="rowgroup">
            <tr role="row">
              {["name", "is", "version", "started", "seen", "zones", "connections", "polling"].map((column) => (
                <th role="columnheader" scope="col">{t(`server.${column}`)}</th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {heard.servers.map((server) => {
              const silent_s = (Date.now() + live.ahead - server.seen_at) / 1_000;
              const is = silent_s > 15 ? "silent" : server.draining ? "draining" : "serving";
              return (
                <tr role="row">
                  <th role="rowheader" scope="row">{server.name} {server.here && <span class="badge">{t("server.here")}</span>}</th>
                  <td role="cell" data-label={t("server.is")}><span class={`badge ${{ silent: "bad", draining: "warn", serving: "good" }[is]}`}>{t(`server.${is}`)}</span></td>
                  <td role="cell" data-label={t("server.version")}>{server.version}</td>
                  <td role="cell" data-label={t("server.started")}>{dayOf(server.started_at)}</td>
                  <td role="cell" data-label={t("server.seen")}>{t("ago", { span: span(Math.max(0, silent_s)) })}</td>
                  <td role="cell" data-label={t("server.zones")}>{count(server.zones)}</td>
                  <td role="cell" data-label={t("server.connections")}>{figure(server.connections)}</td>
                  <td role="cell" data-label={t("server.polling")}>{polling(server)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
      <h2>{t("cells")}</h2>
      {heard && heard.cells.length === 0 && <p class="muted">{t("cells.none")}</p>}
      {heard && heard.cells.length > 0 && (
        <ul class="cells">
          {heard.cells.map((cell) => (
            <li class={cell.up ? "up" : "down"}>
              <span class="dot" aria-hidden="true" /> {cell.name} <span class={`badge ${cell.up ? "good" : "bad"}`}>{t(cell.up ? "cell.up" : "cell.down")}</span>
            </li>
          ))}
        </ul>
      )}
      <h2>{t("this", { server: live.me?.server ?? "" })}</h2>
      {ready && ready.status !== 200 && (
        <p class="warning mild">{t("notReady")} <code>{ready.text.slice(0, 300)}</code></p>
      )}
      {ready?.status === 200 && ready.text.trim() !== "ok" && <p class="warning mild"><code>{ready.text.replace(/^ok\n/, "").slice(0, 300)}</code></p>}
      {!shown ? (
        <p class="empty">{t("metrics.away")}</p>
      ) : (
        <dl class="tiles wrap">
          <Tile label={t("fig.requests")} value={figure(shown.requests_a_second, (value) => count(Math.round(value)))} note={t("fig.a_second")} />
          <Tile label={t("fig.request_p95")} value={figure(shown.request_p95_s, ms)} note={t("fig.last")} />
          <Tile label={t("fig.call_p95")} value={figure(shown.call_p95_s, ms)} note={t("fig.last")} />
          <Tile label={t("fig.calls_failed")} value={figure(shown.calls_failed)} tone={shown.calls_failed > 0 ? "warn" : ""} note={t("fig.since")} />
          <Tile label={t("fig.connections")} value={figure(shown.connections)} note={t("fig.streams", { n: shown.streams ?? 0 })} />
          <Tile
            label={t("fig.files")}
            value={figure(shown.files)}
            note={shown.files_most === null ? "" : t("tile.of", { n: shown.files_most })}
            tone={shown.files_most && shown.files > shown.files_most * 0.8 ? "warn" : ""}
          />
          <Tile label={t("fig.memory")} value={figure(shown.memory, (value) => t("mib", { n: Math.round(value / 1_048_576) }))} />
          <Tile label={t("fig.overflows")} value={figure(shown.overflows)} tone={shown.overflows > old.current ? "bad" : ""} note={t("fig.machine")} />
          <Tile label={t("fig.events_lost")} value={figure(shown.events_lost)} tone={shown.events_lost > 0 ? "warn" : ""} note={t("fig.since")} />
        </dl>
      )}
    </main>
  );
}
