// The routes of proxies' requests, in the order in which they decide, with their counts. Only for reading.
//
// Invariant: a secret is never here: the server does not send it.

import { useState } from "preact/hooks";

import { Refused, call } from "./api.js";
import { useEvery, useLive, usePage } from "./hooks.js";
import { count, t } from "./words.js";

const ASK_MS = 5_000;

/** The columns of counts, and what each adds up. */
const COUNTS = {
  through: ["through", "visit", "entered"],
  waits: ["waits"],
  denied: ["denied"],
  refused: ["refused"],
};

/** What a route does. */
function outcome(route) {
  if (route.zone) return <a href={`#/zones/${encodeURIComponent(route.zone)}`}>{t("route.waits", { zone: route.zone })}</a>;
  return t(route.bypass ? "route.bypass" : "route.deny");
}

/** The conditions of a route, each as a name and a text. */
function conditions(route) {
  const text = (value) => (Array.isArray(value) ? value.join(", ") : value?.secret === true ? t("route.secret") : JSON.stringify(value));
  const found = [];
  for (const name of ["host", "path", "method", "address", "token"]) {
    if (route[name]) found.push([t(`route.${name}`), text(route[name])]);
  }
  for (const kind of ["header", "cookie"]) {
    for (const [name, value] of Object.entries(route[kind] ?? {})) found.push([`${t(`route.${kind}`)} ${name}`, text(value)]);
  }
  return found;
}

function Conditions({ route }) {
  const found = conditions(route);
  if (found.length === 0) return t("route.all");
  return <ul class="conditions">{found.map(([name, value]) => <li>{name}: {value}</li>)}</ul>;
}

export function Routes() {
  useLive();
  const heading = usePage(t("nav.routes"));
  const [heard, set] = useState(null);
  const [fault, setFault] = useState(null);
  useEvery(ASK_MS, async (isOver) => {
    try {
      const routes = await call("GET", "/routes");
      if (isOver()) return;
      set(routes);
      setFault(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(error);
    }
  }, []);
  return (
    <main id="main">
      <div class="head"><h1 ref={heading} tabindex="-1">{t("nav.routes")}</h1></div>
      <p class="muted">{t("routes.how")}</p>
      {fault && <p class="warning mild">{t("routes.away")}</p>}
      {!heard && !fault && <p class="empty">{t("loading")}</p>}
      {heard && heard.routes.length === 0 && <p class="empty">{t("routes.none")}</p>}
      {heard && heard.routes.length > 0 && (
        <>
          <table class="plain cards" role="table" aria-label={t("nav.routes")}>
            <thead role="rowgroup">
              <tr role="row">
                {["name", "from", "does", "if", ...Object.keys(COUNTS)].map((column) => (
                  <th role="columnheader" scope="col">{t(`route.column.${column}`)}</th>
                ))}
              </tr>
            </thead>
            <tbody role="rowgroup">
              {heard.routes.map(({ source, route, checks }, at) => (
                <tr role="row" key={route.name}>
                  <th role="rowheader" scope="row">{count(at + 1)}. {route.name}</th>
                  <td role="cell" data-label={t("route.column.from")}><span class="badge">{t(`route.from.${source}`)}</span></td>
                  <td role="cell" data-label={t("route.column.does")}>{outcome(route)}</td>
                  <td role="cell" data-label={t("route.column.if")}><Conditions route={route} /></td>
                  {Object.entries(COUNTS).map(([column, of]) => (
                    <td role="cell" data-label={t(`route.column.${column}`)}>{count(of.reduce((sum, name) => sum + checks[name], 0))}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          <p class="muted">{t("routes.unmatched", { n: heard.unmatched })}</p>
        </>
      )}
    </main>
  );
}
