import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const of = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const CLIENT = "../clients/typescript/src";
const TESTS = ["test/**/*.test.{ts,tsx}"];
const WITH_MOCKS = ["test/markdown/code-block.test.ts", "test/markdown/renderer.test.ts"];

export default defineConfig({
  // It is served at "/" and at "/share", and behind whatever path an operator's proxy puts it.
  base: "./",
  resolve: {
    // The client by its sources: one build, and nothing that could be stale.
    alias: [
      { find: /^turnledger$/, replacement: of(`${CLIENT}/index.ts`) },
      { find: /^turnledger\/(.+)$/, replacement: of(`${CLIENT}/$1.ts`) },
    ],
  },
  build: {
    outDir: of("../src/turnledger/server/chat_page/dist"),
    emptyOutDir: true,
    target: "es2022",
    // Small files would become data: addresses, which the policy of the page knows nothing of.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  test: {
    environment: "happy-dom",
    // They run beside everything else: in one thread, and in one window, but for those that put modules in the place
    // of others.
    pool: "threads",
    maxWorkers: 1,
    projects: [
      { extends: true, test: { name: "together", include: TESTS, exclude: WITH_MOCKS, isolate: false } },
      { extends: true, test: { name: "alone", include: WITH_MOCKS } },
    ],
  },
});
