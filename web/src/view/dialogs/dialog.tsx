/** A modal dialog: Escape, its button and a click beside it close it, and the focus returns to where it was. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import "../../style/dialog.css";
import { CloseIcon } from "../icons";
import { strings } from "../../strings";

interface DialogProps {
  readonly title: string;
  /** Whether its content is still being loaded. */
  readonly isBusy: boolean;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

export function Dialog({ title, isBusy, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  // Before the next key press: the focus moves into it, and back when it is closed or removed.
  useLayoutEffect(() => {
    const shown = dialog.current!;
    shown.showModal();
    return () => shown.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby={name}
      aria-busy={isBusy}
      onClose={onClose}
      // The page behind has shortcuts.
      onKeyDown={(event) => event.stopPropagation()}
      onPointerDown={(event) => event.target === event.currentTarget && dialog.current?.close()}
    >
      <div class="dialog-content">
        <header>
          <h2 id={name} class="one-line" dir="auto" title={title}>
            {title}
          </h2>
          <button
            type="button"
            class="quiet-button icon-only"
            aria-label={strings.common.close}
            title={strings.common.close}
            onClick={() => dialog.current?.close()}
          >
            <CloseIcon />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
