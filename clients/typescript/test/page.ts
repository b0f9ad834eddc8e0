/** Drives the client from a page, for the same scenarios: whoever opened the page calls `command` and hears `reply`. */

import { follow, type Command } from "./verbs.js";

declare global {
  interface Window {
    command(line: string): void;
    reply(line: string): void;
  }
}

window.command = (line) => void follow(JSON.parse(line) as Command, (errorIn) => window.reply(JSON.stringify(errorIn)));
