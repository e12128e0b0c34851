// Puts the page together: each section holds one cell for each run that is shown.

const report = JSON.parse(document.getElementById("data").textContent);
const panels = new Map(); // by run: a map keeps its view while others come and go
// Of a folder that nobody trained on there is no more than what the map knows.
const SECTIONS = [
  ["overview", "Overview", (run) => overview(run), () => true],
  ["map", "Map", (run) => (run.map ? [mapNote(run), panelOf(run).element] : [missingData()]), () => true],
  ["groups", "Groups", (run) => groupsSection(run, run.map && panelOf(run)), () => true],
  ["odd", "Odd ones", (run) => oddSection(run, run.map && panelOf(run)), () => true],
  ["duplicates", "Duplicates", (run) => duplicatesSection(run, run.map && panelOf(run)), () => true],
  ["samples", "Samples over time", (run) => picturesSection(run), (run) => run.pictures],
  ["curves", "Curves", (run, runs) => curvesSection(run, runs), (run) => run.curves],
  ["copies", "Copies by the generator", (run) => copiesSection(run, run.map && panelOf(run)), (run) => run.pictures],
  ["configuration", "Configuration", (run) => configurationSection(run), (run) => run.config],
].filter(([, , , there]) => report.runs.some(there));

function panelOf(run) {
  if (!panels.has(run)) panels.set(run, new MapPanel(run));
  return panels.get(run);
}

function mapNote(run) {
  const { map } = run;
  const kind = map.sheet ? "image" : "sample";
  const some = map.count < map.total ? `${map.count.toLocaleString("en")} of ${count(map.total, kind)}, drawn at random` : `All ${count(map.count, kind)}`;
  const corner = map.sheet && map.held_out ? " A blue corner marks those held out of training." : "";
  const zoom = map.sheet ? " Come closer and dots become images." : "";
  return element("p", { class: "faint" }, `${some}, placed by ${map.by} of their features: what lies together looks alike. Distances between groups mean little.${zoom}${corner}`);
}

function render(shown) {
  const main = document.getElementById("main");
  const single = report.runs.length === 1;
  const sections = SECTIONS.map(([id, title, fill]) => element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title),
    element("div", { class: "cells" }, shown.map((run) => element("div", { class: "cell", role: single ? null : "group", "aria-label": single ? null : isolatedText(run.name) },
      single ? null : element("div", { class: "run-name" }, isolated(run.name)), fill(run, shown))))));
  if (!single) {
    sections.unshift(element("section", { id: "runs", "aria-labelledby": "runs-title" }, element("h2", { id: "runs-title" }, "Runs"),
      element("div", { class: "cell" }, comparison(report.runs))));
  }
  main.replaceChildren(heading(shown), ...sections);
  main.style.setProperty("--runs", shown.length);
  main.classList.toggle("several", shown.length > 1);
}

function heading(shown) {
  const title = element("h1", {}, report.runs.map((run, i) => [i ? " · " : "", isolated(run.name)]).flat());
  if (report.runs.length === 1) return element("div", { class: "title" }, title);
  const boxes = report.runs.map((run) => {
    const box = element("input", { type: "checkbox", checked: shown.includes(run), onchange: () => {
      const next = report.runs.filter((other) => (other === run ? box.checked : shown.includes(other)));
      if (!next.length) { box.checked = true; return; }
      render(next);
      document.querySelectorAll(".switch input")[report.runs.indexOf(run)].focus();
    } });
    return element("label", {}, box, " ", isolated(run.name));
  });
  return element("div", { class: "title" }, title, element("div", { class: "switch", role: "group", "aria-label": "Runs to show" }, boxes));
}

function chooseTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const panel of panels.values()) { panel.painter.theme(); panel.draw(); }
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  chooseTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => chooseTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  describeSheets(report.sheets);
  const links = [...(report.runs.length > 1 ? [["runs", "Runs"]] : []), ...SECTIONS];
  document.getElementById("contents").append(...links.map(([id, title]) => element("a", { href: `#${id}` }, title)));
  document.getElementById("foot").append(`Made by sao ${report.sao}. This page is one file, and loads nothing from anywhere.`);
  render(report.runs.slice(0, 2));
  const sample = document.getElementById("sample");
  sample.addEventListener("click", (event) => { if (event.target === sample) sample.close(); }); // beside it
  await loadSheets(() => { for (const panel of panels.values()) panel.draw(); });
  document.documentElement.dataset.ready = "yes";
}

start();
