/** What the list knows of a chat. */

import type { Change, ChatInfo } from "turnledger";
import { harmless } from "../markdown/safe-text";

export interface Row {
  readonly id: string;
  readonly scope: string | null;
  readonly title: string | null;
  readonly pinned: boolean;
  readonly archived: boolean;
  readonly revision: number;
  readonly branch: string;
  readonly touchedAt: number;
  readonly isRunning: boolean;
  /** Of a deleted one: when it goes for good. */
  readonly purgeAt: number | null;
}

/** A change that says how a chat is. */
export type Told = Extract<Change, { readonly revision: number }>;

/** The last used first; of two that were used at once, the one that was made last. */
export function inOrder(one: Place, other: Place): number {
  return other.touchedAt - one.touchedAt || (one.id < other.id ? 1 : one.id > other.id ? -1 : 0);
}

/** Where a row stands in the list. */
export type Place = Pick<Row, "touchedAt" | "id">;

/** `otherwise`: whether it runs, where the chat does not say. */
export function rowOf(chat: ChatInfo, otherwise = false): Row {
  const { id, scope, title, pinned, archived, revision, branch, touchedAt, isRunning = otherwise, purgeAt } = chat;
  return { id, scope, title, pinned, archived, revision, branch, touchedAt, isRunning, purgeAt };
}

/** The row of a chat that nothing was known of; it was used when this happened to it. */
export function rowOfTold(told: Told): Row {
  const { chat: id, scope, title, pinned, archived, revision, branch, at } = told;
  return { id, scope, title, pinned, archived, revision, branch, touchedAt: at, isRunning: false, purgeAt: null };
}

/** The row as it is after a change, which may be older than what is known. */
export function changed(row: Row, told: Told): Row {
  const isUse = told.type === "chat.switched";
  const touchedAt = isUse ? Math.max(row.touchedAt, told.at) : row.touchedAt;
  if (told.revision < row.revision) return { ...row, touchedAt };
  const { title, pinned, archived, revision, branch } = told;
  return { ...row, title, pinned, archived, revision, branch, touchedAt };
}

/** The row as somebody answered it, where a change that is newer may have been heard meanwhile. */
export function merged(known: Row | undefined, read: Row, isTold: boolean): Row {
  if (known === undefined) return read;
  const touchedAt = Math.max(known.touchedAt, read.touchedAt);
  const isOlder = read.revision < known.revision || (isTold && read.revision === known.revision);
  return isOlder
    ? { ...known, touchedAt }
    : { ...read, touchedAt, isRunning: isTold ? known.isRunning : read.isRunning };
}

/** When an id was made. */
export function madeAt(id: string): number {
  return parseInt(id.slice(-32, -20), 16);
}

/** How a chat is called, among the words of the page. */
export function nameOf(row: Pick<Row, "title">): string {
  return harmless(row.title ?? "").trim() || "New chat";
}
