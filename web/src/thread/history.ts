/** The turns that a chat shows: the last pages of its branch, as far back as the user has scrolled; or, for a
 * visitor, the first ones, as far as they have scrolled. */

import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { errors, type CallOptions, type Chat, type ChatInfo, type ChatPage } from "turnledger";
import type { Turn, TurnFlags } from "turnledger";
import { nextFrame } from "../browser/next-frame";

/** Turns to read first: enough for a large screen. */
const FIRST_PAGE = 12;
/** Older turns to read at once. */
const OLDER_PAGE = 40;
/** Turns to show in one frame: more would delay it. */
const SLICE = 10;
/** Turns to read to find new ones. */
const UPDATE_PAGE = 3;
/** Most turns to read to restore a position after a switch. */
const MAX_PAGE = 200;

export class History {
  readonly #read: Chat["read"];
  readonly #ending: AbortSignal;
  /** Whether requests may name a branch: readers by share link see the current one only. */
  readonly #namesBranches: boolean;
  readonly #info = signal<ChatInfo | null>(null);
  readonly #turns = signal<readonly Turn[]>([]);
  readonly #before = signal<number | null>(null);
  readonly #hasNewer = signal(false);
  /** Whether it is read from its first turn on. */
  #isFromStart: boolean;
  #isReadingOlder = false;
  #isReadingNewer = false;
  #update: Promise<ChatPage> | null = null;
  #isStale = false;
  #from = Infinity;

  /** `isVisited`: the user reads it by a share link, from its first turn on. */
  constructor(read: Chat["read"], ending: AbortSignal, isVisited = false) {
    this.#read = read;
    this.#ending = ending;
    this.#namesBranches = !isVisited;
    this.#isFromStart = isVisited;
  }

  /** Null until it was read. */
  get info(): ReadonlySignal<ChatInfo | null> {
    return this.#info;
  }
  /** The oldest first. */
  get turns(): ReadonlySignal<readonly Turn[]> {
    return this.#turns;
  }
  readonly hasOlder: ReadonlySignal<boolean> = computed(() => this.#before.value !== null);
  /** Whether turns follow the last one that was read. */
  get hasNewer(): ReadonlySignal<boolean> {
    return this.#hasNewer;
  }

  has(turn: string): boolean {
    return this.#turns.peek().some(({ id }) => id === turn);
  }

  /** Read the current turns, and return the last page. Turns that are still correct stay. A call during a read makes it
   * repeat, and all callers get the repeated result. With `from`, read back to the turn of that number at least. */
  catchUp(from = Infinity): Promise<ChatPage> {
    this.#from = Math.min(this.#from, from);
    if (this.#update) this.#isStale = true;
    this.#update ??= this.#readUpdate().finally(() => (this.#update = null));
    return this.#update;
  }

  async #readUpdate(): Promise<ChatPage> {
    for (;;) {
      this.#isStale = false;
      const isFirst = this.#info.peek() === null;
      if (this.#isFromStart && (isFirst || this.#hasNewer.peek())) {
        const page = await this.#readStart();
        if (this.#isStale) continue;
        this.#from = Infinity;
        this.#take(page);
        return page;
      }
      let page = await this.#page({ limit: isFirst ? FIRST_PAGE : UPDATE_PAGE });
      const isFar = (page.turns[0]?.number ?? 0) > this.#from;
      if (isFar || (!isFirst && !continuation(this.#turns.peek(), page.turns))) {
        const back = Math.max(0, (page.chat.turnCount ?? 0) - this.#from);
        page = await this.#page({ limit: Math.min(MAX_PAGE, Math.max(FIRST_PAGE, back + UPDATE_PAGE)) });
      }
      if (this.#isStale) continue;
      this.#from = Infinity;
      this.#take(page);
      return page;
    }
  }

  /** Read the first turns, or those that are shown again. */
  #readStart(): Promise<ChatPage> {
    const last = this.#turns.peek().at(-1)?.number ?? FIRST_PAGE;
    return this.#page({ before: last + 1, limit: Math.min(MAX_PAGE, last) });
  }

  /** Read later turns, unless a read is running. */
  async newer(): Promise<void> {
    const last = this.#turns.peek().at(-1);
    if (!last || !this.#hasNewer.peek() || this.#isReadingNewer) return;
    this.#isReadingNewer = true;
    try {
      const page = await this.#page({ before: last.number + OLDER_PAGE + 1, limit: OLDER_PAGE });
      const later = page.turns.filter(({ number }) => number > last.number);
      for (let at = 0; at < later.length; at += SLICE) {
        if (at > 0) await nextFrame();
        const turns = this.#turns.peek();
        if (turns.at(-1)?.id !== later[at]?.parent) return; // the branch has changed
        batch(() => {
          this.#turns.value = [...turns, ...later.slice(at, at + SLICE)];
          this.#noteCount(page.chat);
        });
      }
    } finally {
      this.#isReadingNewer = false;
    }
  }

  /** Read the last turns, and follow them from here on. */
  async latest(): Promise<void> {
    this.#isFromStart = false;
    this.#hasNewer.value = false;
    await this.catchUp();
  }

  #noteCount({ turnCount = 0 }: ChatInfo): void {
    this.#hasNewer.value = this.#isFromStart && (this.#turns.peek().at(-1)?.number ?? 0) < turnCount;
  }

  /** Read older turns, unless a read is running. */
  async older(): Promise<void> {
    const before = this.#before.peek();
    if (before === null || this.#isReadingOlder) return;
    this.#isReadingOlder = true;
    try {
      const page = await this.#page({ before, limit: OLDER_PAGE, ...this.#branch() });
      let shownFrom: number | null = before;
      for (let end = page.turns.length; end > 0; end -= SLICE) {
        if (end < page.turns.length) await nextFrame();
        const turns = this.#turns.peek();
        const isSame = this.#before.peek() === shownFrom && (!turns[0] || turns[0].parent === page.turns[end - 1]?.id);
        if (!isSame) return; // the branch has changed
        const older = page.turns.slice(Math.max(0, end - SLICE), end);
        shownFrom = end > SLICE ? (older[0]?.number ?? null) : page.before;
        batch(() => {
          this.#turns.value = [...older, ...turns];
          this.#before.value = shownFrom;
        });
      }
    } catch (problem) {
      // The branch was deleted: a change reports the new one.
      if (!(problem instanceof errors.BranchNotFound)) throw problem;
    } finally {
      this.#isReadingOlder = false;
    }
  }

  /** Read a turn again, if it is shown: its items were hidden or shown elsewhere. */
  async refresh(turn: string): Promise<void> {
    const known = this.#turns.peek().find(({ id }) => id === turn);
    if (!known) return;
    const { turns } = await this.#page({ before: known.number + 1, limit: 1, ...this.#branch() });
    this.#turns.value = this.#turns.peek().map((each) => same([each], turns).find(({ id }) => id === each.id) ?? each);
  }

  /** Take the flags of a turn that were set here. */
  takeFlags({ turn: id, hidden, hiddenFromModel }: TurnFlags): void {
    this.#turns.value = this.#turns
      .peek()
      .map((turn) => (turn.id === id ? { ...turn, hidden, hiddenFromModel } : turn));
  }

  #branch(): { branch?: string } {
    const branch = this.#info.peek()?.branch;
    return this.#namesBranches && branch !== undefined ? { branch } : {};
  }

  #page(options: Parameters<Chat["read"]>[0] & CallOptions): Promise<ChatPage> {
    return this.#read({ ...options, signal: this.#ending });
  }

  #take(page: ChatPage): void {
    const current = this.#turns.peek();
    const continued = continuation(current, page.turns) ?? same(current, page.turns);
    batch(() => {
      this.#info.value = page.chat;
      this.#turns.value = continued;
      if (continued.length === page.turns.length) this.#before.value = page.before;
      this.#noteCount(page.chat);
    });
  }
}

/** Join the known turns and the end that was read; null if they belong to different branches or leave a gap. */
export function continuation(current: readonly Turn[], end: readonly Turn[]): readonly Turn[] | null {
  const [first] = end;
  if (!first) return [];
  const kept = current.filter(({ number }) => number < first.number);
  const last = kept.at(-1);
  const isAdjacent = last ? last.id === first.parent : first.number === 1 || current[0]?.id === first.id;
  return isAdjacent ? [...kept, ...same(current, end)] : null;
}

/** The turns; known ones as the identical objects, unless their items were hidden or shown meanwhile. */
function same(current: readonly Turn[], turns: readonly Turn[]): readonly Turn[] {
  const known = new Map(current.map((turn) => [turn.id, turn]));
  return turns.map((turn) => {
    const before = known.get(turn.id);
    return before && flagsOf(before) === flagsOf(turn) ? before : turn;
  });
}

/** Visitors do not receive what is hidden. */
function flagsOf({ hidden, hiddenFromModel, input, output }: Turn): string {
  return [hidden, hiddenFromModel, input.length, output.length].join(";");
}
