// An app that uses the package by its name: this must compile, and what is marked must not. `run` puts the README's component behind it.

import { native, wait, type Place, type State } from "weir-client";

const place: Place = wait({ server: "https://weir.example", zone: "TEST_ZONE" });
place.subscribe((state: State) => {
  if (state.kind === "waiting") state.rank.toFixed();
  if (state.kind === "entered") state.pass.slice();
  // @ts-expect-error a place that ended has no pass
  if (state.kind === "ended") state.pass.slice();
});
const appState = { addEventListener: (_: "change", hear: (state: string) => void) => ({ remove: () => hear("active") }) };
wait({ server: "https://weir.example", zone: "TEST_ZONE", platform: native(appState) });
// @ts-expect-error a zone is needed
wait({ server: "https://weir.example" });
declare function Checkout({ pass }: { pass: string }): null;

