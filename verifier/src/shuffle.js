// The shuffle of weir-draw-1: Durstenfeld's form of Fisher-Yates, with words of ChaCha20 (RFC 8439).
//
// Invariant: the same seed gives the same order as crates/draw/src/shuffle.rs.

/** A function that returns the next word of the stream: key = seed, nonce 0, counter from 0. */
export function words_of(seed) {
  const start = new Uint32Array(16), block = new Uint32Array(16);
  start.set([0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]);
  const view = new DataView(seed.buffer, seed.byteOffset);
  for (let at = 0; at < 8; at += 1) start[4 + at] = view.getUint32(4 * at, true);
  const quarter = (a, b, c, d) => {
    let x;
    block[a] += block[b]; x = block[d] ^ block[a]; block[d] = (x << 16) | (x >>> 16);
    block[c] += block[d]; x = block[b] ^ block[c]; block[b] = (x << 12) | (x >>> 20);
    block[a] += block[b]; x = block[d] ^ block[a]; block[d] = (x << 8) | (x >>> 24);
    block[c] += block[d]; x = block[b] ^ block[c]; block[b] = (x << 7) | (x >>> 25);
  };
  let used = 16;
  return () => {
    if (used === 16) {
      block.set(start);
      for (let round = 0; round < 10; round += 1) {
        quarter(0, 4, 8, 12); quarter(1, 5, 9, 13); quarter(2, 6, 10, 14); quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15); quarter(1, 6, 11, 12); quarter(2, 7, 8, 13); quarter(3, 4, 9, 14);
      }
      for (let at = 0; at < 16; at += 1) block[at] += start[at];
      start[12] += 1;
      used = 0;
    }
    used += 1;
    return block[used - 1];
  };
}

/** The position of each of `people`, from 1, by rank. */
export function positions(seed, people) {
  const word = words_of(seed), found = new Uint32Array(people);
  for (let rank = 0; rank < people; rank += 1) found[rank] = rank + 1;
  for (let last = people - 1; last > 0; last -= 1) {
    const bound = last + 1, limit = 2 ** 32 - (2 ** 32 % bound);
    let drawn;
    do drawn = word(); while (drawn >= limit);
    const other = drawn % bound, moved = found[last];
    found[last] = found[other];
    found[other] = moved;
  }
  return found;
}
