/** The menu of the chat that is shown. */

import { useMemo } from "preact/hooks";
import { ChatActions } from "../../chats/chat-actions";
import { rowOf, type ChatRow } from "../../chats/chat-row";
import { ConfirmDelete } from "../../chats/confirm-delete";
import { copyText } from "../../markdown/clipboard";
import type { Session } from "../../session/session";
import type { Thread } from "../../thread/thread";
import { chatEntries, deleteEntry } from "../chat-entries";
import { DownloadIcon, LinkIcon, MoreIcon } from "../icons";
import { Menu, type MenuEntry } from "../menu";
import { saveChat } from "./export-file";
import { strings } from "../../strings";

/** Milliseconds in which one click revokes a new link. */
const REVOKE_TIME = 15_000;

interface MenuProps {
  readonly session: Session;
  readonly thread: Thread;
  readonly rename: (row: ChatRow) => void;
}

/** Null until the chat exists, and for one that is not kept. */
export function ChatMenu({ session, thread, rename }: MenuProps) {
  const actions = useMemo(() => new ChatActions(session), [session]);
  const deletion = useMemo(() => new ConfirmDelete(), [thread]);
  const row = shownRow(session, thread);
  if (!thread.isKept || row === null) return null;
  const isArmed = deletion.armed.value === row.id;
  const entries: MenuEntry[] = [];
  if (session.mayWrite) entries.push(...chatEntries(actions, row, () => rename(row)), "line");
  if (mayShare(session)) {
    entries.push({
      label: strings.share.copyLink,
      hint: strings.share.copyLinkHint,
      icon: <LinkIcon />,
      run: () => void shareChat(session, row.id),
    });
  }
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

/** Links are made by tokens, and a guest has that of another link. */
function mayShare({ mayWrite, isGuest, me }: Session): boolean {
  return mayWrite && !isGuest && me.id != null;
}

/** Make a link that shows the chat to anyone, and copy it. */
async function shareChat({ client, notices }: Session, chat: string): Promise<void> {
  try {
    const { id, path } = await client.shares.create({ chat });
    const revoke = async (): Promise<void> => {
      await client.shares.revoke(id);
      notices.news(strings.share.revoked);
    };
    const action = {
      label: strings.share.revoke,
      run: () => void revoke().catch((problem: unknown) => notices.problem(problem)),
    };
    const address = `${client.baseUrl}${path}`;
    // Pages without TLS and many frames may not copy: show the address to select.
    if (await copyText(address)) notices.news(strings.share.copied, { action, stays: REVOKE_TIME });
    else notices.news(address, { action, stays: undefined });
  } catch (problem) {
    notices.problem(problem);
  }
}
