/** Messages between tabs about the turns that they sent: no server reports the input of queued turns. */

import type { Item } from "turnledger";
import { openChannel } from "../browser/broadcast-channel";

export interface TabMessage {
  readonly chat: string;
  readonly turn: string;
  readonly name: string;
  readonly input: readonly Item[];
  readonly replaces: string | null;
}

type ChannelMessage = ({ readonly kind: "sent" } & TabMessage) | { readonly kind: "query"; readonly chat: string };

/** Does nothing where the browser has no channels. */
export class TabMessages {
  readonly #channel: BroadcastChannel | null;
  readonly #received = new Map<string, TabMessage>();
  readonly #onMessage: (message: TabMessage) => void;
  readonly #known: (chat: string) => readonly TabMessage[];

  /** `onMessage`: called for each message. `known`: the pending turns that this tab has sent. */
  constructor(name: string, onMessage: (message: TabMessage) => void, known: (chat: string) => readonly TabMessage[]) {
    this.#onMessage = onMessage;
    this.#known = known;
    this.#channel = openChannel(`turnledger turns ${name}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<ChannelMessage>) => this.#receive(event.data));
  }

  of(turn: string): TabMessage | undefined {
    return this.#received.get(turn);
  }

  post(message: TabMessage): void {
    this.#channel?.postMessage({ kind: "sent", ...message } satisfies ChannelMessage);
  }

  /** Ask the other tabs for the turns that they have sent in a chat. */
  requestAll(chat: string): void {
    this.#channel?.postMessage({ kind: "query", chat } satisfies ChannelMessage);
  }

  close(): void {
    this.#channel?.close();
  }

  #receive(data: ChannelMessage): void {
    if (data.kind === "query") {
      for (const message of this.#known(data.chat)) this.post(message);
      return;
    }
    const { kind: _, ...message } = data;
    this.#received.set(message.turn, message);
    if (this.#received.size > 100) this.#received.delete(this.#received.keys().next().value as string);
    this.#onMessage(message);
  }
}
