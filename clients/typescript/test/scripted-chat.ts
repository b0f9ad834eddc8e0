/** A chat on a scripted server; its events and requests in short. */

import type { Chat, ClientOptions, TurnEvent } from "../src/index.js";
import { all, CHAT, finished, ScriptedServer, STARTED, text, TURN } from "./scripted-server.js";

export const WHOLE = [STARTED, text("Hel"), text("lo"), finished()];

export function chatOf(server: ScriptedServer, options?: ClientOptions): Chat {
  return server.client(options).chats.open(CHAT);
}

/** Send a message, and return its events in short. */
export async function received(server: ScriptedServer, options?: ClientOptions): Promise<string[]> {
  const events = await all(chatOf(server, options).send("Hi", { stream: true, idempotencyKey: "k" }));
  server.done();
  return events.map(short);
}

export const short = (event: TurnEvent): string =>
  event.type === "turn.restarted"
    ? `restarted ${event.attempt}`
    : event.type === "text.delta"
      ? `${event.number} ${event.text}`
      : `${event.number} ${event.type.slice(5)}`;

export const SENT = "POST /api/turns";
export const READ = (after: number): string => `GET /api/turns/${TURN}/events after ${after}`;
export const requestsOf = (server: ScriptedServer): string[] =>
  server.requests.map(({ method, path, headers }) => {
    const after = path.endsWith("/events") ? ` after ${headers["last-event-id"] ?? 0}` : "";
    return `${method} ${path}${after}`;
  });
