/** The open dialog of the page, if there is one. */

import type { Session } from "../../session/session";
import { ShareDialog } from "./share-dialog";

export function OpenDialogView({ session }: { session: Session }) {
  const open = session.dialog.value;
  const close = (): void => {
    session.dialog.value = null;
  };
  if (open === null) return null;
  return <ShareDialog session={session} row={open.row} onClose={close} />;
}
