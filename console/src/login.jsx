// Asks for a token if the server requires one.
//
// Invariant: the token is stored only in the session storage of this tab, and only after the server accepted it.

import { useEffect, useRef, useState } from "preact/hooks";

import { enter } from "./live.js";
import { t } from "./words.js";

export function Login({ why }) {
  const [token, set] = useState("");
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState(why === "refused" ? "login.refused" : null);
  const field = useRef(null);
  useEffect(() => {
    document.title = `${t("login")} · Weir`;
    field.current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await enter(token.trim());
    } catch (error) {
      setFault(error.status === 401 ? "login.refused" : "login.away");
      setBusy(false);
      field.current?.focus();
    }
  };
  return (
    <main id="main" class="login">
      <form onSubmit={submit}>
        <h1 tabindex="-1">{t("login")}</h1>
        <p id="login-how">{t("login.how")}</p>
        <label>
          {t("login.token")}
          <input
            ref={field}
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
            value={token}
            aria-invalid={fault === "login.refused"}
            aria-describedby="login-how login-fault"
            onInput={(event) => set(event.target.value)}
          />
        </label>
        <p id="login-fault" class="fault" role="alert">{fault && t(fault)}</p>
        <button type="submit" class="main" disabled={busy || token.trim() === ""}>{t("login.enter")}</button>
      </form>
    </main>
  );
}
