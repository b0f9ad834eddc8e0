// Makes one file of the whole client, for pages without a bundler, and prints its size: minified, and compressed as
// small as gzip can.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 8000;
// What modules of the client pass to one another, and nobody else sees, goes by shorter names in this file.
const OWN = /^(is(Void|Heard|Finished|Fresh|Once|Endless)|pieces|known|asked|said|head|last|problem|progress|count|base|ask|json|options|pause)$/;
const outfile = new URL("dist/turnledger.min.js", import.meta.url).pathname;
const entry = new URL("dist/src/index.js", import.meta.url).pathname;
const how = { bundle: true, minify: true, format: "esm", target: "es2022", mangleProps: OWN };
await build({ entryPoints: [entry], outfile, ...how });
const file = readFileSync(outfile);
const gzipped = gzipSync(file, { level: 9 }).length;
console.log(JSON.stringify({ bytes: file.length, gzipped, most: MOST }));
process.exitCode = gzipped < MOST ? 0 : 1;
