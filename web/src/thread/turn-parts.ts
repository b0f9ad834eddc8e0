/** The items of a turn for display: text, tool steps with results, reasoning, images. */

import type { Item, ItemPart, Turn } from "turnledger";
import { safeText } from "../markdown/safe-text";
import { strings } from "../strings";

/** The state of a tool step. `unknown`: it was started, and its outcome is unknown. */
export type StepState = "running" | "done" | "failed" | "not started" | "unknown" | "not answered";

export type TurnPart =
  | { readonly kind: "text"; readonly text: string; readonly isCutOff: boolean }
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "picture"; readonly url: string; readonly alt: string }
  | { readonly kind: "file"; readonly name: string }
  | {
      readonly kind: "step";
      readonly name: string;
      readonly input: string;
      readonly output: string | null;
      readonly pictures: readonly string[];
      readonly state: StepState;
    }
  /** From the system or the ledger, not from the user or the model. */
  | { readonly kind: "note"; readonly text: string }
  /** Unknown types, from later versions or other programs. */
  | { readonly kind: "other"; readonly type: string; readonly json: string };

/** Results that the ledger writes in place of a tool, word for word: a tool's own result may begin the same way. */
const LEDGER_RESULTS: ReadonlyMap<string, StepState> = new Map([
  ["Not started: the turn ended before this call was run. It has had no effect.", "not started"],
  [
    "Started, outcome unknown: the turn ended before a result was recorded. The call may or may not have " +
      "taken effect. Find out before calling it again.",
    "unknown",
  ],
  ["Not answered: the conversation moved on before a result was given for this call.", "not answered"],
]);

interface TurnParts {
  readonly input: readonly TurnPart[];
  readonly output: readonly TurnPart[];
}

/** The input and output of a turn, without hidden items. Results in the next turn's input are shown at their calls. */
export function partsOf(turn: Turn, before?: Turn, after?: Turn): TurnParts {
  const hidden = hiddenPlaces(turn);
  const shown = (items: readonly Item[], offset: number): Item[] => items.filter((_, at) => !hidden.has(at + offset));
  const calledBefore = openCalls(before?.output ?? []);
  const input = shown(turn.input, 0).filter((item) => !isResult(item) || !calledBefore.has(callId(item)));
  const later = openCalls(turn.output).size ? (after?.input ?? []).filter(isResult) : [];
  const output = shown(turn.output, turn.input.length);
  return { input: partsOfItems(input, [], false), output: partsOfItems(output, later, false) };
}

/** Hiding a call hides its result, and the reverse. */
function hiddenPlaces({ hidden, input, output }: Turn): ReadonlySet<number> {
  if (hidden.length === 0) return new Set();
  const items = [...input, ...output];
  const all = new Set(hidden);
  for (const [call, result] of pairs(items)) {
    const halves = [items.indexOf(call), items.indexOf(result)];
    if (halves.some((index) => all.has(index))) for (const index of halves) all.add(index);
  }
  return all;
}

/** Whether the model ended its answer without writing anything. */
export function isEmptyAnswer({ kind, output }: Turn): boolean {
  const isWritten = partsOfItems(output, [], false).some((part) => part.kind !== "reasoning");
  return kind === "completed" && output.length > 0 && !isWritten;
}

/** The parts of a running turn: calls without a result are running. */
export function runningParts(items: readonly Item[]): readonly TurnPart[] {
  return partsOfItems(items, [], true);
}

/** The step of a call whose arguments are streaming in. */
export function openStep(call: Item): Extract<TurnPart, { kind: "step" }> {
  return step(call, null, true);
}

export function inputParts(input: readonly Item[]): readonly TurnPart[] {
  return partsOfItems(input, [], false);
}

export function markdownOf(parts: readonly TurnPart[]): string {
  return parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])).join("\n\n");
}

function partsOfItems(items: readonly Item[], later: readonly Item[], isRunning: boolean): TurnPart[] {
  const results = pairs([...items, ...later]);
  const paired = new Set(results.values());
  return items.flatMap((item): TurnPart[] => {
    if (item.type === "message") return message(item);
    if (item.type === "reasoning") return reasoning(item);
    if (isResult(item)) return paired.has(item) ? [] : [step(null, item, isRunning)];
    if (isCall(item)) return [step(item, results.get(item) ?? null, isRunning)];
    return [other(item)];
  });
}

/** The result of each call: ids repeat, so the next result with the id counts. */
export function pairs(items: readonly Item[]): ReadonlyMap<Item, Item> {
  const open = new Map<unknown, Item>();
  const found = new Map<Item, Item>();
  for (const item of items) {
    if (isResult(item)) {
      const call = open.get(callId(item));
      if (call) found.set(call, item);
      open.delete(callId(item));
    } else if (isCall(item)) open.set(callId(item), item);
  }
  return found;
}

function openCalls(items: readonly Item[]): ReadonlySet<unknown> {
  const open = new Set<unknown>();
  for (const item of items) {
    if (isResult(item)) open.delete(callId(item));
    else if (isCall(item)) open.add(callId(item));
  }
  return open;
}

function callId(item: Item): unknown {
  return item["call_id"];
}

function isResult({ type }: Item): boolean {
  return /_call_output$/.test(type);
}

function isCall(item: Item): boolean {
  return /_call$/.test(item.type);
}

function message(item: Item): TurnPart[] {
  const { role, content } = item;
  if (role === "system" || role === "developer") {
    const text = typeof content === "string" ? content : partsIn(content).map((part) => part.text ?? "").join("");
    return text ? [{ kind: "note", text }] : [];
  }
  if (typeof content === "string") return text(content, item);
  const parts: TurnPart[] = [];
  for (const part of partsIn(content)) {
    const words = part.text ?? part["refusal"];
    if (typeof words === "string") {
      const last = parts.at(-1);
      // Adjacent texts are joined: a list or a code block may continue.
      if (last?.kind === "text") parts[parts.length - 1] = { ...last, text: last.text + words };
      else parts.push(...text(words, item));
    } else parts.push(...picture(part));
  }
  return parts;
}

function text(value: string, { status }: Item): TurnPart[] {
  return value ? [{ kind: "text", text: value, isCutOff: status === "incomplete" }] : [];
}

function picture(part: ItemPart): TurnPart[] {
  const image = part["image_url"];
  const url = typeof image === "string" ? image : (image as { url?: unknown } | null | undefined)?.url;
  if (typeof url === "string") return [{ kind: "picture", url, alt: strings.thread.image }];
  if (typeof part["b64_json"] === "string") {
    return [{ kind: "picture", url: `data:image/png;base64,${part["b64_json"]}`, alt: strings.thread.image }];
  }
  if (!/file|audio/.test(part.type)) return [other(part)];
  return [{ kind: "file", name: safeText(String(part["filename"] ?? String(part.type).replace(/^input_/, ""))) }];
}

function reasoning(item: Item): TurnPart[] {
  const rows = [item["summary"], item.content].flatMap(partsIn);
  const words = rows.map((row) => row.text ?? "").filter(Boolean).join("\n\n");
  return words ? [{ kind: "reasoning", text: words }] : [];
}

function step(call: Item | null, result: Item | null, isRunning: boolean): Extract<TurnPart, { kind: "step" }> {
  const kind = (call ?? result)?.type.replace(/_call(_output)?$/, "") ?? "";
  const input = firstOf(call, ["arguments", "input", "action", "queries", "code"]) ?? "";
  const output = result ? (result["output"] ?? "") : firstOf(call, ["result", "results", "outputs"]);
  return {
    kind: "step",
    name: safeText(String(call?.["name"] ?? (kind.replaceAll("_", " ") || strings.tools.result))),
    input: asText(input),
    output: output === null ? null : asText(output),
    pictures: partsIn(output).flatMap(picturesOf),
    state: stateOf(call, result, output, isRunning),
  };
}

/** The first of these fields that has a value. */
function firstOf(item: Item | null, fields: readonly string[]): unknown {
  const found = fields.find((field) => item?.[field] != null);
  return found === undefined ? null : item?.[found];
}

/** Return the parts of a list; none for anything else. */
function partsIn(value: unknown): ItemPart[] {
  if (!Array.isArray(value)) return [];
  return value.filter((part): part is ItemPart => typeof part === "object" && part !== null);
}

function picturesOf(part: ItemPart): string[] {
  return picture(part).flatMap((each) => (each.kind === "picture" ? [each.url] : []));
}

function stateOf(call: Item | null, result: Item | null, output: unknown, isRunning: boolean): StepState {
  if (result) {
    return LEDGER_RESULTS.get(asText(output)) ?? (result["status"] === "failed" ? "failed" : "done");
  }
  if (call?.["status"] === "failed") return "failed";
  // A tool that the model's server ran has no separate result.
  if (output !== null || (call && !["function_call", "custom_tool_call"].includes(call.type))) return "done";
  return isRunning ? "running" : "not answered";
}

/** A value as text; JSON is indented. */
function asText(value: unknown): string {
  if (Array.isArray(value) && value.every((part) => typeof (part as ItemPart | null)?.type === "string")) {
    return value.map((part: ItemPart) => part.text ?? "").filter(Boolean).join("\n");
  }
  if (typeof value !== "string") return JSON.stringify(value ?? null, null, 2);
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    const read: unknown = JSON.parse(value);
    const bare = (text: string): string => text.replace(/\s+/g, "");
    // Parsing changes large numbers and duplicate names.
    return bare(JSON.stringify(read)) === bare(value) ? JSON.stringify(read, null, 2) : value;
  } catch {
    return value;
  }
}

function other(item: { readonly type: string }): TurnPart {
  return { kind: "other", type: safeText(String(item.type)), json: JSON.stringify(item, null, 2) };
}
