/** The turns of a chat, and what is on its way. */

import { textOf, wordsOf, type Turn } from "turnledger";
import { wordsOfProblem } from "../../session/notices";
import type { Session } from "../../session/session";
import type { Running } from "../../thread/running";
import type { ShownThread } from "../../thread/shown-thread";
import { MarkdownView } from "../markdown/markdown";

export function ThreadView({ thread }: { session: Session; thread: ShownThread }) {
  const problem = thread.problem.value;
  const failed = thread.failed.value;
  return (
    <div class="thread" role="log" aria-label="Messages">
      {problem !== null && <p role="alert">{wordsOfProblem(problem)}</p>}
      {thread.hasOlder.value && (
        <button type="button" onClick={() => void thread.older()}>
          Show what was said before
        </button>
      )}
      {thread.turns.value.map((turn) => (
        <TurnView key={turn.id} turn={turn} />
      ))}
      {thread.running.value.map((running) => (
        <RunningView key={running.name} running={running} />
      ))}
      {failed && <p role="alert">{failed.message}</p>}
    </div>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  return (
    <article class="turn" data-turn={turn.id} data-kind={turn.kind}>
      <div class="message user" dir="auto">
        {turn.input.map(wordsOf).join("\n")}
      </div>
      <div class="message assistant">
        <MarkdownView text={textOf(turn.output)} />
      </div>
    </article>
  );
}

function RunningView({ running }: { running: Running }) {
  return (
    <article class="turn running" data-state={running.state.value}>
      <div class="message user" dir="auto">
        {running.input.value.map(wordsOf).join("\n")}
      </div>
      <div class="message assistant">
        <MarkdownView text={textOf(running.items.value)} />
        <MarkdownView text={running.text} isGrowing />
      </div>
    </article>
  );
}
