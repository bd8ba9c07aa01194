// The key of a place that is being taken: whoever sends it again gets the same place, and no second one.

/** Whether Weir takes a text as a key. Whoever can write into the storage may have written anything. */
export const isKey = (text: string): boolean => /^[A-Za-z0-9_-]{22,64}$/.test(text);

/** 128 random bits as 28 letters and digits. Null where the machine has no good randomness, as React Native without a polyfill. */
export function randomKey(): string | null {
  const words = globalThis.crypto?.getRandomValues?.(new Uint32Array(4));
  return words ? Array.from(words, (word) => word.toString(36).padStart(7, "0")).join("") : null;
}
