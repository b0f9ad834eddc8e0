/** Administration: usage by owner and model, and the tokens of the server. */

import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import type { ModelUsage, Token, TokenScope } from "turnledger";
import { ServerTokens } from "../../admin/server-tokens";
import { UsageCount, type Totals } from "../../admin/usage-count";
import { SecondPress } from "../second-press";
import { copyText } from "../../markdown/clipboard";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import { EXPIRIES, timeOf, type Expiry } from "./share-dialog";
import { CopyIcon, KeyIcon } from "../icons";
import { strings } from "../../strings";

/** How many lines of usage are shown. */
const MAX_LINES = 200;

export function AdminView({ session }: { session: Session }) {
  return (
    <>
      {/* First: the list of tokens may be long. */}
      <UsageView session={session} />
      <TokensView session={session} />
    </>
  );
}

function TokensView({ session }: { session: Session }) {
  const tokens = useMemo(() => new ServerTokens(session), [session]);
  const status = useSignal("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    void tokens.load();
    return () => tokens.close();
  }, [tokens]);
  /** Pages without TLS and many frames may not copy: the user copies the selected text. */
  const copy = async (text: string): Promise<void> => {
    const isCopied = await copyText(text);
    status.value = isCopied ? strings.admin.copied : strings.common.textSelected;
    field.current?.focus();
    field.current?.select();
  };
  const created = tokens.created.value;
  return (
    <section>
      <h3>{strings.admin.tokens}</h3>
      <NewTokenForm session={session} tokens={tokens} status={(text) => (status.value = text)} onCreate={copy} />
      {created && (
        <div class="dialog-fields">
          <label>
            {strings.admin.secret}
            <input ref={field} class="field" readOnly dir="ltr" spellcheck={false} value={created.text} />
          </label>
          <button type="button" class="button" onClick={() => void copy(created.text)}>
            <CopyIcon />
            {strings.admin.copy}
          </button>
        </div>
      )}
      <p class="dialog-status quiet-text" role="status">
        {status.value}
      </p>
      {tokens.problem.value !== null && (
        <p class="bad-text" role="alert">
          {tokens.problem.value}
        </p>
      )}
      <TokenList session={session} tokens={tokens} status={(text) => (status.value = text)} />
    </section>
  );
}

interface NewTokenProps {
  readonly session: Session;
  readonly tokens: ServerTokens;
  readonly status: (text: string) => void;
  readonly onCreate: (text: string) => Promise<void>;
}

function NewTokenForm({ session, tokens, status, onCreate }: NewTokenProps) {
  const { me } = session;
  const owner = useSignal(me.owner);
  const name = useSignal("");
  const expiry = useSignal<Expiry>("never");
  // A token cannot grant what it does not have.
  const offered = (Object.keys(strings.admin.scopeNames) as TokenScope[]).filter((each) => me.scopes.includes(each));
  const chosen = useSignal<ReadonlySet<TokenScope>>(new Set(offered.filter((each) => each !== "admin")));
  const isBusy = useSignal(false);
  const create = async (): Promise<void> => {
    if (isBusy.peek()) return;
    const scopes = offered.filter((each) => chosen.peek().has(each));
    if (scopes.length === 0) return status(strings.admin.noScope);
    isBusy.value = true;
    const expiresIn = EXPIRIES[expiry.peek()];
    const text = await tokens.create({
      scopes,
      owner: owner.peek().trim() || me.owner,
      name: name.peek().trim(),
      ...(expiresIn !== null && { expiresIn }),
    });
    isBusy.value = false;
    if (text === null) return;
    name.value = "";
    await onCreate(text);
  };
  // No form is submitted: a frame may forbid that.
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && !event.isComposing) void create();
  };
  return (
    <div class="dialog-fields">
      <label>
        {strings.admin.owner}
        <input
          class="field"
          dir="auto"
          maxLength={200}
          value={owner}
          onInput={(event) => (owner.value = event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
      </label>
      <label>
        {strings.admin.name}
        <input
          class="field"
          dir="auto"
          maxLength={80}
          placeholder={strings.share.namePlaceholder}
          value={name}
          onInput={(event) => (name.value = event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
      </label>
      <fieldset class="dialog-choices">
        <legend>{strings.admin.scopes}</legend>
        {offered.map((each) => (
          <label key={each}>
            <input
              type="checkbox"
              checked={chosen.value.has(each)}
              onChange={({ currentTarget }) => {
                const others = [...chosen.peek()].filter((one) => one !== each);
                chosen.value = new Set(currentTarget.checked ? [...others, each] : others);
              }}
            />
            {strings.admin.scopeNames[each]}
          </label>
        ))}
      </fieldset>
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
        <KeyIcon />
        {strings.admin.create}
      </button>
    </div>
  );
}

interface TokenListProps {
  readonly session: Session;
  readonly tokens: ServerTokens;
  readonly status: (text: string) => void;
}

function TokenList({ session, tokens, status }: TokenListProps) {
  const list = useRef<HTMLUListElement>(null);
  const confirmation = useMemo(() => new SecondPress(), []);
  useEffect(() => () => confirmation.disarm(), [confirmation]);
  const shown = tokens.tokens.value;
  const revoke = async (id: string): Promise<void> => {
    if (!confirmation.press(id)) return status(strings.admin.pressAgain);
    const count = await tokens.revoke(id);
    if (count === null) return;
    status(strings.admin.revoked(count));
    // Its button is gone.
    list.current?.focus();
  };
  if (shown === null || shown.length === 0) {
    return <p class="quiet-text">{shown === null ? strings.common.loading : strings.admin.noTokens}</p>;
  }
  return (
    <>
      <ul ref={list} class="dialog-list" tabIndex={-1} aria-label={strings.admin.tokens}>
        {shown.map((token) => (
          <TokenLine
            key={token.id}
            token={token}
            isOwn={token.id === session.me.id}
            isArmed={confirmation.armed.value === token.id}
            revoke={() => void revoke(token.id)}
          />
        ))}
      </ul>
      {tokens.hasMore.value && (
        <button type="button" class="quiet-button" onClick={() => void tokens.loadMore()}>
          {strings.admin.showMore}
        </button>
      )}
    </>
  );
}

interface TokenLineProps {
  readonly token: Token;
  readonly isOwn: boolean;
  readonly isArmed: boolean;
  readonly revoke: () => void;
}

function TokenLine({ token, isOwn, isArmed, revoke }: TokenLineProps) {
  const { admin, share } = strings;
  const kind = isOwn ? ` (${admin.own})` : token.share === null ? "" : ` (${admin.visitor})`;
  const name = `${safeText(token.name) || admin.unnamed}${kind}`;
  const facts = [
    admin.forOwner(safeText(token.owner)),
    token.scopes.map((each) => admin.scopeNames[each] ?? each).join(", "),
    ...(token.chatScope ? [admin.onlyScope(safeText(token.chatScope))] : []),
    share.createdAt(timeOf(token.createdAt)),
    token.usedAt === null ? admin.unused : admin.usedAt(timeOf(token.usedAt)),
    ...(token.expiresAt === null ? [] : [share.validUntil(timeOf(token.expiresAt))]),
  ];
  const question = isOwn ? admin.confirmOwn : admin.confirmRevoke;
  return (
    <li>
      <div>
        <p dir="auto">{name}</p>
        <p class="quiet-text">{facts.join(" · ")}</p>
      </div>
      <button
        type="button"
        class="button bad small"
        aria-label={isArmed ? question : share.revokeNamed(name)}
        // A double click or a held key does not confirm.
        onClick={(event) => event.detail <= 1 && revoke()}
        onKeyDown={(event) => event.repeat && event.preventDefault()}
      >
        {isArmed ? question : share.revoke}
      </button>
    </li>
  );
}

function UsageView({ session }: { session: Session }) {
  const usage = useMemo(() => new UsageCount(session), [session]);
  const hint = useId();
  useEffect(() => () => usage.stop(), [usage]);
  const { admin } = strings;
  const state = usage.state.value;
  const { turns } = usage.total.value;
  const status = {
    none: "",
    counting: admin.counting(turns),
    stopped: admin.stopped(turns),
    done: admin.counted(turns),
  };
  return (
    <section>
      <h3>{admin.usage}</h3>
      <p id={hint} class="quiet-text">
        {admin.usageHint}
      </p>
      <div class="dialog-actions">
        <button
          type="button"
          class="button"
          aria-describedby={hint}
          onClick={() => (state === "counting" ? usage.stop() : void usage.count())}
        >
          {state === "counting" ? admin.stop : state === "none" ? admin.count : admin.countAgain}
        </button>
        <p class="dialog-status quiet-text" role="status">
          {status[state]}
        </p>
      </div>
      {usage.problem.value !== null && (
        <p class="bad-text" role="alert">
          {usage.problem.value}
        </p>
      )}
      {usage.lines.value.length > 0 && <UsageTable lines={usage.lines.value} total={usage.total.value} />}
    </section>
  );
}

function UsageTable({ lines, total }: { lines: readonly ModelUsage[]; total: Totals }) {
  const { columns, noModel, more, total: sum } = strings.admin;
  return (
    <>
      <div class="usage-scroll" role="group" aria-label={strings.admin.usage} tabIndex={0}>
        <table class="usage-table">
          <thead>
            <tr>
              {Object.entries(columns).map(([name, column]) => (
                <th key={name} scope="col">
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {lines.slice(0, MAX_LINES).map((line) => (
              <tr key={JSON.stringify([line.owner, line.model])}>
                <th scope="row" dir="auto">
                  {safeText(line.owner)}
                </th>
                <td dir="auto">{line.model === null ? <i>{noModel}</i> : safeText(line.model)}</td>
                <Amounts of={line} />
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{sum}</th>
              <td />
              <Amounts of={total} />
            </tr>
          </tfoot>
        </table>
      </div>
      {lines.length > MAX_LINES && <p class="quiet-text">{more(lines.length - MAX_LINES)}</p>}
    </>
  );
}

function Amounts({ of }: { of: Totals }) {
  const { number, bytes } = strings.admin;
  return (
    <>
      <td>{number(of.turns)}</td>
      <td>{number(of.inputTokens)}</td>
      <td>{number(of.outputTokens)}</td>
      <td>{bytes(of.bytes)}</td>
    </>
  );
}
