/** Open a new chat, or a search hit at its turn. */

import { effect } from "@preact/signals";
import type { Hit } from "turnledger";
import type { Session } from "../session/session";

type Thread = NonNullable<Session["threads"]["current"]["value"]>;

/** Maximum pages of older turns to search for one. */
const MAX_PAGES = 40;
/** Milliseconds for which the found turn is highlighted. */
const HIGHLIGHT_TIME = 2_000;

/** Show a new chat, unless the current one is new and empty. */
export function openNewChat(session: Session): void {
  if (isNewChat(session)) return;
  releaseFocus();
  session.router.openNew();
}

/** Let the message field of the next chat take the focus: it takes none from another element. */
export function releaseFocus(): void {
  (document.activeElement as HTMLElement | null)?.blur();
}

export function isNewChat({ threads, router, keeps }: Session): boolean {
  const thread = threads.current.peek();
  if (thread === null || router.route.peek()?.kind !== (keeps ? "new" : "unkept")) return false;
  return thread.id.peek() === null && thread.pending.peek().length === 0 && thread.turns.peek().length === 0;
}

/** Open a search hit on its branch, and scroll to its turn. */
export async function openHit(session: Session, { chat, turn, branch }: Hit): Promise<void> {
  session.router.open(chat.id);
  const thread = session.threads.current.peek();
  if (turn === null || thread === null) return;
  await waitAtMost(() => thread.isLoaded.value || thread.problem.value !== null);
  // The turn was edited or undone: switch to the branch that has it, if permitted.
  if (session.mayWrite && (thread.info.peek()?.branch ?? chat.branch) !== branch) {
    try {
      session.chats.put(await session.client.chats.open(chat.id).switch(branch));
    } catch (problem) {
      session.notices.problem(problem);
      return;
    }
    await waitAtMost(() => thread.turns.value.some(({ id }) => id === turn) || thread.info.value?.branch === branch);
  }
  await reveal(session, thread, turn);
}

/** Scroll to a turn, reading older pages until it is there. */
async function reveal(session: Session, thread: Thread, turn: string): Promise<void> {
  for (let page = 0; page < MAX_PAGES && session.threads.current.peek() === thread; page++) {
    if (thread.turns.peek().some(({ id }) => id === turn)) break;
    if (!thread.hasOlder.peek()) return;
    await thread.older();
  }
  await waitAtMost(() => false, 100); // time to render
  const found = document.querySelector<HTMLElement>(`[data-turn="${CSS.escape(turn)}"]`);
  found?.scrollIntoView({ block: "center" });
  found?.classList.add("found");
  setTimeout(() => found?.classList.remove("found"), HIGHLIGHT_TIME);
}

/** Wait until the condition holds, or at most `timeout` milliseconds. */
function waitAtMost(condition: () => boolean, timeout = 10_000): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, timeout);
    const stop = effect(() => {
      if (!condition()) return;
      clearTimeout(timer);
      resolve();
    });
    setTimeout(stop, timeout);
  });
}
