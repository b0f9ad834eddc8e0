/** Settings: how the page looks, how it is written in, and all chats as a file. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { ImportReport } from "turnledger";
import type { AllChats } from "../../chats/all-chats";
import { keyLabels } from "../../composer/shortcuts";
import { safeText } from "../../markdown/safe-text";
import type { Session } from "../../session/session";
import type { StoredChoice } from "../../session/stored-choice";
import { download } from "../header/export-file";
import { DownloadIcon, KeyIcon, TrashIcon, UploadIcon } from "../icons";
import type { Language } from "../../strings/language";
import type { Theme } from "../theme";
import { withCode } from "../markdown/code-words";
import { LANGUAGES, strings } from "../../strings";

/** How many lines of a report are shown. */
const MAX_REPORTS = 50;

interface SettingsProps {
  readonly session: Session;
  readonly theme: Theme;
  readonly language: Language;
}

export function SettingsView({ session, theme, language }: SettingsProps) {
  const { shortcuts, mayRun } = session;
  const { settings } = strings;
  const languages = { browser: settings.browserLanguage, ...LANGUAGES };
  const sendKeys = { Enter: keyLabels("Enter").join("+"), "Mod+Enter": keyLabels("Mod+Enter").join("+") };
  return (
    <>
      <section class="settings">
        <ChoiceField label={settings.language} choice={language.choice} names={languages} />
        <ChoiceField label={strings.account.theme} choice={theme.choice} names={strings.account.themes} />
        <ChoiceField label={settings.textSize} choice={theme.textSize} names={settings.textSizes} />
        {mayRun && <ChoiceField label={settings.sendKey} choice={shortcuts.sendKey} names={sendKeys} />}
        <ChoiceField label={strings.shortcuts.title} choice={shortcuts.mode} names={settings.shortcutModes} />
        {mayRun && <ModelField session={session} />}
      </section>
      {session.mayAdminister && <AdminEntry session={session} />}
      {session.me.id == null && (
        <section>
          <h3>{strings.admin.title}</h3>
          <p class="quiet-text">{withCode(strings.admin.tokenless)}</p>
        </section>
      )}
      {session.keeps && session.mayRead && <AllChatsView all={session.allChats} mayWrite={session.mayWrite} />}
    </>
  );
}

function AdminEntry({ session }: { session: Session }) {
  return (
    <section>
      <h3>{strings.admin.title}</h3>
      <div class="dialog-actions">
        <button
          type="button"
          class="button"
          aria-haspopup="dialog"
          onClick={() => (session.dialog.value = { kind: "admin" })}
        >
          <KeyIcon />
          {strings.admin.open}
        </button>
      </div>
    </section>
  );
}

interface ChoiceProps<Value extends string> {
  readonly label: string;
  readonly choice: StoredChoice<Value>;
  readonly names: Readonly<Record<Value, string>>;
}

function ChoiceField<Value extends string>({ label, choice, names }: ChoiceProps<Value>) {
  // In the order of the names: the default need not be the first.
  const values = Object.keys(names) as Value[];
  return (
    <label>
      <span>{label}</span>
      <select
        class="field"
        value={choice.value}
        onChange={(event) => choice.choose(event.currentTarget.value as Value)}
      >
        {values.map((each) => (
          <option key={each} value={each}>
            {names[each]}
          </option>
        ))}
      </select>
    </label>
  );
}

function ModelField({ session }: { session: Session }) {
  const names = session.models.value.map(({ id }) => id);
  if (names.length === 0) return null;
  return (
    <label>
      <span>{strings.settings.model}</span>
      <select
        class="field"
        value={session.model.value ?? ""}
        onChange={(event) => session.choose(event.currentTarget.value)}
      >
        {names.map((each) => (
          <option key={each} value={each}>
            {safeText(each)}
          </option>
        ))}
      </select>
    </label>
  );
}

function AllChatsView({ all, mayWrite }: { all: AllChats; mayWrite: boolean }) {
  const file = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => all.reset(), [all]);
  const isBusy = all.isBusy.value;
  const save = async (): Promise<void> => {
    const exported = await all.export();
    if (exported) download(exported, `${strings.data.fileName}.jsonl`);
  };
  return (
    <section>
      <h3>{strings.data.title}</h3>
      <div class="dialog-actions">
        <button type="button" class="button" aria-disabled={isBusy} onClick={() => void save()}>
          <DownloadIcon />
          {strings.data.export}
        </button>
        {mayWrite && (
          <button type="button" class="button" aria-disabled={isBusy} onClick={() => !isBusy && file.current?.click()}>
            <UploadIcon />
            {strings.data.import}
          </button>
        )}
        {mayWrite && all.condemned.value === null && (
          <button type="button" class="button bad" aria-disabled={isBusy} onClick={() => void all.askToDelete()}>
            <TrashIcon />
            {strings.data.deleteAll}
          </button>
        )}
      </div>
      <input
        ref={file}
        type="file"
        hidden
        aria-label={strings.data.import}
        accept=".jsonl,.ndjson,application/x-ndjson"
        onChange={({ currentTarget }) => {
          const chosen = currentTarget.files?.[0];
          if (chosen) void all.import(chosen);
          currentTarget.value = ""; // the same file may be chosen again
        }}
      />
      <ConfirmView all={all} />
      <p class="dialog-status" role="status">
        {all.status.value}
      </p>
      {all.problem.value !== null && (
        <p class="bad-text" role="alert">
          {all.problem.value}
        </p>
      )}
      <ReportView reports={all.reports.value} />
    </section>
  );
}

/** The question before all chats are deleted. */
function ConfirmView({ all }: { all: AllChats }) {
  const group = useRef<HTMLDivElement>(null);
  const count = all.condemned.value?.length ?? 0;
  const isAsking = count > 0;
  // Before the next key.
  useLayoutEffect(() => {
    if (isAsking) group.current?.querySelector("button")?.focus();
  }, [isAsking]);
  if (!isAsking) return null;
  /** The buttons are gone afterwards. */
  const leave = (run: () => void): void => {
    group.current?.closest("dialog")?.querySelector("button")?.focus();
    run();
  };
  return (
    <div ref={group} class="card bad dialog-confirm" role="group" aria-label={strings.data.deleteAll}>
      <p role="alert">{strings.data.confirmDelete(count)}</p>
      <button type="button" class="button" onClick={() => leave(() => all.reset())}>
        {strings.data.keep}
      </button>
      <button
        type="button"
        class="button bad"
        // A double click or a held key does not confirm.
        onClick={(event) => event.detail <= 1 && leave(() => void all.delete())}
        onKeyDown={(event) => event.repeat && event.preventDefault()}
      >
        {strings.data.delete(count)}
      </button>
    </div>
  );
}

function ReportView({ reports }: { reports: readonly ImportReport[] }) {
  const counts = new Map<ImportReport["did"], number>();
  for (const { did } of reports) counts.set(did, (counts.get(did) ?? 0) + 1);
  counts.delete("imported"); // the status has their number
  const problems = reports.filter(({ why }) => why);
  if (counts.size === 0) return null;
  return (
    <>
      <ul class="dialog-counts">
        {[...counts].map(([did, count]) => (
          <li key={did}>{strings.data.outcomes[did](count)}</li>
        ))}
      </ul>
      {problems.length > 0 && (
        <details>
          <summary>{strings.data.details}</summary>
          <ul class="dialog-counts">
            {problems.slice(0, MAX_REPORTS).map(({ line, why }, index) => (
              <li key={index}>{strings.data.line(line, safeText(why ?? ""))}</li>
            ))}
          </ul>
          {problems.length > MAX_REPORTS && <p>{strings.data.moreLines(problems.length - MAX_REPORTS)}</p>}
        </details>
      )}
    </>
  );
}
