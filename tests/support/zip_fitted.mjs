// Fits the job scripts of the zip whose path is given: each gets one line more, and requeue.sbatch is refused.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fittedZip } from "../../docs/_static/js/zip-fitted.js";

const fflate = createRequire(import.meta.url)("../../docs/_static/vendor/fflate.js");
const asked = [];

async function fit(path) {
  asked.push(path);
  const refusal = path.endsWith("/requeue.sbatch") ? { line: 3, problem: "this is not understood" } : null;
  return { text: `#!/bin/bash\n# fitted: ${path}\n`, changes: [], refusal };
}

try {
  const zip = await fittedZip(new Uint8Array(readFileSync(process.argv[2])), fit, fflate);
  console.log(JSON.stringify({ asked, zip: Buffer.from(zip).toString("base64") }));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
