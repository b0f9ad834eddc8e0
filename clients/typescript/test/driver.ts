/** Drives the client for the scenarios of tests/clients: commands come as lines of JSON on standard input, and replies go
 * to standard output. */

import { createInterface } from "node:readline";

import { abortAll, follow, type Command } from "./verbs.js";

function reply(errorIn: object): void {
  process.stdout.write(JSON.stringify(errorIn) + "\n");
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim()) void follow(JSON.parse(line) as Command, reply);
}
abortAll();
