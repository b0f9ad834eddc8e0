/** Splits streams of text into lines, and into server-sent events. */

export interface ServerSentEvent {
  readonly id: string;
  readonly type: string;
  /** Empty for a heartbeat, which may have an id. */
  readonly data: string;
}

/** Split pieces of text into complete lines. A long line in many pieces is joined once, not for each piece. */
export function lineCutter(): (piece: string) => string[] {
  let rest = "";
  return (piece) => {
    const lines = piece.split("\n");
    lines[0] = rest + lines[0];
    rest = lines.pop() as string;
    return lines;
  };
}

/** Parse the events of a stream, each when it is complete. A truncated one is dropped. */
export async function* eventsOf(pieces: AsyncIterable<string>): AsyncGenerator<ServerSentEvent, void, undefined> {
  const cut = lineCutter();
  let id = "";
  let type = "";
  let data = "";
  for await (const piece of pieces) {
    for (const line of cut(piece)) {
      const [, name, value = ""] = /^(\w+): ?([^\r]*)/.exec(line) ?? [];
      if (name === "id") id = value;
      if (name === "event") type = value;
      if (name === "data") data = data ? `${data}\n${value}` : value;
      if (line.trim()) continue;
      if (id || data) yield { id, type, data };
      id = type = data = "";
    }
  }
}
