// Writes each configuration as the panel does, reads it back, and puts it into the panel's fields and out again:
// {static, known, configs} in; {text, again, fields} for each configuration out.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { static: folder, known, configs } = JSON.parse(readFileSync(0, "utf8"));
const { read, write } = await import(`${folder}/js/panel-yaml.js`);
const { toConfig, toFields } = await import(`${folder}/js/panel-config.js`);
const module = { exports: {} };
new Function("module", "exports", "require", readFileSync(`${folder}/vendor/js-yaml.js`, "utf8"))(
  module,
  module.exports,
  createRequire(import.meta.url),
);

function answer(config) {
  const text = write(config);
  const { config: again } = read(text, "a.yaml", module.exports, known);
  return { text, again, fields: toConfig(toFields(config)) };
}

process.stdout.write(JSON.stringify(configs.map(answer)));
