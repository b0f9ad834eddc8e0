/** Share a chat: create a link, copy it, and revoke those that exist. */

import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Share } from "turnledger";
import { ChatLinks } from "../../chats/chat-links";
import type { ChatRow } from "../../chats/chat-row";
import { copyText } from "../../markdown/clipboard";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import { CopyIcon, LinkIcon } from "../icons";
import { locale, strings } from "../../strings";

const DAY = 86_400;
/** Seconds that a link or a token is valid; null: until it is revoked. */
export const EXPIRIES = { never: null, day: DAY, week: 7 * DAY, month: 30 * DAY } as const;

export type Expiry = keyof typeof EXPIRIES;

export function ShareView({ session, row }: { session: Session; row: ChatRow }) {
  const links = useMemo(() => new ChatLinks(session, row), [session, row.id, row.scope]);
  const kind = useSignal<Share["kind"]>("chat");
  const status = useSignal("");
  const address = useRef<HTMLInputElement>(null);
  useEffect(() => {
    void links.load();
    return () => links.close();
  }, [links]);
  /** Pages without TLS and many frames may not copy: the user copies the selected text. */
  const copy = async (text: string): Promise<void> => {
    const isCopied = await copyText(text);
    status.value = isCopied ? strings.share.copied : strings.common.textSelected;
    address.current?.focus();
    address.current?.select();
  };
  const created = links.created.value;
  return (
    <>
      <p>
        {kind.value === "chat" ? strings.share.forReaders : strings.share.forGuests(safeText(links.guestScope))}
      </p>
      <NewLinkForm links={links} kind={kind} mayInvite={session.mayAdminister && session.mayRun} onCreate={copy} />
      {created && (
        <div class="dialog-fields">
          <label>
            {strings.share.address}
            <input ref={address} class="field" readOnly dir="ltr" value={created.address} />
          </label>
          <button type="button" class="button" onClick={() => void copy(created.address)}>
            <CopyIcon />
            {strings.share.copy}
          </button>
        </div>
      )}
      <p class="dialog-status quiet-text" role="status">
        {status.value}
      </p>
      {links.problem.value !== null && (
        <p class="bad-text" role="alert">
          {links.problem.value}
        </p>
      )}
      <LinkList links={links} onRevoke={() => (status.value = strings.share.revoked)} />
    </>
  );
}

interface NewLinkProps {
  readonly links: ChatLinks;
  readonly kind: Signal<Share["kind"]>;
  /** Whether it may create links for guests. */
  readonly mayInvite: boolean;
  readonly onCreate: (address: string) => Promise<void>;
}

function NewLinkForm({ links, kind, mayInvite, onCreate }: NewLinkProps) {
  const name = useSignal("");
  const expiry = useSignal<Expiry>("never");
  const isBusy = useSignal(false);
  const create = async (): Promise<void> => {
    if (isBusy.peek()) return;
    isBusy.value = true;
    const expiresIn = EXPIRIES[expiry.peek()];
    const given = name.peek().trim();
    const options = { ...(given && { name: given }), ...(expiresIn !== null && { expiresIn }) };
    const address = await links.create(kind.peek(), options);
    isBusy.value = false;
    if (address === null) return;
    name.value = "";
    await onCreate(address);
  };
  return (
    <div class="dialog-fields">
      {mayInvite && (
        <label class="wide">
          {strings.share.visitorsMay}
          <select
            class="field"
            value={kind.value}
            onChange={(event) => (kind.value = event.currentTarget.value as Share["kind"])}
          >
            <option value="chat">{strings.share.kinds.chat}</option>
            <option value="scope">{strings.share.kinds.scope}</option>
          </select>
        </label>
      )}
      <label>
        {strings.share.name}
        <input
          class="field"
          dir="auto"
          maxLength={80}
          placeholder={strings.share.namePlaceholder}
          value={name}
          onInput={(event) => (name.value = event.currentTarget.value)}
          // No form is submitted: a frame may forbid that.
          onKeyDown={(event) => event.key === "Enter" && !event.isComposing && void create()}
        />
      </label>
      <label>
        {strings.share.expiry}
        <select
          class="field"
          value={expiry.value}
          onChange={(event) => (expiry.value = event.currentTarget.value as Expiry)}
        >
          {(Object.keys(EXPIRIES) as Expiry[]).map((each) => (
            <option key={each} value={each}>
              {strings.share.expiries[each]}
            </option>
          ))}
        </select>
      </label>
      <button type="button" class="button primary" aria-disabled={isBusy.value} onClick={() => void create()}>
        <LinkIcon />
        {strings.share.create}
      </button>
    </div>
  );
}

function LinkList({ links, onRevoke }: { links: ChatLinks; onRevoke: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const shown = links.links.value;
  const revoke = async (id: string): Promise<void> => {
    if (!(await links.revoke(id))) return;
    onRevoke();
    // Its button is gone.
    heading.current?.focus();
  };
  return (
    <section>
      <h3 ref={heading} tabIndex={-1}>
        {strings.share.links}
      </h3>
      {shown === null || shown.length === 0 ? (
        <p class="quiet-text">{shown === null ? strings.common.loading : strings.share.none}</p>
      ) : (
        <ul class="dialog-list">
          {shown.map((share) => (
            <LinkLine key={share.id} share={share} revoke={() => void revoke(share.id)} />
          ))}
        </ul>
      )}
    </section>
  );
}

function LinkLine({ share, revoke }: { share: Share; revoke: () => void }) {
  const name = safeText(share.name) || strings.share.unnamed;
  const facts = [
    ...(share.kind === "scope" ? [strings.share.guestLink] : []),
    strings.share.createdAt(timeOf(share.createdAt)),
    strings.share.visitors(share.uses, share.maxUses),
    ...(share.expiresAt === null ? [] : [strings.share.validUntil(timeOf(share.expiresAt))]),
  ];
  return (
    <li>
      <div>
        <p dir="auto">{name}</p>
        <p class="quiet-text">{facts.join(" · ")}</p>
      </div>
      <button type="button" class="button bad small" aria-label={strings.share.revokeNamed(name)} onClick={revoke}>
        {strings.share.revoke}
      </button>
    </li>
  );
}

export function timeOf(at: number): string {
  return new Date(at).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" });
}
