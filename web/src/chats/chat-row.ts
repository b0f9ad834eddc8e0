/** One chat in a list, and how changes update it. */

import type { Change, ChatInfo } from "turnledger";
import { safeText, sliceEnd } from "../markdown/safe-text";
import { strings } from "../strings";

export interface ChatRow {
  readonly id: string;
  readonly scope: string | null;
  readonly title: string | null;
  readonly pinned: boolean;
  readonly archived: boolean;
  readonly tags: readonly string[];
  readonly revision: number;
  readonly branch: string;
  readonly touchedAt: number;
  readonly isRunning: boolean;
  /** When a deleted chat is purged. */
  readonly purgeAt: number | null;
}

/** A change that carries the state of a chat. */
export type ChatUpdate = Extract<Change, { readonly revision: number }>;

/** Order by last use; of two used at the same time, the newer id first. */
export function byLastUse(one: ListPosition, other: ListPosition): number {
  return other.touchedAt - one.touchedAt || (one.id < other.id ? 1 : one.id > other.id ? -1 : 0);
}

export type ListPosition = Pick<ChatRow, "touchedAt" | "id">;

/** `wasRunning`: used if the server does not report whether it runs. */
export function rowOf(chat: ChatInfo, wasRunning = false): ChatRow {
  const { id, scope, title, pinned, archived, tags, revision, branch, touchedAt, purgeAt } = chat;
  const { isRunning = wasRunning } = chat;
  return { id, scope, title, pinned, archived, tags, revision, branch, touchedAt, isRunning, purgeAt };
}

/** The row of a chat known only by this change, which counts as its last use. */
export function rowOfUpdate(update: ChatUpdate): ChatRow {
  const { chat: id, scope, title, pinned, archived, tags, revision, branch, at } = update;
  return { id, scope, title, pinned, archived, tags, revision, branch, touchedAt: at, isRunning: false, purgeAt: null };
}

/** Apply a change, which may be older than the row. */
export function withUpdate(row: ChatRow, update: ChatUpdate): ChatRow {
  const isUse = update.type === "chat.switched";
  const touchedAt = isUse ? Math.max(row.touchedAt, update.at) : row.touchedAt;
  if (update.revision < row.revision) return { ...row, touchedAt };
  const { title, pinned, archived, tags, revision, branch } = update;
  return { ...row, title, pinned, archived, tags, revision, branch, touchedAt };
}

/** Merge a row that was read with the known one. `hasChanged`: a change updated the known one during the read. */
export function mergeRow(known: ChatRow | undefined, read: ChatRow, hasChanged: boolean): ChatRow {
  if (known === undefined) return read;
  const touchedAt = Math.max(known.touchedAt, read.touchedAt);
  const isOlder = read.revision < known.revision || (hasChanged && read.revision === known.revision);
  return isOlder
    ? { ...known, touchedAt }
    : { ...read, touchedAt, isRunning: hasChanged ? known.isRunning : read.isRunning };
}

export function createdAtOf(id: string): number {
  return parseInt(id.slice(-32, -20), 16);
}

/** Characters of a title that stands within a sentence. */
const SHORT_TITLE = 48;

/** The title of a chat as part of a sentence or a label: cut off if it is long. */
export function shortTitle(row: Pick<ChatRow, "title">): string {
  const title = chatTitle(row);
  return title.length > SHORT_TITLE ? `${title.slice(0, sliceEnd(title, SHORT_TITLE)).trimEnd()}…` : title;
}

/** The title of a chat, safe to display. */
export function chatTitle(row: Pick<ChatRow, "title">): string {
  return safeText(row.title ?? "").trim() || strings.layout.newChat;
}
