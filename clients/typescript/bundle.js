// Makes one file of the whole client, for pages without a bundler, and prints its size: minified, and compressed as
// small as gzip can.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 9216;
// What modules of the client pass to one another, and nobody else sees, goes by shorter names in this file.
const OWN = /^(is(Void|Heard|Finished|Fresh|Once|Endless)|pieces|known|asked|said|head|last|problem|progress|count|base|ask|json|options|again|held|letGo|path|waits)$/;
const outfile = new URL("dist/turnledger.min.js", import.meta.url).pathname;
const entry = new URL("dist/src/index.js", import.meta.url).pathname;

// Each class of the tree of errors would be there twice, as a class and as a name, and take a tenth of the file: here
// the tree is one text, with a letter before each name that says how deep it stands.
const tree = {
  name: "tree of errors",
  setup({ onLoad }) {
    const read = (path) => readFileSync(path, "utf8");
    onLoad({ filter: /dist\/src\/(index|error-of)\.js$/ }, ({ path }) => ({
      contents: read(path).replace("* as errors from", "{ errors } from"),
    }));
    onLoad({ filter: /dist\/src\/errors\.js$/ }, async ({ path }) => {
      const root = /[^]*?\n\}\n/.exec(read(path))[0];
      const all = Object.entries(await import(path)).filter(([name]) => name !== "TurnledgerError");
      const below = (parent, depth) =>
        all.filter(([, kind]) => Object.getPrototypeOf(kind).name === parent)
          .flatMap(([name]) => [" " + depth + name, ...below(name, depth + 1)]);
      const text = below("TurnledgerError", 0).join("").trim();
      return {
        contents: `${root}
          export const errors = { TurnledgerError };
          const line = [TurnledgerError];
          for (const [depth, ...letters] of "${text}".split(" "))
            errors[letters.join("")] = line[+depth + 1] = class extends line[depth] {};
          const called = (name) => errors[name];
          ${all.map(([name]) => `export const ${name} = /* @__PURE__ */ called("${name}");`).join("")}`,
      };
    });
  },
};

const how = { bundle: true, minify: true, format: "esm", target: "es2022", charset: "utf8", mangleProps: OWN };
await build({ entryPoints: [entry], outfile, plugins: [tree], ...how });
const file = readFileSync(outfile);
const gzipped = gzipSync(file, { level: 9 }).length;
console.log(JSON.stringify({ bytes: file.length, gzipped, most: MOST }));
process.exitCode = gzipped < MOST ? 0 : 1;
