/** The open dialog of the page, if there is one. */

import type { Session } from "../../session/session";
import { AdminDialog } from "./admin-dialog";
import { SettingsDialog } from "./settings-dialog";
import { ShareDialog } from "./share-dialog";
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
  if (open.kind === "admin") return <AdminDialog session={session} onClose={close} />;
  return <ShareDialog session={session} row={open.row} onClose={close} />;
}
