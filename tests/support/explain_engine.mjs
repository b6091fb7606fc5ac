/* Explain logs as the page does: {static, rules, cases, lines} in, {reports, masks} out, as JSON.
   A case is a list of logs, each {name, bytes} in base64; `lines` are learned and masked, each by itself. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const { static: folder, rules: data, cases, lines } = JSON.parse(readFileSync(0, "utf-8"));
const names = ["reading", "rules", "lines", "scan", "diagnosis", "redact", "report"];
for (const path of ["vendor/fflate.js", ...names.map((name) => `js/explain-${name}.js`)]) {
  vm.runInThisContext(readFileSync(join(folder, path), "utf-8"), { filename: path });
}
const explain = logExplainer;
const rules = explain.ready(data);
const { BLOCK } = rules.limits;

function scanned({ name, bytes }) {
  const scan = new explain.LogScan(rules, name);
  const content = Buffer.from(bytes, "base64");
  const use = (piece) => {
    scan.size += piece.length;
    scan.push(piece);
  };
  const unpacker = explain.isPacked(content) && new explain.Unpacker(fflate, use);
  for (let at = 0; at < content.length; at += BLOCK) {
    const block = content.subarray(at, at + BLOCK);
    if (unpacker) unpacker.push(block, at + BLOCK >= content.length);
    else use(block);
  }
  if (unpacker?.problem) scan.problems.push(unpacker.problem);
  return scan.end();
}

function reported(logs) {
  const scans = logs.map(scanned);
  const diagnosis = explain.diagnose(scans, rules);
  const redactor = explain.redactor(diagnosis, scans, rules);
  const plain = new explain.Report(diagnosis, scans, rules);
  const masked = new explain.Report(diagnosis, scans, rules, (text) => redactor.mask(text));
  return { problems: scans.flatMap(({ problems }) => problems), told: plain.told(), text: plain.text(), masked: masked.text(), hidden: masked.told() };
}

function masked(line) {
  const redactor = new explain.Redactor(rules);
  redactor.learn(line);
  return redactor.mask(line);
}

process.stdout.write(JSON.stringify({ reports: cases.map(reported), masks: lines.map(masked) }));
