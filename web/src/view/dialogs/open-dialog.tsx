/** The open dialog of the page, if there is one. The content of each is loaded when it is first opened. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { chatTitle } from "../../chats/chat-row";
import { safeText } from "../../markdown/safe-text";
import type { OpenDialog, Session } from "../../session/session";
import type { Language } from "../../strings/language";
import type { Theme } from "../theme";
import { Dialog } from "./dialog";
import { strings } from "../../strings";

interface OpenDialogProps {
  readonly session: Session;
  readonly theme: Theme;
  readonly language: Language;
}

export function OpenDialogView({ session, theme, language }: OpenDialogProps) {
  const open = session.dialog.value;
  if (open === null) return null;
  const common = {
    session,
    open,
    // The browser reports late that a dialog was closed: another may be open by then.
    onClose: () => {
      if (session.dialog.peek() === open) session.dialog.value = null;
    },
  };
  switch (open.kind) {
    case "settings":
      return (
        <LazyDialog key={open} {...common} title={strings.settings.title} load={() => import("./settings-dialog")}>
          {({ SettingsView }) => <SettingsView session={session} theme={theme} language={language} />}
        </LazyDialog>
      );
    case "admin":
      return (
        <LazyDialog key={open} {...common} title={strings.admin.title} load={() => import("./admin-dialog")}>
          {({ AdminView }) => <AdminView session={session} />}
        </LazyDialog>
      );
    case "chat settings":
      return (
        <LazyDialog
          key={open}
          {...common}
          title={strings.chatSettings.title}
          load={() => import("./chat-settings-dialog")}
        >
          {({ ChatSettingsView }) => <ChatSettingsView session={session} thread={open.thread} />}
        </LazyDialog>
      );
    case "tags": {
      const title = strings.tags.title(safeText(chatTitle(open.row)));
      return (
        <LazyDialog key={open} {...common} title={title} load={() => import("./tags-dialog")}>
          {({ TagsView }) => <TagsView session={session} row={open.row} />}
        </LazyDialog>
      );
    }
    case "share": {
      const title = strings.share.title(safeText(chatTitle(open.row)));
      return (
        <LazyDialog key={open} {...common} title={title} load={() => import("./share-dialog")}>
          {({ ShareView }) => <ShareView session={session} row={open.row} />}
        </LazyDialog>
      );
    }
  }
}

interface LazyDialogProps<Module> {
  readonly session: Session;
  readonly open: OpenDialog;
  readonly title: string;
  readonly onClose: () => void;
  readonly load: () => Promise<Module>;
  readonly children: (module: Module) => ComponentChildren;
}

/** Opens at once, so that no key reaches the page behind. Without a connection it closes again, with a notice that
 * offers to open it. */
function LazyDialog<Module>({ session, open, title, onClose, load, children }: LazyDialogProps<Module>) {
  const loaded = useSignal<{ readonly module: Module } | null>(null);
  useLayoutEffect(() => {
    let isOpen = true;
    load().then(
      (module) => {
        if (isOpen) loaded.value = { module };
      },
      () => {
        if (!isOpen) return;
        const run = (): void => void (session.dialog.value = { ...open });
        session.notices.problem(new Error(strings.layout.dialogNotLoaded), {
          action: { label: strings.common.tryAgain, run },
        });
        onClose();
      },
    );
    return () => {
      isOpen = false;
    };
  }, []);
  return (
    <Dialog title={title} isBusy={loaded.value === null} onClose={onClose}>
      {loaded.value && children(loaded.value.module)}
    </Dialog>
  );
}
