// What is left in a zone, as people who wait are told. The shop sets it, `weir stock`, or an operator here. Tiers are made elsewhere.
//
// Invariant: a zone without stock shows nothing, and a reply that fails leaves what was shown. Only numbers that were typed are set: the
// shop goes on setting the others.

import { useEffect, useRef, useState } from "preact/hooks";

import { Refused, call, zonePath } from "./api.js";
import { useEvery } from "./hooks.js";
import { count, money, spokenOf, t } from "./words.js";

/** How often the numbers are fetched, in ms. */
const STOCK_MS = 2_000;

const left = (remaining) => (remaining === null ? t("stock.unknown") : remaining === 0 ? t("stock.gone") : count(remaining));

const price = ({ currency, from, to }) => [...new Set([from, to].map((amount) => money(amount, currency)))].join("–");

/** The largest number of pieces. */
const MOST = 1_000_000_000;

/** What a typed text says: a number, `null` if nobody knows it, or `undefined` if it is neither. */
export function piecesOf(text) {
  const typed = text.trim();
  if (typed === "") return null;
  return /^\d{1,10}$/.test(typed) && Number(typed) <= MOST ? Number(typed) : undefined;
}

/** The numbers of all tiers as fields. `end` gets the new state, or nothing. */
function Numbers({ id, tiers, end }) {
  const [typed, type] = useState({});
  const [why, setWhy] = useState("");
  const [isBusy, setBusy] = useState(false);
  const box = useRef(null);
  useEffect(() => box.current.querySelector("input")?.focus(), []);
  const shown = (tier) => typed[tier.id] ?? (tier.remaining === null ? "" : String(tier.remaining));
  const isWrong = (tier) => piecesOf(shown(tier)) === undefined;
  const remaining = Object.fromEntries(Object.entries(typed).map(([tier, text]) => [tier, piecesOf(text)]));
  const submit = async (event) => {
    event.preventDefault();
    if (tiers.some(isWrong)) {
      box.current.querySelector('[aria-invalid="true"]')?.focus();
      return;
    }
    if (Object.keys(remaining).length === 0) return end();
    setBusy(true);
    try {
      end(await call("PATCH", `${zonePath(id)}/stock`, { body: { remaining } }));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setWhy(t("stock.refused", { why: error.message || error.code }));
      setBusy(false);
    }
  };
  return (
    <form class="event" onSubmit={submit} noValidate ref={box} aria-label={t("stock.change.long")}>
      <p class="muted" id="stock-how">{t("stock.change.how")}</p>
      {tiers.map((tier) => (
        <div class="field" key={tier.id}>
          <label for={`stock-${tier.id}`}><bdi>{spokenOf(tier.label)}</bdi></label>
          <input
            id={`stock-${tier.id}`}
            inputMode="numeric"
            autocomplete="off"
            value={shown(tier)}
            placeholder={t("stock.unknown")}
            aria-invalid={isWrong(tier)}
            aria-describedby={isWrong(tier) ? `stock-${tier.id}-how` : "stock-how"}
            onInput={({ target }) => type({ ...typed, [tier.id]: target.value })}
          />
          {isWrong(tier) && <small id={`stock-${tier.id}-how`} class="fault">{t("range", { low: 0, high: MOST })}</small>}
        </div>
      ))}
      {why && <p class="then danger" role="alert">{why}</p>}
      <div class="ends">
        <button type="button" onClick={() => end()}>{t("cancel")}</button>
        <button type="submit" class="main" disabled={isBusy}>{t("stock.tell")}</button>
      </div>
    </form>
  );
}

export function Stock({ id, isMine }) {
  const [told, set] = useState(null);
  /** The tiers when the form was opened, or nothing. */
  const [form, open] = useState(null);
  const opener = useRef(null);
  const [ended, setEnded] = useState(0);
  // The form, which had the focus, is gone.
  useEffect(() => {
    if (ended > 0) opener.current?.focus();
  }, [ended]);
  useEvery(STOCK_MS, async (isOver) => {
    try {
      const heard = await call("GET", `${zonePath(id)}/stock`);
      if (!isOver()) set(heard);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }, [id]);
  if (!told || told.tiers.length === 0) return null;
  return (
    <section aria-label={t("stock")}>
      <h2>{t("stock")}</h2>
      <table class="plain">
        <thead>
          <tr>{["tier", "price", "left"].map((column) => <th scope="col">{t(`stock.${column}`)}</th>)}</tr>
        </thead>
        <tbody>
          {told.tiers.map((tier) => (
            <tr key={tier.id}>
              <td><bdi>{spokenOf(tier.label)}</bdi> <small class="muted">{tier.id}</small></td>
              <td>{tier.price ? price(tier.price) : "–"}</td>
              <td>{left(tier.remaining)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {form
        ? (
          <Numbers
            id={id}
            tiers={form}
            end={(now) => {
              if (now) set(now);
              open(null);
              setEnded(ended + 1);
            }}
          />
        )
        : <button type="button" ref={opener} disabled={!isMine} aria-describedby={isMine ? undefined : "why-not"} onClick={() => open(told.tiers)}>{t("stock.change")}</button>}
      {told.beyond > 0 && <p class="muted">{t("stock.beyond", { n: told.beyond })}</p>}
    </section>
  );
}
