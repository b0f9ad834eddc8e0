/** The verbs of a driver for the scenarios of tests/clients, carried out by the client. The README there describes the
 * protocol. */

import {
  Client,
  textOf,
  TurnledgerError,
  TurnStream,
  wordsOf,
  type Answer,
  type Chat,
  type Change,
  type Hit,
  type Turn,
  type TurnEvent,
} from "../src/index.js";
import { snake } from "../src/field-names.js";

type Fields = Record<string, any>;
export interface Command {
  id: number;
  do: string;
  on?: string;
  with?: Fields;
  as?: string;
}
/** A command as its verb receives it: the object, the arguments, how to name a new object, and how to report events. */
interface Call {
  on: any;
  given: Fields;
  signal: AbortSignal;
  make(thing: unknown): void;
  report(event: unknown): void;
  events: unknown[];
}

const named = new Map<string, unknown>();
const running = new Map<number, AbortController>();

const turnOf = (turn: Turn): object => ({
  id: turn.id,
  number: turn.number,
  kind: turn.kind,
  input: turn.input
    .filter((item) => item.role === "user")
    .map(wordsOf)
    .join("\n"),
  text: textOf(turn.output),
});
const answerOf = (answer: Answer): object => ({
  turn: turnOf(answer.turn),
  chat: answer.chat.id,
  branch: answer.branch,
  state: answer.state,
  is_replayed: answer.isReplayed,
  text: answer.text,
});
const hitOf = ({ chat, turn, snippet, marks }: Hit): object => ({ chat: chat.id, turn, snippet, marks });
const changeOf = (change: Change): object => ({ chat: null, turn: null, ...change });
const milliseconds = (seconds: Fields = {}): Fields =>
  Object.fromEntries(Object.entries(seconds).map(([name, value]) => [name, name === "times" ? value : value * 1000]));

function eventOf(event: TurnEvent): unknown[] {
  if (event.type === "turn.restarted") return [event.type, 0];
  const shown: unknown[] = [event.type, event.number];
  if ("text" in event) shown.push(event.text);
  if (event.type === "turn.finished") shown.push(event.state);
  return shown;
}

async function readEvents(call: Call, stream: AsyncIterable<TurnEvent>): Promise<unknown[]> {
  for await (const event of stream) {
    const shown = eventOf(event);
    call.events.push(shown);
    call.report(shown);
  }
  return call.events;
}

async function requestTurn(call: Call, made: TurnStream | Promise<Answer>): Promise<object> {
  if (!(made instanceof TurnStream)) return answerOf(await made);
  call.make(made);
  return { events: await readEvents(call, made), answer: answerOf(await made.answer()) };
}

function chatMade(call: Call, chat: Chat): object {
  call.make(chat);
  return { id: chat.id };
}

const camelled = (given: Fields): Fields =>
  Object.fromEntries(
    Object.entries(given).map(([name, value]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), value]),
  );

const VERBS: Record<string, (call: Call) => unknown> = {
  client: ({ given, make }) => {
    const { baseUrl, timeouts, retries, ...options } = given;
    const more = { timeouts: milliseconds(timeouts), retries: milliseconds(camelled(retries ?? {})) };
    make(new Client(baseUrl, { ...options, ...more }));
    return null;
  },
  "chats.create": async (call) => chatMade(call, await call.on.chats.create(call.given)),
  "chats.open": (call) => chatMade(call, call.on.chats.open({ ...call.given, signal: undefined })),
  "chats.list": async ({ on, given }) => (await on.chats.list(given).all()).map(snake),
  "chats.search": async ({ on, given: { q, ...given } }) => (await on.chats.search(q, given).all()).map(hitOf),
  "chats.reset": async (call) => chatMade(call, await call.on.chats.reset(call.given["conversationKey"], call.given)),
  "chats.stop": ({ on, given: { idempotencyKey, ...given } }) => on.chats.stop(idempotencyKey, given),
  "client.events": async ({ on, given: { count, ...given }, report }) => {
    const changes: object[] = [];
    for await (const change of on.events(given)) {
      changes.push(changeOf(change));
      report(changeOf(change));
      if (changes.length === count) break;
    }
    return changes;
  },
  "client.jobs": async ({ on, given }) => (await on.jobs(given).all()).map(snake),
  "client.export": async ({ on, given }) => {
    const lines: string[] = [];
    for await (const line of on.export(given)) lines.push(line);
    return lines;
  },
  "client.import": async ({ on, given: { lines, ...given } }) => (await on.importChats(lines, given)).map(snake),
  "tokens.create": async ({ on, given }) => snake(await on.tokens.create(given)),
  "tokens.list": async ({ on, given }) => (await on.tokens.list(given).all()).map(snake),
  "tokens.revoke": async ({ on, given: { token, ...given } }) => {
    await on.tokens.revoke(token, given);
    return null;
  },
  "shares.create": async ({ on, given }) => snake(await on.shares.create(given)),
  "shares.list": async ({ on, given }) => (await on.shares.list(given).all()).map(snake),
  "shares.revoke": async ({ on, given: { share, ...given } }) => {
    await on.shares.revoke(share, given);
    return null;
  },
  "client.models": async ({ on, given }) => (await on.models(given)).map((model: { id: string }) => model.id),
  "chat.send": (call) => requestTurn(call, call.on.send(call.given["input"], call.given)),
  "chat.edit": (call) => requestTurn(call, call.on.edit(call.given["turn"], call.given["input"], call.given)),
  "chat.regenerate": (call) => requestTurn(call, call.on.regenerate(call.given["turn"], call.given)),
  "chat.enqueue": ({ on, given: { input, ...given } }) => on.enqueue(input, given),
  "chat.append": async ({ on, given: { items, ...given } }) => turnOf(await on.append(items, given)),
  "chat.stop": ({ on, given }) => on.stop(given),
  "stream.stop": ({ on, given }) => on.stop(given),
  "chat.events": async (call) => ({ events: await readEvents(call, call.on.events(call.given["turn"], call.given)) }),
  "chat.id": ({ on }) => ({ id: on.id }),
  "chat.info": async ({ on, given }) => snake(await on.info(given)),
  "chat.read": async ({ on, given }) => {
    const { chat, turns, before, attempts } = await on.read(given);
    const aside = attempts.map((each: any) => ({
      id: each.id,
      state: each.state,
      replaces: each.replaces,
      failure: each.failure?.code ?? null,
    }));
    return { chat: snake(chat), turns: turns.map(turnOf), before, attempts: aside };
  },
  "chat.turns": async ({ on, given }) => (await on.turns(given).all()).map(turnOf),
  "chat.update": async ({ on, given: { revision, signal, ...changes } }) =>
    snake(await on.update(changes, { revision, signal })),
  "chat.rename": async ({ on, given: { title, ...given } }) => snake(await on.rename(title, given)),
  "chat.pin": async ({ on, given: { on: isOn, ...given } }) => snake(await on.pin(isOn, given)),
  "chat.archive": async ({ on, given: { on: isOn, ...given } }) => snake(await on.archive(isOn, given)),
  "chat.flag": async ({ on, given: { turn, ...given } }) => snake(await on.flag(turn, given)),
  "chat.fork": async (call) => chatMade(call, await call.on.fork(call.given)),
  "chat.switch": async ({ on, given: { branch, ...given } }) => snake(await on.switch(branch, given)),
  "chat.undo": async ({ on, given }) => snake(await on.undo(given)),
  "chat.branches": async ({ on, given }) => (await on.branches(given).all()).map(snake),
  "chat.context": async ({ on, given }) => {
    const { items, ...rest } = await on.context(given);
    return { ...snake(rest), items: items.map(wordsOf) };
  },
  "chat.siblings": async ({ on, given: { turn, ...given } }) =>
    (await on.siblings(turn, given)).map((each: any) => ({ ...snake(each), turn: turnOf(each.turn) })),
  "chat.delete": async ({ on, given }) => {
    await on.delete(given);
    return null;
  },
  "chat.restore": async ({ on, given }) => snake(await on.restore(given)),
  "chat.export": async ({ on, given }) => {
    const lines: string[] = [];
    for await (const line of on.export(given)) lines.push(line);
    return lines;
  },
  cancel: ({ given }) => {
    running.get(given["command"])?.abort();
    return null;
  },
};

function errorOf(problem: any, signal: AbortSignal): object {
  if (signal.aborted) return { code: "cancelled", status: null, message: String(problem), request_id: null };
  if (!(problem instanceof TurnledgerError)) {
    return { code: "driver_broke", status: null, message: String(problem?.stack ?? problem), request_id: null };
  }
  const { code, status, message, requestId } = problem;
  return { code, status, message, request_id: requestId };
}

/** Carry out a command, and reply with its events and its result. */
export async function carryOut(command: Command, reply: (message: object) => void): Promise<void> {
  const { id, as } = command;
  const controller = new AbortController();
  const { signal } = controller;
  running.set(id, controller);
  const call: Call = {
    on: named.get(command.on ?? "client"),
    given: { ...camelled(command.with ?? {}), signal },
    signal,
    make: (thing) => as !== undefined && named.set(as, thing),
    report: (event) => reply({ id, event }),
    events: [],
  };
  try {
    const verb = VERBS[command.do];
    if (!verb) throw new Error(`No such verb: ${command.do}`);
    reply({ id, ok: (await verb(call)) ?? null });
  } catch (problem) {
    reply({ id, error: errorOf(problem, signal), ...(call.given["stream"] && { events: call.events }) });
  } finally {
    running.delete(id);
  }
}

/** Abort the commands that still run. */
export function abortAll(): void {
  for (const controller of running.values()) controller.abort();
}
