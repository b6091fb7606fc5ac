// Fits each script to each cluster: {scripts, clusters} in, the texts by cluster and script out.
import { readFileSync } from "node:fs";
import { fitted } from "../../docs/_static/js/fit.js";

const { scripts, clusters } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(clusters.map((cluster) => scripts.map((text) => fitted(text, cluster)))));
