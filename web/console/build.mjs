// Builds the console into dist/: console.js, console.css, index.html and their gzip copies, under stable names.
// The output depends on the sources and the locked packages alone. `--verify` builds into memory and compares.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
/** `--dist=FOLDER` for tests. */
const dist = process.argv.find((one) => one.startsWith("--dist="))?.slice(7) ?? join(here, "dist");
/** Most bytes of all files together, compressed. */
const COMPRESSED_MAX = 150 * 1024;

async function bundle(entry) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    logLevel: "warning",
  });
  return Buffer.from(result.outputFiles[0].contents);
}

/** gzip without a time and with the same byte for the system everywhere. */
function compressed(bytes) {
  const packed = gzipSync(bytes, { level: 9 });
  packed[9] = 255;
  return packed;
}

async function outputs() {
  const files = new Map([
    ["console.js", await bundle("src/main.tsx")],
    ["console.css", await bundle("src/style/console.css")],
    ["index.html", readFileSync(join(here, "src/index.html"))],
    ["icon.svg", readFileSync(join(here, "src/icon.svg"))],
  ]);
  for (const [name, bytes] of [...files]) files.set(`${name}.gz`, compressed(bytes));
  return files;
}

const files = await outputs();
let total = 0;
for (const [name, bytes] of files) {
  if (name.endsWith(".gz")) total += bytes.length;
  console.log(`${name.padEnd(16)} ${String(bytes.length).padStart(8)} bytes`);
}
console.log(`compressed, all  ${String(total).padStart(8)} bytes of at most ${COMPRESSED_MAX}`);
if (total > COMPRESSED_MAX) throw new Error("the console is larger than it may be");

if (process.argv.includes("--verify")) {
  // How zlib packs may differ between versions of Node; what was packed may not.
  const plain = (name) => {
    const bytes = readFileSync(join(dist, name));
    return name.endsWith(".gz") ? gunzipSync(bytes) : bytes;
  };
  const differs = (name) => {
    try {
      return !plain(name).equals(files.get(name.replace(/\.gz$/, "")));
    } catch {
      return true; // it is not there, or is not packed
    }
  };
  const changed = [...files].filter(([name]) => differs(name));
  if (changed.length > 0) {
    throw new Error(`dist/ is not what the sources build: ${changed.map(([name]) => name).join(", ")}. Run npm run build.`);
  }
  console.log("dist/ is what the sources build");
} else {
  mkdirSync(dist, { recursive: true });
  for (const [name, bytes] of files) writeFileSync(join(dist, name), bytes);
}
