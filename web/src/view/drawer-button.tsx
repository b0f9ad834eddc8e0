/** The button that shows and hides the chats: at the same place in the sidebar and above the chat. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Drawer } from "./drawer";
import { SidebarIcon } from "./icons";
import { strings } from "../strings";

export function DrawerButton({ drawer, hides = false }: { drawer: Drawer; hides?: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const isShown = drawer.isShown.value;
  const label = hides ? strings.layout.hideChats : strings.layout.showChats;
  // Before the next key.
  useLayoutEffect(() => {
    if (!hides && !isShown && drawer.takesFocus("button")) button.current?.focus();
  }, [isShown]);
  return (
    <button
      ref={button}
      type="button"
      class="quiet-button icon-only"
      aria-label={label}
      title={label}
      aria-expanded={isShown}
      aria-controls="side"
      onClick={() => (hides ? drawer.close() : drawer.open())}
    >
      <SidebarIcon />
    </button>
  );
}
