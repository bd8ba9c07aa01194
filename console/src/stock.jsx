// What is left in a zone, as people who wait are told. It is shown here and set by the shop, or by `weir stock`.
//
// Invariant: a zone without stock shows nothing, and a reply that fails leaves what was shown.

import { useState } from "preact/hooks";

import { Refused, call, zonePath } from "./api.js";
import { useEvery } from "./hooks.js";
import { count, money, spokenOf, t } from "./words.js";

/** How often the numbers are fetched, in ms. */
const STOCK_MS = 2_000;

const left = (remaining) => (remaining === null ? t("stock.unknown") : remaining === 0 ? t("stock.gone") : count(remaining));

const price = ({ currency, from, to }) => [...new Set([from, to].map((amount) => money(amount, currency)))].join("–");

export function Stock({ id }) {
  const [told, set] = useState(null);
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
      {told.beyond > 0 && <p class="muted">{t("stock.beyond", { n: told.beyond })}</p>}
    </section>
  );
}
