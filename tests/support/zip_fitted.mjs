// Fits the job scripts of the zip whose path is given: each gets one line more.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fittedZip } from "../../docs/_static/js/zip-fitted.js";

const fflate = createRequire(import.meta.url)("../../docs/_static/vendor/fflate.js");

try {
  const zip = fittedZip(new Uint8Array(readFileSync(process.argv[2])), (text) => `${text}# fitted\n`, fflate);
  console.log(JSON.stringify({ zip: Buffer.from(zip).toString("base64") }));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
