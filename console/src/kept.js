// What the browser stores for an operator: language and theme permanently, the token until the tab is closed.
//
// Invariant: without storage the console works too, and asks again the next time.

const MARK = "weir.console.";
const within = (name, use) => {
  try {
    return use(globalThis[name]);
  } catch {
    return null;
  }
};

export const kept = (key) => within("localStorage", (storage) => storage.getItem(MARK + key));
export const keep = (key, value) => within("localStorage", (storage) => storage.setItem(MARK + key, value));
export const forget = (key) => within("localStorage", (storage) => storage.removeItem(MARK + key));

let token = within("sessionStorage", (storage) => storage.getItem(`${MARK}token`));

export const tokenOf = () => token;
export function keepToken(value) {
  token = value;
  within("sessionStorage", (storage) =>
    value ? storage.setItem(`${MARK}token`, value) : storage.removeItem(`${MARK}token`),
  );
}
