// Prints how large the whole client is: bundled, minified, and compressed as a web server does it.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";

const MOST = 8000;

async function sizeOf(contents) {
  const stdin = { contents, resolveDir: import.meta.dirname };
  const made = await build({ stdin, bundle: true, minify: true, format: "esm", target: "es2022", write: false });
  const [file] = made.outputFiles;
  return { raw: file.contents.length, gzipped: gzipSync(file.contents, { level: 9 }).length };
}

const all = await sizeOf('export * from "./dist/src/index.js"');
const none = await sizeOf('import "./dist/src/index.js"');
console.log(JSON.stringify({ all, none, most: MOST }));
process.exitCode = all.gzipped < MOST && none.raw === 0 ? 0 : 1;
