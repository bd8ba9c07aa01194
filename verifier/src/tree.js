// The Merkle tree over the list of places (RFC 6962, section 2.1).
//
// Invariant: the list is only read. A large tree lets the page breathe between parts of its work.

import { leaf, node, sha256, to_bytes } from "./sha256.js";

/** Places hashed between two breaths. */
const PART = 50_000;

/** Whether a place of a bitmap is in line: 1 or 0. */
export const in_line = (bits, place) => (bits[place >> 3] >> (place & 7)) & 1;

/** The root over `count` places. `breathe(done, total)` is awaited between parts of the work. */
export async function root(bits, count, breathe) {
  if (count === 0) return sha256(new Uint8Array());
  let level = new Uint32Array(8 * count);
  const total = 2 * count;
  let done = 0;
  for (let place = 0; place < count; place += 1) {
    leaf(place, in_line(bits, place), level, 8 * place);
    if ((done += 1) % PART === 0) await breathe(done, total);
  }
  for (let size = count; size > 1; size = Math.ceil(size / 2)) {
    for (let at = 0; at + 1 < size; at += 2) {
      // In place: the node is written before the hashes that the next one reads.
      node(level, 8 * at, 8 * at + 8, level, 4 * at);
      if ((done += 1) % PART === 0) await breathe(done, total);
    }
    if (size % 2 === 1) level.copyWithin(4 * (size - 1), 8 * (size - 1), 8 * size);
  }
  return to_bytes(level.subarray(0, 8));
}

/** The root that a path leads to from the leaf of a place, or null if the path has another length (RFC 9162, 2.1.3.2). */
export function leads_to(place, is_in_line, path, count) {
  if (place >= count) return null;
  const words = new Uint32Array(24);
  leaf(place, is_in_line ? 1 : 0, words, 0);
  let index = place, last = count - 1;
  for (const sibling of path) {
    if (last === 0) return null;
    const view = new DataView(sibling.buffer, sibling.byteOffset);
    for (let at = 0; at < 8; at += 1) words[8 + at] = view.getUint32(4 * at);
    if (index % 2 === 1 || index === last) {
      node(words, 8, 0, words, 16);
      while (index % 2 === 0 && index !== 0) {
        index /= 2;
        last = Math.floor(last / 2);
      }
    } else {
      node(words, 0, 8, words, 16);
    }
    words.copyWithin(0, 16, 24);
    index = Math.floor(index / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? to_bytes(words.subarray(0, 8)) : null;
}
