/** Sends a message with an outbox in a folder, and kills itself while it is answered; or resends what is stored there:
 * `node killed-sender.js URL FOLDER send|resend`. */

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

import { Client } from "../src/index.js";
import { Outbox, type OutboxStorage } from "../src/outbox.js";

/** A file for each message. */
class Folder implements OutboxStorage {
  readonly #folder: string;
  constructor(folder: string) {
    mkdirSync(folder, { recursive: true });
    this.#folder = folder;
  }
  get length(): number {
    return readdirSync(this.#folder).length;
  }
  key(place: number): string | null {
    const name = readdirSync(this.#folder)[place];
    return name === undefined ? null : decodeURIComponent(name);
  }
  getItem(name: string): string | null {
    try {
      return readFileSync(this.#path(name), "utf8");
    } catch {
      return null;
    }
  }
  setItem(name: string, value: string): void {
    writeFileSync(this.#path(name), value);
  }
  removeItem(name: string): void {
    rmSync(this.#path(name));
  }
  #path(name: string): string {
    return `${this.#folder}/${encodeURIComponent(name)}`;
  }
}

const [, , url = "", folder = "", what] = process.argv;
const outbox = new Outbox(new Folder(folder), "ann");
const client = new Client(url, { outbox });
if (what === "send") {
  const chat = client.chats.open({ conversationKey: "crash" });
  for await (const event of chat.send("One two three", { stream: true })) {
    if (event.type === "turn.started") process.kill(process.pid, "SIGKILL");
  }
} else {
  const sent = await outbox.sendAll(client);
  const turns = await client.chats.open({ conversationKey: "crash" }).turns().all();
  const report = { answers: sent.map((each) => each.answer?.text), turns: turns.length, left: outbox.pending().length };
  process.stdout.write(JSON.stringify(report));
}
