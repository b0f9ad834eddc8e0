// Makes one file of the whole client, for pages without a bundler, and prints its size: minified, and compressed as web
// servers do it.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 8000;
const outfile = new URL("dist/turnledger.min.js", import.meta.url).pathname;
const entry = new URL("dist/src/index.js", import.meta.url).pathname;
await build({ entryPoints: [entry], outfile, bundle: true, minify: true, format: "esm", target: "es2022" });
const file = readFileSync(outfile);
const gzipped = gzipSync(file, { level: 9 }).length;
console.log(JSON.stringify({ bytes: file.length, gzipped, most: MOST }));
process.exitCode = gzipped < MOST ? 0 : 1;
