/** The name of a visitor by share link, what they may do, and until when. */

import "../style/sign-in.css";
import { safeText } from "../markdown/safe-text";
import type { Session } from "../session/session";

/** Null for users with their own token. */
export function VisitorBanner({ session }: { session: Session }) {
  if (!session.isGuest && !session.isReader) return null;
  return (
    <div class="strip" role="note" aria-label="Your visit">
      <p title={safeText(session.me.owner) || undefined}>{safeText(wordsOfVisit(session))}</p>
      <button type="button" class="quiet-button small" onClick={() => session.controls.signOut()}>
        Leave
      </button>
    </div>
  );
}

function wordsOfVisit({ isReader, me }: Session): string {
  const until = me.expiresAt == null ? "" : ` until ${timeOf(me.expiresAt)}`;
  if (isReader) return `You can read this chat${until}.`;
  const where = me.name || me.chatScope;
  const models = me.models?.length ? ` You may ask ${me.models.join(", ")}.` : "";
  // Guests have long random names; the end tells them apart.
  const name = me.owner.replace(/^(guest_).*(.{6})$/, "$1…$2");
  return `You are ${name}, a guest${where ? ` of ${where}` : ""}${until}.${models}`;
}

function timeOf(at: number): string {
  const isToday = new Date(at).toDateString() === new Date().toDateString();
  const { format } = new Intl.DateTimeFormat(undefined, {
    timeStyle: "short",
    ...(!isToday && { dateStyle: "medium" }),
  });
  return format(at);
}
