/** Export, import and delete all chats of the user. The work goes on if the dialog that began it is closed. */

import { signal, type ReadonlySignal } from "@preact/signals";
import { errors, type ImportReport } from "turnledger";
import { errorText } from "../session/notices";
import type { Session } from "../session/session";
import { strings } from "../strings";

type Owner = Pick<Session, "client" | "storage" | "chats" | "router" | "threads" | "dialog" | "notices">;

/** How many chats are deleted at once. */
const PARALLEL = 4;

export class AllChats {
  readonly #session: Owner;
  readonly #status = signal("");
  readonly #problem = signal<string | null>(null);
  readonly #isBusy = signal(false);
  readonly #reports = signal<readonly ImportReport[]>([]);
  readonly #condemned = signal<readonly string[] | null>(null);

  constructor(session: Owner) {
    this.#session = session;
  }

  /** What is being done, or was done last. */
  get status(): ReadonlySignal<string> {
    return this.#status;
  }

  /** Why the last work failed; null if it did not. */
  get problem(): ReadonlySignal<string | null> {
    return this.#problem;
  }

  get isBusy(): ReadonlySignal<boolean> {
    return this.#isBusy;
  }

  /** What the last import did, line by line. */
  get reports(): ReadonlySignal<readonly ImportReport[]> {
    return this.#reports;
  }

  /** The chats that a second step would delete; null before the first. */
  get condemned(): ReadonlySignal<readonly string[] | null> {
    return this.#condemned;
  }

  /** Forget former work, unless it still runs. */
  reset(): void {
    if (this.#isBusy.peek()) return;
    this.#status.value = "";
    this.#problem.value = null;
    this.#reports.value = [];
    this.#condemned.value = null;
  }

  /** Read all chats as one file; null if that failed. */
  async export(): Promise<Blob | null> {
    return this.#work(strings.data.exporting, async () => {
      const lines: string[] = [];
      for await (const line of this.#session.client.export(this.#scope)) lines.push(`${line}\n`);
      this.#report(strings.data.exported);
      return new Blob(lines, { type: "application/x-ndjson" });
    });
  }

  /** Import the chats of a file. Existing chats never change. */
  async import(file: Blob): Promise<void> {
    await this.#work(strings.data.importing, async () => {
      const reports = await this.#session.client.importChats(file, this.#scope);
      this.#reports.value = reports;
      this.#report(strings.data.imported(reports.filter(({ did }) => did === "imported").length));
    });
  }

  /** The first step: find the chats to delete, archived ones too. */
  async askToDelete(): Promise<void> {
    await this.#work(strings.common.loading, async () => {
      const found = await this.#session.client.chats.list({ archived: null, ...this.#scope }).all();
      this.#status.value = found.length === 0 ? strings.data.nothingToDelete : "";
      this.#condemned.value = found.length === 0 ? null : found.map(({ id }) => id);
    });
  }

  /** The second step: delete the chats that the first has found. They can be restored for a while. */
  async delete(): Promise<void> {
    const condemned = this.#condemned.peek();
    if (condemned === null) return;
    const { client, chats, router, threads, storage } = this.#session;
    const shown = threads.current.peek();
    if (shown?.isKept && condemned.includes(shown.id.peek() ?? "")) router.openNew();
    await this.#work(strings.data.deleting(0, condemned.length), async () => {
      const waiting = [...condemned];
      let count = 0;
      const work = async (): Promise<void> => {
        for (let id = waiting.shift(); id !== undefined && !storage.isClosed; id = waiting.shift()) {
          await client.chats.open(id).delete().catch(ignoreGone);
          chats.drop(id);
          this.#status.value = strings.data.deleting(++count, condemned.length);
        }
      };
      try {
        await Promise.all(Array.from({ length: PARALLEL }, work));
        this.#report(strings.data.deleted(count));
      } finally {
        waiting.length = 0; // the others stop, too
      }
    });
  }

  /** The only scope that the page shows, or all. */
  get #scope(): { scope?: string } {
    const { fixed } = this.#session.chats.scopes;
    return fixed === null ? {} : { scope: fixed };
  }

  async #work<Done>(status: string, work: () => Promise<Done>): Promise<Done | null> {
    if (this.#isBusy.peek()) return null;
    this.reset();
    this.#isBusy.value = true;
    this.#status.value = status;
    try {
      return await work();
    } catch (problem) {
      this.#status.value = "";
      this.#problem.value = errorText(problem);
      if (!this.#isSeen) this.#session.notices.problem(problem);
      return null;
    } finally {
      this.#isBusy.value = false;
    }
  }

  #report(text: string): void {
    this.#status.value = text;
    if (!this.#isSeen) this.#session.notices.news(text);
  }

  get #isSeen(): boolean {
    return this.#session.dialog.peek()?.kind === "settings";
  }
}

/** Another tab or device may have deleted it. */
function ignoreGone(problem: unknown): void {
  if (!(problem instanceof errors.ConversationUnavailable)) throw problem;
}
