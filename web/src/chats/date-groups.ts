/** Group chats under headings by the day of their last use. */

import { signal, type ReadonlySignal } from "@preact/signals";
import type { ChatRow } from "./chat-row";
import { strings } from "../strings";

export type ChatListLine =
  | { readonly kind: "heading"; readonly id: string; readonly text: string }
  /** `number`: its position among the chats, from 1. */
  | { readonly kind: "chat"; readonly id: string; readonly row: ChatRow; readonly number: number };

const DAY = 86_400_000;

/** The lines for sorted chats, pinned ones first. Days begin at local midnight. */
export function listLines(
  rows: readonly ChatRow[],
  now: number,
  hasPinned: boolean,
  locale?: string,
): ChatListLine[] {
  const lines: ChatListLine[] = [];
  const headingOf = headings(now, locale);
  let last: string | null = null;
  rows.forEach((row, at) => {
    const heading = hasPinned && row.pinned ? { id: "pinned", text: strings.chats.pinned } : headingOf(row.touchedAt);
    if (heading.id !== last) lines.push({ kind: "heading", ...heading });
    last = heading.id;
    lines.push({ kind: "chat", id: row.id, row, number: at + 1 });
  });
  return lines;
}

/** The heading for a time. Consecutive times under one heading need one calendar lookup. */
function headings(now: number, locale?: string): (time: number) => { id: string; text: string } {
  const today = midnight(now, 0);
  const recent = [
    { since: today, id: "today", text: strings.chats.today },
    { since: midnight(now, -1), id: "yesterday", text: strings.chats.yesterday },
    { since: midnight(now, -7), id: "week", text: strings.chats.lastWeek },
  ];
  const format = new Intl.DateTimeFormat(locale, { month: "long", year: "numeric" });
  let month: { since: number; before: number; id: string; text: string } | null = null;
  return (time) => {
    const found = recent.find(({ since }) => time >= since);
    if (found) return found;
    if (month === null || time < month.since || time >= month.before) {
      const date = new Date(time);
      const since = new Date(date.getFullYear(), date.getMonth(), 1).getTime();
      const before = new Date(date.getFullYear(), date.getMonth() + 1, 1).getTime();
      month = { since, before, id: `month ${date.getFullYear()}-${date.getMonth()}`, text: format.format(since) };
    }
    return month;
  };
}

function midnight(now: number, days: number): number {
  const date = new Date(now);
  // By the calendar: a day has 23 or 25 hours when clocks change.
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + days).getTime();
}

/** The current time, updated when a new day begins. */
export class CurrentDay {
  readonly #now = signal(Date.now());
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #update = (): void => {
    if (midnight(Date.now(), 0) !== midnight(this.#now.peek(), 0)) this.#now.value = Date.now();
    this.#wait();
  };

  constructor() {
    // A machine that slept has missed its timer.
    document.addEventListener("visibilitychange", this.#update);
    this.#wait();
  }

  get now(): ReadonlySignal<number> {
    return this.#now;
  }

  close(): void {
    document.removeEventListener("visibilitychange", this.#update);
    clearTimeout(this.#timer);
  }

  #wait(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#update, Math.min(midnight(Date.now(), 1) - Date.now() + 50, DAY));
  }
}
