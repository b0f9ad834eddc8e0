/** The tokens of the server that still give access: listed, created and revoked, the same in all tabs. */

import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { NewToken, Page, Token } from "turnledger";
import { openChannel } from "../browser/broadcast-channel";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";

interface CreatedToken {
  readonly id: string;
  readonly text: string;
}

export class ServerTokens {
  readonly #client: Session["client"];
  readonly #channel: BroadcastChannel | null;
  readonly #ending = new AbortController();
  readonly #tokens = signal<readonly Token[] | null>(null);
  readonly #created = signal<CreatedToken | null>(null);
  readonly #problem = signal<string | null>(null);
  readonly #hasMore = signal(false);
  #pages: AsyncGenerator<Page<Token>, void, undefined> | null = null;
  #lastRead = 0;

  constructor({ client, storage }: Pick<Session, "client" | "storage">) {
    this.#client = client;
    this.#channel = openChannel(`turnledger tokens ${storage.name}`);
    this.#channel?.addEventListener("message", () => void this.load());
    // Other programs change them, too, and no event reports that.
    addEventListener("focus", () => void this.load(), { signal: this.#ending.signal });
  }

  /** Those that are neither revoked nor expired, the newest first; null until they are known. */
  get tokens(): ReadonlySignal<readonly Token[] | null> {
    return this.#tokens;
  }

  /** Whether older ones can be loaded. */
  get hasMore(): ReadonlySignal<boolean> {
    return this.#hasMore;
  }

  /** The token that was created last, until it is revoked: the server sends its text only once. */
  readonly created: ReadonlySignal<CreatedToken | null> = computed(() => {
    const created = this.#created.value;
    return this.#tokens.value?.some(({ id }) => id === created?.id) ? created : null;
  });

  /** Why the last request failed; null if it did not. */
  get problem(): ReadonlySignal<string | null> {
    return this.#problem;
  }

  /** Load the newest ones. */
  async load(): Promise<void> {
    this.#pages = this.#client.tokens.list({ signal: this.#ending.signal }).pages();
    await this.#read([]);
  }

  async loadMore(): Promise<void> {
    await this.#read(this.#tokens.peek() ?? []);
  }

  /** Create a token. Returns its text, or null if that failed. */
  async create(options: NewToken): Promise<string | null> {
    return this.#attempt(async () => {
      const { token: text, ...token } = await this.#client.tokens.create(options);
      this.#change((tokens) => [token, ...tokens]);
      this.#created.value = { id: token.id, text };
      return text;
    });
  }

  /** Revoke a token and all that were created with it. Returns how many, or null if that failed. */
  async revoke(id: string): Promise<number | null> {
    const revoked = await this.#attempt(() => this.#client.tokens.revoke(id));
    if (revoked === null) return null;
    const ids = new Set(revoked.map((each) => each.id));
    this.#change((tokens) => tokens.filter((each) => !ids.has(each.id)));
    return revoked.length;
  }

  close(): void {
    this.#ending.abort();
    this.#channel?.close();
  }

  /** Add the next page with a valid token, or the last. */
  async #read(before: readonly Token[]): Promise<void> {
    const [read, pages] = [++this.#lastRead, this.#pages];
    await this.#attempt(async () => {
      for (;;) {
        const page = (await pages?.next())?.value;
        // A later change may have been read meanwhile.
        if (read !== this.#lastRead) return;
        const valid = page?.data.filter(isValid) ?? [];
        const hasMore = page?.next != null;
        if (valid.length === 0 && hasMore) continue;
        this.#tokens.value = [...before, ...valid];
        this.#hasMore.value = hasMore;
        return;
      }
    });
  }

  #change(change: (tokens: readonly Token[]) => readonly Token[]): void {
    const tokens = this.#tokens.peek();
    if (tokens === null) void this.load();
    else {
      this.#lastRead++; // what is being read may be older
      this.#tokens.value = change(tokens);
    }
    if (!this.#ending.signal.aborted) this.#channel?.postMessage(null);
  }

  async #attempt<Done>(work: () => Promise<Done>): Promise<Done | null> {
    try {
      const done = await work();
      this.#problem.value = null;
      return done;
    } catch (problem) {
      if (!this.#ending.signal.aborted) this.#problem.value = errorText(problem);
      return null;
    }
  }
}

function isValid({ revokedAt, expiresAt }: Token): boolean {
  return revokedAt === null && (expiresAt === null || expiresAt > Date.now());
}
