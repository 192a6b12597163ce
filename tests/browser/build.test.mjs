// What is committed in `web/console/dist` is what the sources build, and the sources pass the type checker.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const folder = fileURLToPath(new URL("../../web/console", import.meta.url));
const skip = existsSync(`${folder}/node_modules`) ? false : "npm ci in web/console first";

for (const [name, script] of [["dist_is_what_the_sources_build", "verify"], ["sources_pass_the_type_checker", "check"]]) {
  test(name, { skip }, () => {
    const run = spawnSync("npm", ["run", "--silent", script], { cwd: folder, encoding: "utf8" });
    assert.equal(run.status, 0, `${run.stdout}\n${run.stderr}`);
  });
}

test("packed_file_that_is_another_one_is_noticed", { skip }, (t) => {
  const dist = mkdtempSync(join(tmpdir(), "cell-console-dist-"));
  t.after(() => rmSync(dist, { recursive: true, force: true }));
  cpSync(join(folder, "dist"), dist, { recursive: true });
  cpSync(join(dist, "icon.svg.gz"), join(dist, "console.css.gz"));
  const run = spawnSync("node", ["build.mjs", "--verify", `--dist=${dist}`], { cwd: folder, encoding: "utf8" });
  assert.notEqual(run.status, 0);
  assert.match(run.stderr, /console\.css\.gz/);
});
