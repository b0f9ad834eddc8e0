/** The footer of the sidebar: the user, the theme, and the settings. */

import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import { SettingsIcon, SignOutIcon, UserIcon } from "../icons";
import { Menu } from "../menu";
import type { Theme } from "../theme";
import { ThemeMenu } from "../theme-menu";
import { strings } from "../../strings";

export function SidebarFooter({ session, theme }: { session: Session; theme: Theme }) {
  const owner = safeText(session.me.owner);
  // Users without a token have nothing to sign out of; guests have their own way to leave.
  const maySignOut = session.me.id != null && !session.isGuest;
  return (
    <div class="side-foot" role="region" aria-label={strings.account.region}>
      {maySignOut ? (
        <Menu
          label={strings.account.signedInAs(owner)}
          class="quiet-button owner"
          entries={[{ label: strings.account.signOut, icon: <SignOutIcon />, run: () => session.controls.signOut() }]}
        >
          <UserIcon />
          <span class="one-line" dir="auto">
            {owner}
          </span>
        </Menu>
      ) : (
        <span class="owner one-line quiet-text" dir="auto" title={owner}>
          {owner}
        </span>
      )}
      <ThemeMenu theme={theme} />
      <button
        type="button"
        class="quiet-button icon-only"
        aria-label={strings.settings.title}
        title={strings.settings.title}
        aria-haspopup="dialog"
        onClick={() => (session.dialog.value = { kind: "settings" })}
      >
        <SettingsIcon />
      </button>
    </div>
  );
}
