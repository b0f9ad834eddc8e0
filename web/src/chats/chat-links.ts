/** The share links of a chat, created, listed and revoked, the same in all tabs: visitors read the chat, or chat on
 * their own as guests in its scope. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { NewShare, Share } from "turnledger";
import { openChannel } from "../browser/broadcast-channel";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import type { ChatRow } from "./chat-row";

/** The scope of guests, for a chat without one. */
const GUESTS = "guests";

interface CreatedLink {
  readonly id: string;
  readonly address: string;
}

/** Messages between tabs: the chat whose links have changed. */
interface LinkMessage {
  readonly chat: string;
}

export class ChatLinks {
  /** Where guests chat. */
  readonly guestScope: string;
  readonly #client: Session["client"];
  readonly #chat: string;
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #links = signal<readonly Share[] | null>(null);
  readonly #created = signal<CreatedLink | null>(null);
  readonly #problem = signal<string | null>(null);
  #lastRead = 0;

  constructor({ client, storage }: Pick<Session, "client" | "storage">, row: Pick<ChatRow, "id" | "scope">) {
    const { id: chat, scope } = row;
    this.#client = client;
    this.#chat = chat;
    this.guestScope = scope || GUESTS;
    this.#channel = openChannel(`turnledger links ${storage.name}`);
    this.#channel?.addEventListener("message", (event: MessageEvent<LinkMessage>) => {
      if (event.data.chat === chat) void this.load();
    });
    // Visitors and other devices change the list, too, and no event reports that.
    addEventListener("focus", () => void this.load(), { signal: this.#ending.signal });
  }

  /** The links that are not revoked or expired, the newest first; null until they are known. */
  get links(): ReadonlySignal<readonly Share[] | null> {
    return this.#links;
  }

  /** The link that was created last, until it is revoked: the server sends its address only once. */
  readonly created: ReadonlySignal<CreatedLink | null> = computed(() => {
    const created = this.#created.value;
    return this.#links.value?.some(({ id }) => id === created?.id) ? created : null;
  });

  /** Why the last request failed; null if it did not. */
  get problem(): ReadonlySignal<string | null> {
    return this.#problem;
  }

  async load(): Promise<void> {
    const read = ++this.#lastRead;
    await this.#attempt(async (signal) => {
      const all = await this.#client.shares.list({ signal }).all();
      // A later change may have been read meanwhile.
      if (read === this.#lastRead) this.#links.value = all.filter((each) => this.#isListed(each) && isOpen(each));
    });
  }

  /** Create a link to the chat, or to the scope for guests. Returns its address, or null if that failed. */
  async create(kind: Share["kind"], options: Pick<NewShare, "name" | "expiresIn">): Promise<string | null> {
    const target = kind === "chat" ? { chat: this.#chat } : { scope: this.guestScope };
    return this.#attempt(async () => {
      const { code: _, path, ...share } = await this.#client.shares.create({ ...options, ...target });
      const address = `${this.#client.baseUrl}${path}`;
      this.#change((links) => [share, ...links]);
      this.#created.value = { id: share.id, address };
      return address;
    });
  }

  /** Revoke a link, and the access of all its visitors. Returns whether it worked. */
  async revoke(id: string): Promise<boolean> {
    const revoked = await this.#attempt(() => this.#client.shares.revoke(id));
    if (revoked !== null) this.#change((links) => links.filter((each) => each.id !== id));
    return revoked !== null;
  }

  close(): void {
    this.#ending.abort();
    this.#channel?.close();
  }

  #isListed({ kind, chat, scope }: Share): boolean {
    return kind === "chat" ? chat === this.#chat : scope === this.guestScope;
  }

  #change(change: (links: readonly Share[]) => readonly Share[]): void {
    this.#lastRead++; // what is being read may be older
    if (this.#links.value === null) void this.load();
    this.#links.value = change(this.#links.value ?? []);
    if (!this.#ending.signal.aborted) this.#channel?.postMessage({ chat: this.#chat } satisfies LinkMessage);
  }

  async #attempt<Done>(work: (signal: AbortSignal) => Promise<Done>): Promise<Done | null> {
    const { signal: ending } = this.#ending;
    try {
      const done = await work(ending);
      this.#problem.value = null;
      return done;
    } catch (problem) {
      if (!ending.aborted) this.#problem.value = errorText(problem);
      return null;
    }
  }
}

/** A link that is used up still gives access to its visitors. */
function isOpen({ revokedAt, expiresAt }: Share): boolean {
  return revokedAt === null && (expiresAt === null || expiresAt > Date.now());
}
