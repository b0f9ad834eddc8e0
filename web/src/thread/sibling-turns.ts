/** Find turns that have siblings, with as few requests as possible. */

import { signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { Branch, Chat, Sibling, Turn } from "turnledger";
import type { Siblings, Versions } from "./thread";

/** How many pages of branches are read; of a chat with more, each shown turn is checked. */
const MAX_PAGES = 5;

interface SiblingQuery {
  readonly parent: string | null;
  readonly shown: Signal<Siblings | null>;
}

export class SiblingTurns {
  readonly #chat: () => Chat;
  readonly #ending: AbortSignal;
  readonly #isRequested = signal(false);
  /** The turns after which branches fork; null: the beginning. Undefined: unknown, so that each turn is checked. */
  readonly #forks = signal<ReadonlySet<string | null> | undefined>(new Set());
  readonly #siblings = new Map<string, SiblingQuery>();
  #version = 0;

  constructor(chat: () => Chat, ending: AbortSignal) {
    this.#chat = chat;
    this.#ending = ending;
  }

  /** The siblings of a shown turn, once it is known that there are any. */
  of(turn: Turn): ReadonlySignal<Siblings | null> {
    const found = this.#siblings.get(turn.id);
    if (found) return found.shown;
    const query = { parent: turn.parent, shown: signal<Siblings | null>(null) };
    this.#siblings.set(turn.id, query);
    if (!this.#isRequested.peek()) {
      this.#isRequested.value = true;
      void this.refresh();
    } else void this.#load(turn.id, query);
    return query.shown;
  }

  /** Branches may have changed: read them again, if they were ever needed. */
  async refresh(): Promise<void> {
    if (!this.#isRequested.peek()) return;
    const version = ++this.#version;
    try {
      const forks = await this.#readForkPoints();
      if (version !== this.#version) return;
      this.#forks.value = forks;
      await Promise.all([...this.#siblings].map(([turn, query]) => this.#load(turn, query)));
    } catch {
      this.#isRequested.value = false; // the server was unavailable; the next caller tries again
    }
  }

  /** Forget turns that are no longer shown. */
  keep(turns: readonly Turn[]): void {
    const shown = new Set(turns.map(({ id }) => id));
    for (const turn of this.#siblings.keys()) if (!shown.has(turn)) this.#siblings.delete(turn);
  }

  async #readForkPoints(): Promise<ReadonlySet<string | null> | undefined> {
    const branches: Branch[] = [];
    let pages = 0;
    for await (const page of this.#chat().branches({ signal: this.#ending }).pages()) {
      branches.push(...page.data);
      if (page.next !== null && ++pages === MAX_PAGES) return undefined;
    }
    return forkPoints(branches);
  }

  async #load(turn: string, { parent, shown }: SiblingQuery): Promise<void> {
    const forks = this.#forks.peek();
    if (forks && !forks.has(parent)) {
      shown.value = null;
      return;
    }
    const found = await this.#chat().siblings(turn, { signal: this.#ending }).catch(() => null);
    if (!found) return;
    shown.value = siblingsOf(found, turn);
  }
}

/** Sort the siblings of a turn into versions of its message, and of the answer to that message. */
function siblingsOf(found: readonly Sibling[], turn: string): Siblings | null {
  const shown = found.find((each) => each.turn.id === turn);
  if (!shown) return null;
  // The last answer to each message; to the shown message, the shown one.
  const byMessage = new Map<string, string>();
  for (const { turn, branch } of [...found, shown]) byMessage.set(contentOf(turn), branch);
  const own = contentOf(shown.turn);
  const answers = found.filter((each) => contentOf(each.turn) === own);
  const versions = (at: number, branches: readonly string[]): Versions | null =>
    branches.length > 1 ? { at, branches } : null;
  const message = versions([...byMessage.keys()].indexOf(own), [...byMessage.values()]);
  const answer = versions(
    answers.indexOf(shown),
    answers.map(({ branch }) => branch),
  );
  return message || answer ? { message, answer } : null;
}

function contentOf({ input }: Turn): string {
  return JSON.stringify(input.map(({ type, role, content, ...more }) => [type, role, content, more["output"]]));
}

/** The turns after which branches fork; null: the beginning. */
export function forkPoints(branches: readonly Branch[]): ReadonlySet<string | null> {
  const grown = branches.filter(({ turns, shared, isSide }) => turns > shared && !isSide);
  const bases = new Set(grown.map(({ base }) => base));
  // Every chat has one branch without a base; only a second one makes a fork.
  if (grown.filter(({ base }) => base === null).length < 2) bases.delete(null);
  return bases;
}
