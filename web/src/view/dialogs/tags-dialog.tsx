/** The tags of a chat: add and remove them. */

import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import { ChatTags } from "../../chats/chat-tags";
import type { ChatRow } from "../../chats/chat-row";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import { CloseIcon, TagIcon } from "../icons";
import { strings } from "../../strings";

/** Characters of a tag. */
const MAX_LENGTH = 64;

export function TagsView({ session, row }: { session: Session; row: ChatRow }) {
  const all = useMemo(() => new ChatTags(session, row), [session, row.id]);
  const field = useRef<HTMLInputElement>(null);
  const status = useSignal("");
  const suggestions = useId();
  const { tags: known } = session.chats;
  useEffect(() => {
    void session.chats.readAllTags();
    return () => all.close();
  }, [all]);
  const tags = all.tags.value;
  const add = async (): Promise<void> => {
    const input = field.current!;
    const tag = input.value.trim();
    input.focus();
    if (tag === "" || !(await all.add(tag))) return;
    input.value = "";
    status.value = strings.tags.added(safeText(tag));
  };
  const remove = async (tag: string): Promise<void> => {
    // Its button will be gone.
    field.current!.focus();
    if (await all.remove(tag)) status.value = strings.tags.removed(safeText(tag));
  };
  return (
    <>
      <div class="dialog-fields">
        <label>
          {strings.tags.new}
          <input
            ref={field}
            class="field"
            dir="auto"
            maxLength={MAX_LENGTH}
            list={suggestions}
            autocomplete="off"
            // No form is submitted: a frame may forbid that.
            onKeyDown={(event) => event.key === "Enter" && !event.isComposing && void add()}
          />
        </label>
        <datalist id={suggestions}>
          {known.known.value
            .filter((tag) => !tags.includes(tag))
            .map((tag) => (
              <option key={tag} value={tag} />
            ))}
        </datalist>
        <button type="button" class="button primary" onClick={() => void add()}>
          <TagIcon />
          {strings.tags.add}
        </button>
      </div>
      <p class="dialog-status quiet-text" role="status">
        {status.value}
      </p>
      {all.problem.value !== null && (
        <p class="bad-text" role="alert">
          {all.problem.value}
        </p>
      )}
      {tags.length === 0 ? (
        <p class="quiet-text">{strings.tags.none}</p>
      ) : (
        <ul class="tags" aria-label={strings.tags.list}>
          {tags.map((tag) => (
            <li key={tag} class="chip">
              <span dir="auto">{safeText(tag)}</span>
              <button
                type="button"
                class="quiet-button icon-only small"
                aria-label={strings.tags.remove(safeText(tag))}
                title={strings.tags.remove(safeText(tag))}
                onClick={() => void remove(tag)}
              >
                <CloseIcon size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
