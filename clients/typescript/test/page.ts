/** Drives the client from a page, for the same scenarios: its opener calls `command` and receives `reply`. */

import { carryOut, type Command } from "./verbs.js";

declare global {
  interface Window {
    command(line: string): void;
    reply(line: string): void;
  }
}

window.command = (line) => void carryOut(JSON.parse(line) as Command, (message) => window.reply(JSON.stringify(message)));
