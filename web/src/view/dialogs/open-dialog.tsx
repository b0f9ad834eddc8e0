/** The open dialog of the page, if there is one. Each is loaded when it is first opened. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Session } from "../../session/session";
import type { Language } from "../../strings/language";
import type { Theme } from "../theme";
import { strings } from "../../strings";

interface OpenDialogProps {
  readonly session: Session;
  readonly theme: Theme;
  readonly language: Language;
}

export function OpenDialogView({ session, theme, language }: OpenDialogProps) {
  const open = session.dialog.value;
  const onClose = (): void => {
    session.dialog.value = null;
  };
  if (open === null) return null;
  const common = { session, onClose };
  switch (open.kind) {
    case "settings":
      return (
        <Loaded key="settings" {...common} load={() => import("./settings-dialog")}>
          {({ SettingsDialog }) => <SettingsDialog {...common} theme={theme} language={language} />}
        </Loaded>
      );
    case "admin":
      return (
        <Loaded key="admin" {...common} load={() => import("./admin-dialog")}>
          {({ AdminDialog }) => <AdminDialog {...common} />}
        </Loaded>
      );
    case "chat settings":
      return (
        <Loaded key="chat settings" {...common} load={() => import("./chat-settings-dialog")}>
          {({ ChatSettingsDialog }) => <ChatSettingsDialog {...common} thread={open.thread} />}
        </Loaded>
      );
    case "tags":
      return (
        <Loaded key="tags" {...common} load={() => import("./tags-dialog")}>
          {({ TagsDialog }) => <TagsDialog {...common} row={open.row} />}
        </Loaded>
      );
    case "share":
      return (
        <Loaded key="share" {...common} load={() => import("./share-dialog")}>
          {({ ShareDialog }) => <ShareDialog {...common} row={open.row} />}
        </Loaded>
      );
  }
}

interface LoadedProps<Module> {
  readonly session: Session;
  readonly onClose: () => void;
  readonly load: () => Promise<Module>;
  readonly children: (module: Module) => ComponentChildren;
}

/** Without a connection the dialog closes again, with a notice that offers to open it. */
function Loaded<Module>({ session, onClose, load, children }: LoadedProps<Module>) {
  const loaded = useSignal<{ readonly module: Module } | null>(null);
  useEffect(() => {
    let isOpen = true;
    load().then(
      (module) => {
        if (isOpen) loaded.value = { module };
      },
      () => {
        if (!isOpen) return;
        const wanted = session.dialog.peek();
        const run = (): void => void (session.dialog.value = wanted);
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
  return <>{loaded.value && children(loaded.value.module)}</>;
}
