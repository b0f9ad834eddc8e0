/// <reference types="vitest/config" />

import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { offlinePage } from "./offline-build.ts";
import { english } from "./src/strings/english.ts";
import { german } from "./src/strings/german.ts";

const of = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const CLIENT = "../clients/typescript/src";
const TESTS = ["test/**/*.test.{ts,tsx}"];
const WITH_MOCKS = ["code-block", "renderer", "highlight/worker-client"].map((each) => `test/markdown/${each}.test.ts`);

/** Fill in `%name%`. Without scripts no language can be chosen. */
function transformIndexHtml(html: string): string {
  const needsJavaScript = [english, german].map((each) => `<p lang="${each.language}">${each.needsJavaScript}</p>`);
  const { language, product } = english;
  const parts: Record<string, string> = { language, product, needsJavaScript: needsJavaScript.join("") };
  return html.replace(/%(\w+)%/g, (all, name: string) => parts[name] ?? all);
}

export default defineConfig({
  // Served at "/" and "/share", possibly below a path of the operator's proxy.
  base: "./",
  resolve: {
    // The client's sources, not its build, which may be stale.
    alias: [
      { find: /^turnledger$/, replacement: of(`${CLIENT}/index.ts`) },
      { find: /^turnledger\/(.+)$/, replacement: of(`${CLIENT}/$1.ts`) },
    ],
  },
  plugins: [{ name: "strings", transformIndexHtml }, offlinePage()],
  build: {
    outDir: of("../src/turnledger/server/chat_page/dist"),
    emptyOutDir: true,
    target: "es2022",
    // The first browsers with `:dir()`. For older ones it would become a list of languages, which texts do not name.
    cssTarget: ["chrome120", "firefox120", "safari16.4"],
    // Inlined files would be `data:` URLs, which the page's policy forbids.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  test: {
    environment: "happy-dom",
    // One thread and one window, except for tests that mock modules.
    pool: "threads",
    maxWorkers: 1,
    projects: [
      { extends: true, test: { name: "together", include: TESTS, exclude: WITH_MOCKS, isolate: false } },
      { extends: true, test: { name: "alone", include: WITH_MOCKS } },
    ],
  },
});
