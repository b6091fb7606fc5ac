// Adapts each script to each configuration: {folder, known, scripts, configs} in; for each configuration how it is
// refused, or what becomes of each script, out.
import { readFileSync } from "node:fs";

const { folder, known, scripts, configs } = JSON.parse(readFileSync(0, "utf8"));
const { adapt } = await import(`${folder}/adapt.js`);
const { site, ConfigError } = await import(`${folder}/adapt-site.js`);
const { Refusal } = await import(`${folder}/adapt-script.js`);

function adapted(script, there) {
  try {
    return adapt(script, there, known.rules);
  } catch (error) {
    if (error instanceof Refusal) return { line: error.line, problem: error.problem };
    return { crashed: String(error.stack) };
  }
}

function answer(config) {
  let there;
  try {
    there = site(config, known, "here");
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { refused: error.problems.map((problem) => problem.text) };
  }
  return { scripts: scripts.map((script) => adapted(script, there)) };
}

process.stdout.write(JSON.stringify(configs.map(answer)));
