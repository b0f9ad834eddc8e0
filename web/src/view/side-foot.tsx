/** Below the chats: who one is here, how the page looks, and how to put the list away. */

import type { Session } from "../session/session";
import type { Drawer } from "./drawer";
import { CloseIcon, SidebarIcon } from "./icons";
import type { Theme } from "./theme";
import { ThemeMenu } from "./theme-menu";

export function SideFootView({ session, theme, drawer }: { session: Session; theme: Theme; drawer: Drawer }) {
  const { owner } = session.me;
  return (
    <div class="side-foot">
      <span class="who one-line quiet-text" dir="auto" title={owner ?? undefined}>
        {owner ?? ""}
      </span>
      <ThemeMenu theme={theme} />
      <button
        type="button"
        class="quiet-button icon-only"
        aria-label="Hide the chats"
        title="Hide the chats"
        onClick={() => drawer.close()}
      >
        {drawer.isNarrow.value ? <CloseIcon /> : <SidebarIcon />}
      </button>
    </div>
  );
}
