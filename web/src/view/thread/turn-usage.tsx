/** The model that answered, what the turn used, and when. */

import type { Turn } from "turnledger";
import { turnUsage } from "../../thread/turn-usage";

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function TurnUsageView({ turn }: { turn: Turn }) {
  const { model, summary, details } = turnUsage(turn);
  const at = new Date(turn.committedAt);
  const shown = at.toDateString() === new Date().toDateString() ? TIME.format(at) : DAY.format(at);
  return (
    <span class="usage" title={details}>
      {model && <span class="one-line">{model}</span>}
      {summary && <span>{summary}</span>}
      <time dateTime={at.toISOString()} title={DAY.format(at)}>
        {shown}
      </time>
    </span>
  );
}
