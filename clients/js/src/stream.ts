// Reads server-sent events, as docs/app/streams.md describes them.
//
// Invariant: at most LONGEST_REPLY characters of an unfinished event are kept.

import type { Reader } from "./platform.js";
import { LONGEST_REPLY } from "./reply.js";

/** One event. A field that was not sent is absent. */
export interface StreamEvent {
  readonly id?: string;
  readonly event?: string;
  readonly data?: string;
  readonly retry?: string;
}

/** Yields the events of a body until it ends, or until an event is too long. `onBytes` is called for everything that arrives. */
export async function* events(reader: Reader, onBytes: () => void): AsyncGenerator<StreamEvent> {
  const decoder = new TextDecoder();
  let endsInCr = false;
  for (let text = ""; text.length <= LONGEST_REPLY; ) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    const piece = decoder.decode(value, { stream: true });
    // A line ends with CR, LF or both. Weir's end with LF, but a proxy may write them anew.
    const lines = (endsInCr ? piece.replace(/^\n/, "") : piece).replace(/\r\n?/g, "\n");
    if (piece) endsInCr = piece.endsWith("\r");
    const blocks = (text + lines).split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) yield fieldsOf(block);
  }
}

function fieldsOf(block: string): StreamEvent {
  const fields: Record<string, string> = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    // A line that begins with a colon is a comment, which keeps the connection open.
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
  }
  return fields;
}
