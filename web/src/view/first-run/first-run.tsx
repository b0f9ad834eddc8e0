/** The experiments for a new user: large in an empty chat, and a strip above the composer while one runs. */

import { useEffect } from "preact/hooks";
import { EXPERIMENTS, type ExperimentName, type Experiments, type ExperimentStep } from "../../first-run/experiments";
import { copyText } from "../../markdown/clipboard";
import type { Session } from "../../session/session";
import "../../style/first-run.css";
import type { Thread } from "../../thread/thread";
import { CheckIcon, CloseIcon, CopyIcon, ExternalIcon, RetryIcon, StopIcon, TabsIcon } from "../icons";
import { strings } from "../../strings";

const ICONS = { vanish: RetryIcon, stop: StopIcon, tabs: TabsIcon } as const;

interface Props {
  readonly session: Session;
  readonly thread: Thread;
  readonly experiments: Experiments;
}

export function WelcomeView() {
  return (
    <>
      <h2 class="greeting">{strings.firstRun.title}</h2>
      <p class="welcome">{strings.firstRun.intro}</p>
    </>
  );
}

export function ExperimentsView({ thread, experiments }: Omit<Props, "session">) {
  return (
    <section aria-label={strings.firstRun.region}>
      <ul class="experiments">
        {EXPERIMENTS.map((name) => (
          <li key={name}>
            <button type="button" class="experiment" onClick={() => void experiments.start(name, thread)}>
              <ExperimentIcon name={name} isTried={experiments.tried.value.has(name)} />
              <span>
                <strong>{strings.firstRun[name].name}</strong>
                <span class="quiet-text">{strings.firstRun[name].summary}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function FirstRunView({ session, thread, experiments }: Props) {
  const step = experiments.step.value;
  const isShown = experiments.isOpen.value;
  const text = step === null ? null : stepText(step);
  useEffect(() => {
    if (isShown && text !== null) session.notices.announce(text);
  }, [isShown, text]);
  if (!isShown) return null;
  const tried = experiments.tried.value;
  return (
    <aside class="first-run" aria-label={strings.firstRun.region}>
      <div class="first-run-row first-run-names">
        {EXPERIMENTS.map((name) => (
          <button
            key={name}
            type="button"
            class="quiet-button small"
            aria-label={(tried.has(name) ? strings.firstRun.tried : String)(strings.firstRun[name].name)}
            aria-pressed={step?.name === name}
            onClick={() => void experiments.start(name, thread)}
          >
            <ExperimentIcon name={name} isTried={tried.has(name)} size={16} />
            <span class="long">{strings.firstRun[name].name}</span>
            <span class="short">{strings.firstRun[name].short}</span>
          </button>
        ))}
        <button
          type="button"
          class="quiet-button icon-only small first-run-close"
          aria-label={strings.firstRun.close}
          title={strings.firstRun.close}
          onClick={() => experiments.close()}
        >
          <CloseIcon size={16} />
        </button>
      </div>
      {text !== null && <p>{text}</p>}
      {step?.name === "tabs" && step.at === "ready" && <SecondTab session={session} thread={thread} />}
      {tried.size === EXPERIMENTS.length && step?.at === "done" && <p>{strings.firstRun.allTried}</p>}
    </aside>
  );
}

function ExperimentIcon({ name, isTried, size = 20 }: { name: ExperimentName; isTried: boolean; size?: number }) {
  const Icon = ICONS[name];
  return (
    <span class={isTried ? "experiment-icon tried" : "experiment-icon"}>
      {isTried ? <CheckIcon size={size} /> : <Icon size={size} />}
      {isTried && <span class="visually-hidden">{strings.firstRun.tried("")}</span>}
    </span>
  );
}

function stepText({ name, at }: ExperimentStep): string {
  return (strings.firstRun[name].steps as Readonly<Record<string, string>>)[at] ?? "";
}

/** A link to this chat; and its address, where a frame may block links. */
function SecondTab({ session, thread }: { session: Session; thread: Thread }) {
  const address = new URL(`#${thread.id.value}`, location.href).href;
  const isFramed = window !== window.parent;
  return (
    <div class="first-run-row">
      <a class="button small" href={address} target="_blank" rel="noopener">
        <ExternalIcon size={16} /> {strings.firstRun.openSecondTab}
      </a>
      {isFramed && (
        <>
          <span class="quiet-text">{strings.firstRun.ifNothingOpens}</span>
          <button
            type="button"
            class="quiet-button small"
            onClick={() => void copy(address, session)}
          >
            <CopyIcon size={16} /> {strings.firstRun.copyAddress}
          </button>
        </>
      )}
    </div>
  );
}

async function copy(address: string, { notices }: Session): Promise<void> {
  // Pages without TLS and many frames may not copy: show the address to select.
  if (await copyText(address)) notices.news(strings.firstRun.addressCopied);
  else notices.news(address, { stays: undefined });
}
