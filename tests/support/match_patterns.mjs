/* Match expressions: {patterns: [[source, flags]], texts} in, for each pattern the matches in each text out. */
import { readFileSync } from "node:fs";

const { patterns, texts } = JSON.parse(readFileSync(0, "utf-8"));
const matches = (source, flags) => texts.map((text) => [...text.matchAll(new RegExp(source, `${flags}g`))].map((found) => found[0]));
process.stdout.write(JSON.stringify(patterns.map(([source, flags]) => matches(source, flags))));
