/** Streams of text taken apart: into lines, and into server-sent events. */

export interface ServerSentEvent {
  readonly id: string;
  readonly type: string;
  /** Empty for a heartbeat, which may bring an id. */
  readonly data: string;
}

/** Cuts pieces of a text into whole lines. A long line in many pieces is joined once, not for each piece. */
export function lineCutter(): (piece: string) => string[] {
  let rest = "";
  return (piece) => {
    const lines = piece.split("\n");
    lines[0] = rest + lines[0];
    rest = lines.pop() as string;
    return lines;
  };
}

/** The events of a stream, each when its last line has come. One that is cut off is none. */
export async function* eventsOf(pieces: AsyncIterable<string>): AsyncGenerator<ServerSentEvent, void, undefined> {
  const cut = lineCutter();
  let id = "";
  let type = "";
  let data = "";
  for await (const piece of pieces) {
    for (const whole of cut(piece)) {
      const line = whole.replace(/\r$/, "");
      if (line === "") {
        if (id || data) yield { id, type, data };
        id = type = data = "";
        continue;
      }
      const colon = line.indexOf(":");
      const value = line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      const name = line.slice(0, colon);
      if (name === "id") id = value;
      else if (name === "event") type = value;
      else if (name === "data") data = data ? `${data}\n${value}` : value;
    }
  }
}
