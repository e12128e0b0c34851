// What was trained on what, whether it was worth it, and every number with how it was measured.

const REPRESENTATIONS = { learnt: "learnt", raw: "raw inputs", pca: "their PCA", untrained: "untrained network", patches: "k-means patches", pretrained: "pretrained network" };

function overview(run) {
  const said = run.said.map((sentence, i) => element("p", { class: i ? null : "lead" }, isolated(sentence)));
  if (run.train) return [element("div", { class: "overview" }, element("div", { class: "said" }, said), trainBox(run.train))];
  return [element("div", { class: "overview" }, element("div", { class: "said" }, said, verdictBox(run)), metricsTable(run.metrics, run.compared))];
}

/** The command that would learn from this folder, and its price. */
function trainBox({ command, cost }) {
  return element("div", { class: "verdict" }, element("p", { class: "claim" }, "To learn features of these images"),
    element("pre", {}, element("code", {}, command)), element("p", {}, cost));
}

/** The claim, and what it rests on: a line for each comparison with the baselines. */
function verdictBox({ verdict, compared }) {
  if (!verdict) return element("p", { class: "verdict none" }, "No verdict is stored for this step: sao eval makes one.");
  const kind = verdict.better === true ? "yes" : verdict.better === false ? "no" : "open";
  const behind = compared.length
    ? [comparedTable(compared), element("details", {}, element("summary", {}, "In full"), element("p", {}, verdict.sentence))]
    : [verdict.reasons ? element("p", {}, verdict.reasons) : null];
  return element("div", { class: `verdict ${kind}` }, element("p", { class: "claim" }, verdict.claim), behind);
}

function comparedTable(compared) {
  const signed = (value) => (value > 0 ? "+" : "") + shortNumber(value);
  const rows = compared.map((one) => element("tr", {}, element("th", { scope: "row" }, one.word),
    element("td", {}, REPRESENTATIONS[one.with] || one.with),
    element("td", {}, element("b", {}, signed(one.difference)), element("small", {}, ` (${one.interval.map(signed).join(" to ")})`)),
    element("td", {}, !one.decided ? "unclear" : one.difference > 0 ? "better" : "worse")));
  const head = ["metric", "against the best", "difference", "learnt is"].map((word) => element("th", { scope: "col" }, word));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)));
}

function metricsTable(metrics, compared) {
  if (!metrics.length) return element("p", { class: "faint" }, "Nothing has been measured yet: sao eval does it.");
  const table = new Map();
  for (const metric of metrics) {
    if (!table.has(metric.key)) table.set(metric.key, { word: metric.word, cells: {} });
    table.get(metric.key).cells[metric.of] = metric;
  }
  const columns = Object.keys(REPRESENTATIONS).filter((name) => metrics.some((metric) => metric.of === name));
  const rows = [...table.values()].map(({ word, cells }) => {
    const best = decidedBest(compared.find((one) => one.word === word));
    return element("tr", {}, element("th", { scope: "row" }, word), columns.map((name) => metricCell(cells[name], name === best)));
  });
  const head = element("tr", {}, element("td"), columns.map((name) => element("th", { scope: "col" }, REPRESENTATIONS[name])));
  return element("div", { class: "scroll" },
    element("table", { class: "metrics" }, element("caption", {}, element("span", {}, "Point at a number, or move to it with Tab, to see how it was measured.")),
      element("thead", {}, head), element("tbody", {}, rows)));
}

/** Which representation is better by more than the error; null where nobody tested it, or it is not. */
function decidedBest(one) {
  if (!one?.decided) return null;
  return one.difference > 0 ? "learnt" : one.with;
}

function metricCell(metric, best) {
  if (!metric) return element("td", { class: "faint" }, "");
  const value = element("button", { type: "button", class: "value" }, metric.value === null ? "–" : shortNumber(metric.value));
  if (metric.std !== null) value.append(element("small", {}, ` ± ${shortNumber(metric.std)}`));
  explain(value, () => protocolLines(metric));
  const cell = element("td", { class: best ? "best" : null }, value);
  if (metric.share && metric.value !== null) {
    const width = `calc((100% - 22px) * ${Math.max(0, Math.min(1, metric.value))})`;
    cell.append(element("i", { class: "bar", "aria-hidden": "true", style: `width: ${width}` }));
  }
  return cell;
}

function protocolLines(metric) {
  const facts = Object.entries(metric.protocol).flatMap(([name, value]) => [
    element("dt", {}, name.replaceAll("_", " ")),
    element("dd", {}, isolated(typeof value === "object" && value !== null ? objectWords(value) : String(value))),
  ]);
  return [element("strong", {}, `${metric.word}, ${REPRESENTATIONS[metric.of] || metric.of}`), element("dl", {}, facts)];
}

function objectWords(value) {
  const word = (one) => (Array.isArray(one) ? objectWords(one) : typeof one === "number" && !Number.isInteger(one) ? shortNumber(one) : String(one));
  if (Array.isArray(value)) return value.map(word).join(" to ");
  return Object.entries(value).map(([name, one]) => `${name.replaceAll("_", " ")} ${word(one)}`).join(", ");
}

/** Several runs: the learnt features of each beside one another, and the options in which they differ. */
function comparison(runs) {
  const keys = [...new Set(runs.flatMap((run) => run.metrics.filter((m) => m.of === "learnt").map((m) => m.key)))];
  const names = element("tr", {}, element("td"), runs.map((run) => element("th", { scope: "col" }, isolated(run.name))));
  const measured = keys.map((key) => {
    const found = runs.map((run) => run.metrics.find((metric) => metric.of === "learnt" && metric.key === key));
    return element("tr", {}, element("th", { scope: "row" }, found.find(Boolean).word), found.map((metric) => metricCell(metric, false)));
  });
  return [
    measured.length ? element("div", { class: "scroll" }, element("table", { class: "metrics" },
      element("caption", {}, "The learnt features of each run."), element("thead", {}, names), element("tbody", {}, measured))) : null,
    ...testedAgainst(runs, report.tested),
    element("h3", {}, "What was set differently"), ...differences(runs, names),
  ];
}

/** Every other run against the first, on the same held-out samples. */
function testedAgainst(runs, tested) {
  if (!tested || !tested.length) return [];
  const signed = (value) => (value > 0 ? "+" : "") + shortNumber(value);
  const head = ["metric", "first", "second", "difference", "the second is"].map((word) => element("th", { scope: "col" }, word));
  return [element("h3", {}, "Is one better?"), ...tested.flatMap((one, place) => {
    const pair = [isolated(runs[place + 1].name), " (second) against ", isolated(runs[0].name), " (first)"];
    if (!one.rows.length) return [element("p", {}, pair, `: not tested, because ${one.reason}.`)];
    const rows = one.rows.map((row) => element("tr", {}, element("th", { scope: "row" }, row.word),
      [row.first, row.second].map((value) => element("td", {}, shortNumber(value))),
      element("td", {}, element("b", {}, signed(row.difference)), element("small", {}, ` (${row.interval.map(signed).join(" to ")})`)),
      element("td", {}, !row.decided ? "not measurably different" : row.difference > 0 ? "better" : "worse")));
    return [element("p", {}, pair, `, sample by sample on the same ${count(one.samples, "held-out sample")}; intervals of 95 % for all metrics together.`),
      element("div", { class: "scroll" }, element("table", { class: "tested" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)))];
  })];
}

/** Options that all have come first: runs of different methods have many that only one of them knows. */
function differences(runs, names) {
  const options = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const differing = options.filter((name) => new Set(runs.map((run) => run.config[name])).size > 1);
  const [shared, own] = [true, false].map((wanted) => differing.filter((name) => runs.every((run) => name in run.config) === wanted));
  const table = (chosen, id) => element("div", { class: "scroll" }, element("table", { class: "options", id },
    element("thead", {}, names.cloneNode(true)), element("tbody", {}, chosen.map((name) => element("tr", {},
      element("th", { scope: "row" }, element("code", {}, name)), runs.map((run) => element("td", {}, isolated(run.config[name] ?? "–"))))))));
  if (!differing.length) return [element("p", { class: "faint" }, "Nothing: the configurations are equal.")];
  return [
    shared.length ? table(shared, "differences") : null,
    own.length ? element("details", {}, element("summary", {}, `${count(own.length, "option")} that not all of the runs have`), table(own, null)) : null,
  ];
}
