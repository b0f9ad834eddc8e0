/** The open dialog of the page, if there is one. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../../session/session";
import { ChatSettingsDialog } from "./chat-settings-dialog";
import { SettingsDialog } from "./settings-dialog";
import { ShareDialog } from "./share-dialog";
import { TagsDialog } from "./tags-dialog";
import type { Language } from "../../strings/language";
import type { Theme } from "../theme";

interface OpenDialogProps {
  readonly session: Session;
  readonly theme: Theme;
  readonly language: Language;
}

export function OpenDialogView({ session, theme, language }: OpenDialogProps) {
  const open = session.dialog.value;
  const close = (): void => {
    session.dialog.value = null;
  };
  if (open === null) return null;
  if (open.kind === "settings") {
    return <SettingsDialog session={session} theme={theme} language={language} onClose={close} />;
  }
  if (open.kind === "admin") return <LoadedAdminDialog session={session} onClose={close} />;
  if (open.kind === "chat settings") {
    return <ChatSettingsDialog session={session} thread={open.thread} onClose={close} />;
  }
  if (open.kind === "tags") return <TagsDialog session={session} row={open.row} onClose={close} />;
  return <ShareDialog session={session} row={open.row} onClose={close} />;
}

/** Few users administer: what they need is loaded when they do. */
function LoadedAdminDialog({ session, onClose }: { session: Session; onClose: () => void }) {
  const loaded = useSignal<typeof import("./admin-dialog") | null>(null);
  useEffect(() => {
    const fail = (problem: unknown): void => {
      session.notices.problem(problem);
      onClose();
    };
    import("./admin-dialog").then((found) => (loaded.value = found), fail);
  }, []);
  return loaded.value && <loaded.value.AdminDialog session={session} onClose={onClose} />;
}
