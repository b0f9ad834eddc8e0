/** Tabs tell each other which turns they sent: no server reports the input of queued turns. */

import type { Item } from "turnledger";
import { openChannel } from "../browser/broadcast-channel";

export interface TabMessage {
  readonly chat: string;
  readonly turn: string;
  readonly name: string;
  readonly input: readonly Item[];
  readonly replaces: string | null;
}

type ChannelMessage = ({ readonly kind: "asked" } & TabMessage) | { readonly kind: "who"; readonly chat: string };

/** Does nothing where the browser has no channels. */
export class TabMessages {
  readonly #channel: BroadcastChannel | null;
  readonly #received = new Map<string, TabMessage>();
  readonly #heard: (message: TabMessage) => void;
  readonly #known: (chat: string) => readonly TabMessage[];

  /** `heard`: called for each message. `known`: the pending turns that this tab has sent. */
  constructor(name: string, heard: (message: TabMessage) => void, known: (chat: string) => readonly TabMessage[]) {
    this.#heard = heard;
    this.#known = known;
    this.#channel = openChannel(`turnledger turns ${name}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<ChannelMessage>) => this.#receive(event.data));
  }

  of(turn: string): TabMessage | undefined {
    return this.#received.get(turn);
  }

  post(message: TabMessage): void {
    this.#channel?.postMessage({ kind: "asked", ...message } satisfies ChannelMessage);
  }

  /** Ask the other tabs for the turns that they have sent in a chat. */
  requestAll(chat: string): void {
    this.#channel?.postMessage({ kind: "who", chat } satisfies ChannelMessage);
  }

  close(): void {
    this.#channel?.close();
  }

  #receive(said: ChannelMessage): void {
    if (said.kind === "who") {
      for (const message of this.#known(said.chat)) this.post(message);
      return;
    }
    const { kind: _, ...message } = said;
    this.#received.set(message.turn, message);
    if (this.#received.size > 100) this.#received.delete(this.#received.keys().next().value as string);
    this.#heard(message);
  }
}
