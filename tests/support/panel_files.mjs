// Writes each configuration as the panel does, reads it back, and puts it into the panel's fields and out again:
// node panel_files.mjs FOLDER_OF_STATIC CASES.json. Prints a line of JSON for each configuration.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, cases] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/js/${name}`).href);
const { read, write } = await load("panel-yaml.js");
const { toConfig, toFields } = await load("panel-config.js");
const { hunks } = await load("panel-lines.js");
const module = { exports: {} };
new Function("module", "exports", "require", readFileSync(`${folder}/vendor/js-yaml.js`, "utf8"))(
  module,
  module.exports,
  createRequire(import.meta.url),
);
const { known, configs, texts } = JSON.parse(readFileSync(cases, "utf8"));

for (const config of configs) {
  const text = write(config);
  const { config: again } = read(text, "a.yaml", module.exports, known);
  console.log(JSON.stringify({ text, again, fields: toConfig(toFields(config)) }));
}
for (const [before, after] of texts) console.log(JSON.stringify(hunks(before, after)));
