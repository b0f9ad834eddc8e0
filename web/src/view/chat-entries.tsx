/** The menu entries of a chat, in the list and above the chat. */

import type { ChatActions } from "../chats/chat-actions";
import type { ChatRow } from "../chats/chat-row";
import type { Session } from "../session/session";
import { ArchiveIcon, EditIcon, LinkIcon, PinIcon, PinnedIcon, TagIcon, TrashIcon, UnarchiveIcon } from "./icons";
import type { MenuEntry } from "./menu";
import { strings } from "../strings";

/** Rename, tag, pin, archive. */
export function chatEntries(
  session: Session,
  actions: ChatActions,
  row: ChatRow,
  rename: () => void,
): readonly MenuEntry[] {
  const tag = (): void => {
    session.dialog.value = { kind: "tags", row };
  };
  return [
    { label: strings.chats.rename, icon: <EditIcon />, run: rename },
    { label: strings.tags.open, icon: <TagIcon />, run: tag },
    row.pinned
      ? { label: strings.chats.unpin, icon: <PinnedIcon />, run: () => void actions.pin(row, false) }
      : { label: strings.chats.pin, icon: <PinIcon />, run: () => void actions.pin(row, true) },
    row.archived
      ? { label: strings.chats.unarchive, icon: <UnarchiveIcon />, run: () => void actions.archive(row, false) }
      : { label: strings.chats.archive, icon: <ArchiveIcon />, run: () => void actions.archive(row, true) },
  ];
}

/** Share, for those who may. */
export function shareEntries(session: Session, row: ChatRow): readonly MenuEntry[] {
  if (!session.mayShare) return [];
  const run = (): void => {
    session.dialog.value = { kind: "share", row };
  };
  return [{ label: strings.share.open, icon: <LinkIcon />, run }];
}

/** Delete, with a second press. */
export function deleteEntry(isArmed: boolean, run: () => void): MenuEntry {
  return {
    label: isArmed ? strings.chats.confirmDelete : strings.chats.delete,
    icon: <TrashIcon />,
    isBad: true,
    staysOpen: !isArmed,
    run,
  };
}
