// SHA-256 (FIPS 180-4), for many short inputs.
//
// Millions of hashes of a tree are too many for the browser's own function, which makes a promise for each. Invariant: the
// state of one call is not seen by another one, because no call waits.

/** The first 32 bits of the fractional parts of the n-th roots of the first primes, as FIPS 180-4 defines the constants. */
function roots(count, power) {
  const found = new Uint32Array(count);
  for (let candidate = 2, at = 0; at < count; candidate += 1) {
    let is_prime = true;
    for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) if (candidate % divisor === 0) is_prime = false;
    if (!is_prime) continue;
    // The root in units of 2^-32, exactly: the largest whole number whose power is not above the prime's.
    const target = BigInt(candidate) << BigInt(32 * power);
    let low = 0n, high = 1n << 40n;
    while (high - low > 1n) {
      const middle = (low + high) / 2n;
      if (middle ** BigInt(power) <= target) low = middle;
      else high = middle;
    }
    found[at] = Number(low & 0xffffffffn);
    at += 1;
  }
  return found;
}

const START = roots(8, 2);
const ROUND = new Int32Array(roots(64, 3));
const words = new Int32Array(64);

/** Takes in the block of 16 big-endian words that `words` begins with. */
function compress(state) {
  for (let at = 16; at < 64; at += 1) {
    const a = words[at - 15], b = words[at - 2];
    const s0 = ((a >>> 7) | (a << 25)) ^ ((a >>> 18) | (a << 14)) ^ (a >>> 3);
    const s1 = ((b >>> 17) | (b << 15)) ^ ((b >>> 19) | (b << 13)) ^ (b >>> 10);
    words[at] = (words[at - 16] + s0 + words[at - 7] + s1) | 0;
  }
  let a = state[0] | 0, b = state[1] | 0, c = state[2] | 0, d = state[3] | 0;
  let e = state[4] | 0, f = state[5] | 0, g = state[6] | 0, h = state[7] | 0;
  for (let at = 0; at < 64; at += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[at] + words[at]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0;
    d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d;
  state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

/** The hash of bytes. */
export function sha256(bytes) {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 0x20000000));
  view.setUint32(padded.length - 4, bytes.length << 3);
  const state = START.slice();
  for (let block = 0; block < padded.length; block += 64) {
    for (let at = 0; at < 16; at += 1) words[at] = view.getInt32(block + 4 * at);
    compress(state);
  }
  return to_bytes(state);
}

/** The 32 bytes of 8 words. */
export function to_bytes(state) {
  const bytes = new Uint8Array(32), view = new DataView(bytes.buffer);
  state.forEach((word, at) => view.setUint32(4 * at, word));
  return bytes;
}

/** Writes the leaf of a place to `out` at word `to`: the hash of 0, the place in 4 bytes, and whether it is in line. */
export function leaf(place, in_line, out, to) {
  words.fill(0, 0, 16);
  words[0] = place >>> 8;
  words[1] = (place << 24) | (in_line << 16) | 0x8000;
  words[15] = 48;
  const state = out.subarray(to, to + 8);
  state.set(START);
  compress(state);
}

/** Writes the node above the hashes at words `left` and `right` of `from` to `out` at word `to`: the hash of 1 and both. */
export function node(from, left, right, out, to) {
  let carry = 1;
  for (let at = 0; at < 16; at += 1) {
    const word = at < 8 ? from[left + at] : from[right + at - 8];
    words[at] = (carry << 24) | (word >>> 8);
    carry = word & 0xff;
  }
  const state = START.slice();
  compress(state);
  words.fill(0, 0, 16);
  words[0] = (carry << 24) | 0x800000;
  words[15] = 520;
  compress(state);
  out.set(state, to);
}
