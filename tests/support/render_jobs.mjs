// Render jobs with the site's modules: {modules, rules, cases: [{values, made_by, typed}]} in, a result for each case out.
import { readFileSync } from "node:fs";

const { modules, rules, cases } = JSON.parse(readFileSync(0, "utf8"));
const load = (name) => import(`${modules}/${name}.js`);
const { specify, JobError } = await load("job-specification");
const { render, textOf } = await load("job-script");
const { commandOf, layersOf } = await load("job-command");
const { warningOf } = await load("job-facts");

function attempt(values, makeLayers, madeBy) {
  try {
    const job = specify(rules, makeLayers(values));
    const lines = render(rules, job, madeBy);
    return { text: textOf(lines), reasons: lines.map(({ reason }) => reason), warning: warningOf(rules, job) };
  } catch (error) {
    if (error instanceof JobError) return { refused: error.message };
    throw error;
  }
}

const results = cases.map(({ values, made_by: madeBy, typed }) => {
  const here = attempt(values, () => [{ place: "here", values }], madeBy);
  if (here.refused && !typed) return { here };
  const command = commandOf(values);
  return { here, command, typed: attempt(values, () => layersOf(rules, values), command) };
});
process.stdout.write(JSON.stringify(results));
