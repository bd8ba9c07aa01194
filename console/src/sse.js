// Reads server-sent events from a fetched body, because `EventSource` cannot send a token.
//
// Invariant: a line is buffered until its end, up to MAX_LINE. A longer line ends the stream.

/** In characters. The longest event has about 600. */
export const MAX_LINE = 65_536;

/** Takes pieces of text and calls back for each event with `(name, data)`; for a comment with `("", "")`. */
export function parser(tell) {
  let rest = "";
  let name = "message";
  let data = [];
  return (text) => {
    rest += text;
    let from = 0;
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", from)) {
      const line = rest.slice(from, rest[end - 1] === "\r" && end > from ? end - 1 : end);
      from = end + 1;
      if (line === "") {
        if (data.length > 0) tell(name, data.join("\n"));
        name = "message";
        data = [];
      } else if (line.startsWith(":")) {
        tell("", "");
      } else {
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
        if (field === "event") name = value;
        if (field === "data") data.push(value);
      }
    }
    rest = rest.slice(from);
    if (rest.length > MAX_LINE) throw new Error("an event is too long");
  };
}

/** Reads the body of a response to its end. */
export async function read(response, tell) {
  const take = parser(tell);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    take(value);
  }
}
