/** Drives the client for the scenarios of tests/clients: commands come as lines of JSON on standard input, and replies go
 * to standard output. */

import { createInterface } from "node:readline";

import { abortAll, carryOut, type Command } from "./verbs.js";

function reply(message: object): void {
  process.stdout.write(JSON.stringify(message) + "\n");
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim()) void carryOut(JSON.parse(line) as Command, reply);
}
abortAll();
