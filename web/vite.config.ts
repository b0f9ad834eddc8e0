import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const of = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const CLIENT = "../clients/typescript/src";

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
    outDir: of("../src/turnledger/server/page"),
    emptyOutDir: true,
    target: "es2022",
    // Small files would become data: addresses, which the policy of the page knows nothing of.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  test: {
    environment: "happy-dom",
    include: ["test/**/*.test.{ts,tsx}"],
  },
});
