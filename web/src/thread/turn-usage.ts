/** Tokens and time that a turn used, if its runner reports them. */

import type { Turn } from "turnledger";
import { safeText } from "../markdown/safe-text";
import { strings } from "../strings";

interface TurnUsage {
  readonly model: string | null;
  /** In short, as `1,204 tokens · 3.2 s`. */
  readonly summary: string;
  readonly details: string;
}

export function turnUsage({ details, createdAt, committedAt }: Turn): TurnUsage {
  const usage = (details["usage"] ?? {}) as Record<string, unknown>;
  const input = count(usage["prompt_tokens"] ?? usage["input_tokens"]);
  const output = count(usage["completion_tokens"] ?? usage["output_tokens"]);
  const total = count(usage["total_tokens"]) ?? (input !== null && output !== null ? input + output : null);
  const time = Math.max(0, committedAt - createdAt);
  const duration = time >= 100 ? formatDuration(time) : "";
  const tokens = total === null ? "" : strings.turn.tokens(total);
  const parts = [
    ...(input === null ? [] : [strings.turn.inputTokens(input)]),
    ...(output === null ? [] : [strings.turn.outputTokens(output)]),
  ];
  const counts = [tokens, parts.join(", ")].filter(Boolean).join(": ");
  return {
    model: typeof details["model"] === "string" ? safeText(details["model"]) : null,
    summary: [tokens, duration].filter(Boolean).join(" · "),
    details: [counts, duration && strings.turn.took(duration)].filter(Boolean).join(". "),
  };
}

/** Format milliseconds; up to a minute as seconds with this many decimals. */
export function formatDuration(milliseconds: number, digits = 1): string {
  const seconds = milliseconds / 1_000;
  if (seconds < 60) return strings.turn.seconds(seconds, digits);
  const whole = Math.round(seconds);
  return strings.turn.minutes(Math.floor(whole / 60), whole % 60);
}

function count(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
