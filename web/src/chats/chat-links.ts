/** The share links to a chat: created, listed and revoked, the same in all tabs. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { NewShare, Share } from "turnledger";
import { openChannel } from "../browser/broadcast-channel";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";

interface CreatedLink {
  readonly id: string;
  readonly address: string;
}

/** Messages between tabs: the chat whose links have changed. */
interface LinkMessage {
  readonly chat: string;
}

export class ChatLinks {
  readonly #client: Session["client"];
  readonly #chat: string;
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #links = signal<readonly Share[] | null>(null);
  readonly #created = signal<CreatedLink | null>(null);
  readonly #problem = signal<string | null>(null);
  #lastRead = 0;

  constructor({ client, storage }: Pick<Session, "client" | "storage">, chat: string) {
    this.#client = client;
    this.#chat = chat;
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
      if (read === this.#lastRead) this.#links.value = all.filter((each) => each.chat === this.#chat && isOpen(each));
    });
  }

  /** Create a link with which anyone can read the chat. Returns its address, or null if that failed. */
  async create(options: Pick<NewShare, "name" | "expiresIn">): Promise<string | null> {
    return this.#attempt(async () => {
      const { code: _, path, ...share } = await this.#client.shares.create({ ...options, chat: this.#chat });
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
