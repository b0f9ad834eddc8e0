/** The model that answered, what the turn used, and when. */

import { computed } from "@preact/signals";
import type { Turn } from "turnledger";
import { turnUsage } from "../../thread/turn-usage";
import { locale } from "../../strings";

const formats = computed(() => ({
  time: new Intl.DateTimeFormat(locale(), { hour: "2-digit", minute: "2-digit" }),
  day: new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }),
}));

export function TurnUsageView({ turn }: { turn: Turn }) {
  const { model, summary, details } = turnUsage(turn);
  const at = new Date(turn.committedAt);
  const { time, day } = formats.value;
  const shown = (at.toDateString() === new Date().toDateString() ? time : day).format(at);
  return (
    <span class="usage" title={details}>
      {model && <span class="one-line">{model}</span>}
      {summary && <span>{summary}</span>}
      <time dateTime={at.toISOString()} title={day.format(at)}>
        {shown}
      </time>
    </span>
  );
}
