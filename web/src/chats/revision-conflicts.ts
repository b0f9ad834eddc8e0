/** Change a part of a chat that is replaced as a whole, and keep what others have changed in it. */

import { errors, type Chat, type ChatChanges, type ChatInfo } from "turnledger";

/** How often a change is repeated that others preceded. */
const MAX_CONFLICTS = 5;

/** Apply `change` to the current state of a chat, of which `known` may be an older one. */
export async function updateChat<Field extends keyof ChatInfo>(
  chat: Chat,
  known: Pick<ChatInfo, Field | "revision">,
  change: (current: Pick<ChatInfo, Field | "revision">) => ChatChanges,
): Promise<ChatInfo> {
  for (let [current, tries] = [known, 1]; ; tries++) {
    try {
      return await chat.update(change(current), { revision: current.revision });
    } catch (problem) {
      const changed = problem instanceof errors.RevisionConflict ? problem.details.chat : undefined;
      if (changed === undefined || tries === MAX_CONFLICTS) throw problem;
      current = changed;
    }
  }
}
