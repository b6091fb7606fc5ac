// Adapts each script to each configuration: node adapt_engines.mjs FOLDER_OF_ENGINE CASES.json
// Prints a line of JSON for each configuration: how it is refused, or what becomes of each script.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, cases] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}`).href);
const { adapt } = await load("adapt.js");
const { site, ConfigError } = await load("adapt-site.js");
const { Refusal } = await load("adapt-script.js");
const { known, scripts, configs } = JSON.parse(readFileSync(cases, "utf8"));

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

function print(text) {
  let left = Buffer.from(text);
  while (left.length) {
    try {
      left = left.subarray(writeSync(1, left));
    } catch (error) {
      if (error.code === "EPIPE") process.exit(0); // the test has seen enough
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

for (const config of configs) print(`${JSON.stringify(answer(config))}\n`);
