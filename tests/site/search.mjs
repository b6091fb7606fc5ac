/* Search as a page of the site does: folder of scripts, index and queries come as JSON, the answers go as JSON. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const { static: folder, index, queries } = JSON.parse(readFileSync(0, "utf-8"));
const scripts = ["vendor/minisearch", ...["meanings", "words", "excerpt", "rank"].map((name) => `js/search-${name}`)];
for (const path of [...scripts.map((name) => join(folder, `${name}.js`)), index]) {
  vm.runInThisContext(readFileSync(path, "utf-8"), { filename: path });
}
const find = await siteSearch.make(searchIndex, MiniSearch);
process.stdout.write(JSON.stringify(queries.map((query) => find(query))));
