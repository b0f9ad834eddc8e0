/** The menu of the chat that is shown. */

import { useMemo } from "preact/hooks";
import { ChatActions } from "../../chats/chat-actions";
import { rowOf, type ChatRow } from "../../chats/chat-row";
import { SecondPress } from "../second-press";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { chatEntries, deleteEntry, shareEntries } from "../chat-entries";
import { DownloadIcon, MoreIcon } from "../icons";
import { Menu, type MenuEntry } from "../menu";
import { saveChat } from "./export-file";
import { strings } from "../../strings";

interface MenuProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly rename: (row: ChatRow) => void;
}

/** Null until the chat exists, and for one that is not kept. */
export function ChatMenu({ session, thread, rename }: MenuProps) {
  const actions = useMemo(() => new ChatActions(session), [session]);
  const deletion = useMemo(() => new SecondPress(), [thread]);
  const row = shownRow(session, thread);
  if (!thread.isKept || row === null) return null;
  const isArmed = deletion.armed.value === row.id;
  const entries: MenuEntry[] = [];
  if (session.mayWrite) entries.push(...chatEntries(session, actions, row, () => rename(row)), "line");
  entries.push(...shareEntries(session, row));
  if (thread.turns.value.length > 0) entries.push(...saveEntries(thread));
  if (session.mayWrite) {
    const run = (): void => {
      if (isArmed || deletion.press(row.id)) void actions.delete(row);
    };
    entries.push("line", deleteEntry(isArmed, run));
  }
  if (entries.length === 0) return null;
  return (
    <Menu label={strings.thread.chatOptions} entries={entries} onToggle={(isOpen) => !isOpen && deletion.disarm()}>
      <MoreIcon />
    </Menu>
  );
}

/** The row of the shown chat, as the list has it; one outside the list has only what the thread knows. */
export function shownRow(session: Session, thread: Thread): ChatRow | null {
  const id = thread.id.value;
  const info = thread.info.value;
  return (id === null ? undefined : session.chats.row(id)) ?? (info && rowOf(info));
}

function saveEntries(thread: Thread): readonly MenuEntry[] {
  return [
    {
      label: strings.thread.saveMarkdown,
      hint: strings.thread.saveMarkdownHint,
      icon: <DownloadIcon />,
      run: () => void saveChat(thread, "markdown"),
    },
    {
      label: strings.thread.saveJsonLines,
      hint: strings.thread.saveJsonLinesHint,
      icon: <DownloadIcon />,
      run: () => void saveChat(thread, "jsonl"),
    },
  ];
}
