// Call one function of one of the site's modules: {module, name, calls: [[argument, ...]]} in, what each returned out.
import { readFileSync } from "node:fs";

const { module, name, calls } = JSON.parse(readFileSync(0, "utf8"));
const found = (await import(module))[name];
process.stdout.write(JSON.stringify(calls.map((call) => found(...call))));
