// The console. The fragment of the address selects the page: `#/`, `#/zones/ID`, `#/events`, `#/changes`, `#/routes`, `#/servers`.

import "uplot/dist/uPlot.min.css";
import "./style.css";

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Changes } from "./changes.jsx";
import { Dialogs, close } from "./change.jsx";
import { Events } from "./events.jsx";
import { Bar, Toasts, Warning, dress } from "./frame.jsx";
import { useLive } from "./hooks.js";
import { begin, isStale, show } from "./live.js";
import { Login } from "./login.jsx";
import { Routes } from "./routes.jsx";
import { Servers } from "./servers.jsx";
import { t } from "./words.js";
import { Zone } from "./zone.jsx";
import { Zones } from "./zones.jsx";

function where() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { page: page || "zones", rest: decodeURIComponent(rest.join("/")) };
  } catch {
    return { page: "zones", rest: "" };
  }
}

function Page({ page, rest }) {
  if (page === "events") return <Events />;
  if (page === "changes") return <Changes />;
  if (page === "routes") return <Routes />;
  if (page === "servers") return <Servers />;
  if (page === "zones" && rest) return <Zone key={rest} id={rest} />;
  return <Zones />;
}

function Console() {
  const live = useLive();
  const [at, set] = useState(where);
  useEffect(() => {
    const heard = () => {
      close();
      set(where());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", heard);
    return () => removeEventListener("hashchange", heard);
  }, []);
  return (
    <div class={isStale() ? "all old" : "all"}>
      <Bar page={at.page} />
      <Warning />
      {/* Before the page, so that what was just done is not far for who goes by Tab. */}
      <Toasts />
      {live.login ? <Login key={live.login} why={live.login} /> : live.me ? <Page {...at} /> : <main id="main"><h1 class="unseen" tabindex="-1">Weir</h1><p class="empty">{t("loading")}</p></main>}
      <Dialogs />
    </div>
  );
}

dress();
const root = document.getElementById("console");
root.textContent = "";
render(<Console />, root);
// The age of the data grows while nothing arrives.
setInterval(show, 1_000);
begin();
