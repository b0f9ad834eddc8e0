/** Chats that nobody has, and a server that has them. */

import type { Change, ChatInfo, Client, ListOptions, Page } from "turnledger";
import { byLastUse, type ChatRow } from "../../src/chats/chat-row";

export function row(facts: Partial<ChatRow> = {}): ChatRow {
  return {
    id: idOf(0),
    scope: null,
    title: "A chat",
    pinned: false,
    archived: false,
    tags: [],
    revision: 1,
    branch: "branch_1",
    touchedAt: 1_000,
    isRunning: false,
    purgeAt: null,
    ...facts,
  };
}

/** An id that was made at this time. */
export function idOf(number: number, madeAt = 0): string {
  return `conv_${madeAt.toString(16).padStart(12, "0")}7${number.toString(16).padStart(19, "0")}`;
}

export function chat(facts: Partial<ChatRow> = {}): ChatInfo {
  const made = { conversationKey: null, namedBy: null, metadata: {}, createdAt: 0 } as const;
  return { ...made, internal: false, expiresAfter: null, reset: "never", ...row(facts) };
}

/** Something that happened to a chat. */
export function change(
  type: Change["type"],
  facts: Partial<ChatRow> & { at?: number; turn?: string; branch?: string } = {},
): Change {
  const { id, touchedAt, isRunning, purgeAt, ...told } = row(facts);
  const { at = touchedAt, turn, branch } = facts;
  return {
    type,
    chat: id,
    position: "1",
    at,
    ...told,
    metadata: {},
    ...(turn && { turn }),
    // A turn that runs has a branch only beside the one that is shown.
    ...(type === "turn.running" && { branch }),
  } as unknown as Change;
}

/** A server with these chats, which returns two at a time when a test lets it. */
export class Shop {
  readonly asked: string[] = [];
  #waiting: (() => void)[] = [];
  isHeld = false;
  problem: unknown = null;

  constructor(public chats: ChatInfo[]) {}

  get client(): Client {
    const list = (options: ListOptions) => ({
      pages: () => this.#pages(options),
      all: async () => {
        const all: ChatInfo[] = [];
        for await (const page of this.#pages(options)) all.push(...page.data);
        return all;
      },
    });
    const open = (id: string) => ({
      info: () => this.#answer(`info ${id}`, () => this.chats.find((each) => each.id === id)),
    });
    return { chats: { list, open } } as unknown as Client;
  }

  /** Answer everything that waits. */
  async release(): Promise<void> {
    this.isHeld = false;
    for (const answer of this.#waiting.splice(0)) answer();
    await settled();
  }

  async *#pages(options: ListOptions): AsyncGenerator<Page<ChatInfo>, void, undefined> {
    let after: ChatInfo | null = null;
    for (;;) {
      const look = (): Page<ChatInfo> => {
        const fitting = this.chats
          .filter(
            (each) => each.archived === (options.archived ?? false) && (options.pinned ?? each.pinned) === each.pinned,
          )
          .filter((each) => after === null || byLastUse(each, after) > 0)
          .sort(byLastUse);
        const data = fitting.slice(0, 2);
        return { data, next: fitting.length > 2 ? "more" : null, asOf: "as of" };
      };
      const page: Page<ChatInfo> = await this.#answer(options.pinned ? "pinned" : `page ${this.asked.length}`, look);
      after = page.data.at(-1) ?? after;
      yield page;
      if (page.next === null) return;
    }
  }

  /** It looks when it is asked, and answers when it may. */
  async #answer<Told>(what: string, look: () => Told): Promise<Told> {
    this.asked.push(what.startsWith("page") ? "page" : what);
    if (this.problem !== null) throw this.problem;
    const told = structuredClone(look());
    if (this.isHeld) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return told;
  }
}

/** Everything that only waits for others has gone on. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await Promise.resolve();
}
