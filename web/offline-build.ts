/** Build the service worker, which contains the page that it shows while the server cannot be reached. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Plugin } from "vite";
import { english } from "./src/strings/english.ts";
import { german } from "./src/strings/german.ts";

const read = (name: string): string => readFileSync(new URL(`src/offline/${name}`, import.meta.url), "utf-8");
const source = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

export function offlinePage(): Plugin {
  return {
    name: "offline-page",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "service-worker.js", source: serviceWorker() });
    },
  };
}

/** Fill in `%name%`. */
const fill = (name: string, parts: Readonly<Record<string, string>>): string =>
  read(name).replace(/%(\w+)%/g, (_, part: string) => parts[part] as string);

function serviceWorker(): string {
  const [style, script] = [read("page.css"), read("page.js")];
  const texts = [english, german].map(({ language, offline }) => fill("text.html", { language, ...offline }));
  const { language, offline } = english;
  const page = fill("page.html", { language, title: offline.title, texts: texts.join(""), style, script });
  const policy = [
    "default-src 'none'",
    `script-src ${source(script)}`,
    `style-src ${source(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  return read("service-worker.js")
    .replace('"%page%"', () => JSON.stringify(page))
    .replace('"%policy%"', () => JSON.stringify(policy.join("; ")));
}
