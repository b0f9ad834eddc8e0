/** Lists that arrive page by page. */

/** Some entries, and the cursor of the next ones. */
export interface Page<Entry> {
  readonly data: readonly Entry[];
  /** Null on the last page. */
  readonly next: string | null;
  /** For a list of chats: `client.events({ after })` continues from here without a gap. */
  readonly asOf?: string;
  /** For a search: whether everything committed before can be found. */
  readonly complete?: boolean;
}

/** Iterate over the entries with `for await`. Each iteration reads the pages again, as needed. */
export class Pages<Entry> implements AsyncIterable<Entry> {
  readonly #readPage: (cursor: string | undefined, limit: number | undefined) => Promise<Page<Entry>>;
  readonly #limit: number;

  /** `limit`: maximum number of entries of all pages. */
  constructor(
    readPage: (cursor: string | undefined, limit: number | undefined) => Promise<Page<Entry>>,
    limit = Infinity,
  ) {
    this.#readPage = readPage;
    this.#limit = limit;
  }

  /** Iterate page by page. */
  async *pages(): AsyncGenerator<Page<Entry>, void, undefined> {
    let remaining = this.#limit;
    let cursor: string | undefined;
    do {
      // Without a limit, servers return at least 20 at a time.
      const page = await this.#readPage(cursor, remaining > 20 ? undefined : remaining);
      const data = page.data.slice(0, remaining);
      remaining -= data.length;
      cursor = page.next ?? undefined;
      yield { ...page, data };
    } while (cursor && remaining > 0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Entry, void, undefined> {
    for await (const page of this.pages()) yield* page.data;
  }

  /** Read all entries into a list. */
  async all(): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this) entries.push(entry);
    return entries;
  }
}
