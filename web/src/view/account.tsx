/** Who somebody is here, and the way out. */

import type { Session } from "../session/session";
import { SignOutIcon, UserIcon } from "./icons";
import { Menu } from "./menu";

export function AccountView({ session }: { session: Session }) {
  const { me, ways } = session;
  // Who needs no token has nothing to sign out of.
  if (me.id == null) return <span class="who one-line" />;
  const leaving = {
    label: session.isGuest ? "Leave" : "Sign out",
    icon: <SignOutIcon />,
    hint: "Drafts and unsent messages in this browser go, too.",
    run: () => ways.signOut(),
  };
  return (
    <div class="who">
      <Menu label={`Signed in as ${me.owner}`} class="quiet-button who-button" entries={[leaving]}>
        <UserIcon />
        <span class="one-line" dir="auto">
          {me.owner}
        </span>
      </Menu>
    </div>
  );
}
