/** What comes page by page, as one row of entries. */

/** Some entries, and where to go on. */
export interface Page<Entry> {
  readonly data: readonly Entry[];
  /** The cursor of the next page; null behind the last. */
  readonly next: string | null;
  /** Of a list of chats: follow `client.events({ after })` from here, and nothing falls between the two. */
  readonly asOf?: string;
  /** Of a search: whether all that was committed before can be found. */
  readonly complete?: boolean;
}

/** Read the entries one by one with `for await`: pages are asked for as they are needed, anew each time. */
export class Pages<Entry> implements AsyncIterable<Entry> {
  readonly #look: (cursor: string | undefined, limit: number | undefined) => Promise<Page<Entry>>;
  readonly #limit: number;

  /** `limit`: so many entries at most, of all pages together. */
  constructor(look: (cursor: string | undefined, limit: number | undefined) => Promise<Page<Entry>>, limit = Infinity) {
    this.#look = look;
    this.#limit = limit;
  }

  /** The same, page by page. */
  async *pages(): AsyncGenerator<Page<Entry>, void, undefined> {
    let left = this.#limit;
    let cursor: string | undefined;
    do {
      // Servers give no fewer than 20 at a time, where nobody says how many.
      const page = await this.#look(cursor, left > 20 ? undefined : left);
      const data = page.data.slice(0, left);
      left -= data.length;
      cursor = page.next ?? undefined;
      yield { ...page, data };
    } while (cursor && left > 0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Entry, void, undefined> {
    for await (const page of this.pages()) yield* page.data;
  }

  /** All of them, in a list. */
  async all(): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this) entries.push(entry);
    return entries;
  }
}
