/** The name of a visitor by share link, what they may do, and until when. */

import "../style/sign-in.css";
import { safeText } from "../markdown/safe-text";
import type { Session } from "../session/session";
import { locale, strings } from "../strings";

/** Null for users with their own token. */
export function VisitorBanner({ session }: { session: Session }) {
  if (!session.isGuest && !session.isReader) return null;
  return (
    <div class="strip" role="note" aria-label={strings.visit.region}>
      <p title={safeText(session.me.owner) || undefined}>{safeText(visitText(session))}</p>
      <button type="button" class="quiet-button small" onClick={() => session.controls.signOut()}>
        {strings.visit.leave}
      </button>
    </div>
  );
}

function visitText({ isReader, me }: Session): string {
  const until = me.expiresAt == null ? null : timeOf(me.expiresAt);
  if (isReader) return strings.visit.reader(until);
  // Guests have long random names; the end tells them apart.
  const name = me.owner.replace(/^(guest_).*(.{6})$/, "$1…$2");
  const guest = strings.visit.guest(name, me.name || me.chatScope || null, until);
  return me.models?.length ? `${guest} ${strings.visit.models(me.models)}` : guest;
}

function timeOf(at: number): string {
  const isToday = new Date(at).toDateString() === new Date().toDateString();
  const { format } = new Intl.DateTimeFormat(locale(), {
    timeStyle: "short",
    ...(!isToday && { dateStyle: "medium" }),
  });
  return format(at);
}
