/** One chat in a list, and how changes update it. */

import type { Change, ChatInfo } from "turnledger";
import { safeText } from "../markdown/safe-text";

export interface ChatRow {
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
export type ChatUpdate = Extract<Change, { readonly revision: number }>;

/** The last used first; of two that were used at once, the one that was made last. */
export function byLastUse(one: ListPosition, other: ListPosition): number {
  return other.touchedAt - one.touchedAt || (one.id < other.id ? 1 : one.id > other.id ? -1 : 0);
}

/** Where a row stands in the list. */
export type ListPosition = Pick<ChatRow, "touchedAt" | "id">;

/** `otherwise`: whether it runs, where the chat does not say. */
export function rowOf(chat: ChatInfo, otherwise = false): ChatRow {
  const { id, scope, title, pinned, archived, revision, branch, touchedAt, isRunning = otherwise, purgeAt } = chat;
  return { id, scope, title, pinned, archived, revision, branch, touchedAt, isRunning, purgeAt };
}

/** The row of a chat that nothing was known of; it was used when this happened to it. */
export function rowOfUpdate(told: ChatUpdate): ChatRow {
  const { chat: id, scope, title, pinned, archived, revision, branch, at } = told;
  return { id, scope, title, pinned, archived, revision, branch, touchedAt: at, isRunning: false, purgeAt: null };
}

/** The row as it is after a change, which may be older than what is known. */
export function withUpdate(row: ChatRow, told: ChatUpdate): ChatRow {
  const isUse = told.type === "chat.switched";
  const touchedAt = isUse ? Math.max(row.touchedAt, told.at) : row.touchedAt;
  if (told.revision < row.revision) return { ...row, touchedAt };
  const { title, pinned, archived, revision, branch } = told;
  return { ...row, title, pinned, archived, revision, branch, touchedAt };
}

/** The row as somebody answered it, where a change that is newer may have been heard meanwhile. */
export function mergeRow(known: ChatRow | undefined, read: ChatRow, isTold: boolean): ChatRow {
  if (known === undefined) return read;
  const touchedAt = Math.max(known.touchedAt, read.touchedAt);
  const isOlder = read.revision < known.revision || (isTold && read.revision === known.revision);
  return isOlder
    ? { ...known, touchedAt }
    : { ...read, touchedAt, isRunning: isTold ? known.isRunning : read.isRunning };
}

/** When an id was made. */
export function createdAtOf(id: string): number {
  return parseInt(id.slice(-32, -20), 16);
}

/** How a chat is called, among the words of the page. */
export function chatTitle(row: Pick<ChatRow, "title">): string {
  return safeText(row.title ?? "").trim() || "New chat";
}
