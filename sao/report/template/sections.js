// Groups, odd ones, duplicates; samples over time, curves, copies of the generator, configuration.

const SHOWN = 88; // pixels of a thumbnail in a list
const AT_ONCE = 60; // items of a long list; a button shows more

/** Groups by the features, which a person can name and put together. */
function groupsSection(run, panel) {
  if (!run.groups) return [missingData()];
  const box = element("div", { class: "groups" });
  const draw = () => {
    const focused = document.activeElement && box.contains(document.activeElement) ? document.activeElement.dataset.of : null;
    box.replaceChildren(...run.groups.map((_, group) => (panel.labels.root(group) === group ? groupCard(run, panel, group) : null)).filter(Boolean));
    if (focused) box.querySelector(`[data-of="${focused}"]`)?.focus();
  };
  panel.labels.listeners.push(draw);
  draw();
  const note = "Images whose features are alike. Give a group a name and its images have a label; put groups together that belong together.";
  return [element("p", { class: "faint" }, note), box];
}

function groupCard(run, panel, group) {
  const { labels, view } = panel;
  const parts = run.groups.map((_, i) => i).filter((i) => labels.root(i) === group);
  const all = parts.map((i) => run.groups[i]);
  const size = all.reduce((sum, one) => sum + one.size, 0);
  const name = element("input", { type: "text", class: "group-name", placeholder: `group ${group + 1}`, "aria-label": `Name of group ${group + 1}`, "data-of": `name-${group}`,
    list: panel.knownLabels, maxlength: "200", onchange: () => labels.nameGroup(group, name.value) });
  name.value = labels.called[group];
  const others = run.groups.map((_, i) => i).filter((i) => labels.root(i) === i && i !== group);
  const into = element("select", { "aria-label": `Put group ${group + 1} together with another`, "data-of": `into-${group}`, onchange: () => labels.merge(group, Number(into.value)) },
    element("option", { value: "" }, "Merge into…"), others.map((i) => element("option", { value: i }, labels.groupName(i))));
  const members = () => Array.from({ length: view.real }, (_, i) => i).filter((i) => view.groupOf(i) === group);
  const each = Math.max(4, Math.ceil(12 / all.length));
  const strip = (indices, words) => element("div", { class: view.sheet ? "strip" : "names" }, indices.map((i, place) => sampleButton(panel, i, SHOWN, words && words(i, place))));
  const border = all.flatMap((one) => one.borderline.map((i, place) => [i, one.towards[place]])).slice(0, 12);
  const made = all.reduce((sum, one) => sum + (one.generated_count || 0), 0);
  return element("article", { class: "group" },
    element("div", { class: "group-head" }, swatch(group), name, element("small", {}, count(size, "image"))),
    labelBar(mergedCounts(all.map((one) => one.labels)), run.map.classes),
    strip(all.flatMap((one) => one.typical.slice(0, each))),
    border.length ? element("details", {}, element("summary", {}, "Nearly in another group"),
      strip(border.map(([i]) => i), (i, place) => `${view.name(i)}, nearly in ${labels.groupName(border[place][1])}`)) : null,
    made ? element("details", {}, element("summary", {}, `Generated ones (${made.toLocaleString("en")})`), strip(all.flatMap((one) => one.generated).slice(0, 12).map((i) => run.map.count + i))) : null,
    element("div", { class: "row" }, element("button", { type: "button", onclick: () => panel.choose(members()) }, "Show on the map"), others.length ? into : null,
      parts.length > 1 ? element("button", { type: "button", onclick: () => labels.split(group) }, `Split again (${parts.length})`) : null));
}

function mergedCounts(counts) {
  if (counts.some((one) => !one)) return null;
  const found = new Map();
  for (const [code, size] of counts.flat()) found.set(code, (found.get(code) || 0) + size);
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** A long list, a part at a time. */
function longList(items, made, kind) {
  const box = element("div", { class: kind });
  const more = element("button", { type: "button", class: "more", onclick: () => show() });
  let shown = 0;
  const show = () => {
    box.append(...items.slice(shown, shown + AT_ONCE).map(made));
    shown = Math.min(items.length, shown + AT_ONCE);
    more.hidden = shown === items.length;
    more.textContent = `Show more (${(items.length - shown).toLocaleString("en")} left)`;
  };
  show();
  return [box, more];
}

function oddSection(run, panel) {
  if (!run.odd) return [missingData()];
  const { count: found, rows, scores } = run.odd;
  if (!rows.length) return [element("p", { class: "faint" }, "There are too few samples to say what is unusual.")];
  const tile = (place) => element("figure", { class: place < found ? "tile odd" : "tile" }, sampleButton(panel, rows[place], SHOWN, `${run.map.names[rows[place]]}, score ${scores[place]}`),
    element("figcaption", {}, scores[place].toFixed(1)));
  return [
    element("p", {}, element("b", {}, found ? `${count(found, "image looks", "images look")} like none of the others.` : "No image stands out."),
      " The score is the distance from what is usual here, in features, contrast and detail; from 6 on an image counts as odd."),
    found < rows.length ? element("p", { class: "faint" }, found ? "The marked ones count; after them come the next." : "These are the most unusual all the same.") : null,
    ...longList(rows.map((_, place) => place), tile, "tiles"),
  ];
}

function duplicatesSection(run, panel) {
  const found = run.duplicates;
  if (!found) return [run.map ? element("p", { class: "faint" }, "There are too few samples to say what is unusually near.") : missingData()];
  const copies = found.reduce((sum, group) => sum + group.copies.length, 0);
  if (!found.length) return [element("p", {}, element("b", {}, "No image is there twice"), `, neither exactly nor nearly, among ${count(run.map.count, "image")}.`)];
  const leaks = found.filter((group) => leaking(panel.view, group)).length;
  const box = (group) => element("figure", { class: leaking(panel.view, group) ? "pair leak" : "pair" },
    element("div", { class: "strip" }, [group.keep, ...group.copies.map(([row]) => row)].map((row) => sampleButton(panel, row, SHOWN))),
    element("figcaption", {}, [["keep", group.keep, group.why], ...group.copies.map(([row, kind]) => [kind, row, null])].map(([word, row, why]) =>
      element("div", {}, element("b", {}, word), " ", sampleName(panel.view, row), panel.view.isHeldOut(row) ? " (held out)" : "", why ? ` – ${why}` : ""))));
  return [
    element("p", {}, element("b", {}, `${count(copies, "image is", "images are")} there already`), `, in ${count(found.length, "group")} of equal or nearly equal images.`),
    leaks ? element("p", {}, element("b", {}, `${count(leaks, "group lies", "groups lie")} in the training and the test set`), ": what is measured on these says little about new data.") : null,
    ...longList(found, box, "pairs"),
  ];
}

/** Whether training has seen a copy of what is held out. */
function leaking(view, group) {
  const held = [group.keep, ...group.copies.map(([row]) => row)].map((row) => view.isHeldOut(row));
  return Boolean(view.heldOutBits) && held.some(Boolean) && !held.every(Boolean);
}

/** Which classes a group holds, as a bar and in words. */
function labelBar(labels, classes) {
  if (!labels || !labels.length) return null;
  const total = labels.reduce((sum, [, size]) => sum + size, 0);
  const parts = labels.map(([code, size]) => element("i", {
    title: `${classes[code]}: ${size}`, style: `background: ${css(categoryColour(code))}; flex-grow: ${size}`,
  }));
  const words = labels.slice(0, 3).flatMap(([code, size], i) => [i ? ",  " : "", element("b", {}, isolated(classes[code])), ` ${Math.round(100 * size / total)} %`]);
  return element("div", { class: "labels" }, element("div", { class: "label-bar", "aria-hidden": "true" }, parts), element("div", { class: "faint" }, words));
}

function picturesSection(run) {
  const shown = run.pictures;
  if (!shown.length) return [element("p", { class: "faint" }, "This method makes no samples.")];
  const image = element("img", { alt: "", class: "samples", onload: () => image.classList.toggle("coarse", image.naturalWidth < 400) });
  const step = element("output", {});
  const slider = element("input", { type: "range", min: 0, max: shown.length - 1, value: shown.length - 1, "aria-label": "Step of the samples" });
  const show = () => {
    const one = shown[Number(slider.value)];
    image.src = one.uri;
    image.alt = `Generated samples after step ${one.step}`;
    step.textContent = `step ${one.step.toLocaleString("en")}`;
    slider.setAttribute("aria-valuetext", step.textContent);
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  const play = element("button", { type: "button", onclick: () => {
    if (timer) { stop(); return; }
    play.textContent = "Stop";
    if (Number(slider.value) === shown.length - 1) slider.value = 0;
    show();
    timer = setInterval(() => {
      if (Number(slider.value) >= shown.length - 1) { stop(); return; }
      slider.value = Number(slider.value) + 1;
      show();
    }, 600);
  } }, "Play");
  slider.addEventListener("input", show);
  show();
  const row = shown.length > 1 ? element("div", { class: "row slider" }, play, slider, step) : element("div", { class: "row" }, step);
  return [row, image];
}

function curvesSection(run, runs) {
  if (!run.curves.length) return [element("p", { class: "faint" }, "Nothing was logged yet.")];
  return [element("p", { class: "faint" }, "Over the steps of training. Point at a chart for its values at a step."), element("div", { class: "charts" }, run.curves.map((one) => {
    const same = runs.flatMap((other) => other.curves.filter((candidate) => candidate.title === one.title));
    return chart(one, domainOf(same));
  }))];
}

/** Whether the generator copied what it was trained on. */
function copiesSection(run, panel) {
  if (!run.map) return [missingData()];
  const found = run.memorised;
  if (!found) return [element("p", { class: "faint" }, "This method makes no samples, so there is nothing to check.")];
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const alarming = found.count / found.of > 3 * found.expected;
  const pairs = found.nearest.map((one) => element("figure", { class: `pair ${one.suspicious ? "suspicious" : ""}`, title: `distance ${shortNumber(one.distance)}` },
    element("div", { class: "strip" },
      run.map.generated.sheet ? sampleButton(panel, run.map.count + one.generated, SHOWN) : null, sampleButton(panel, one.of, SHOWN)),
    element("figcaption", {}, isolated(`${one.suspicious ? "too near: " : ""}generated ${one.generated} → ${run.map.names[one.of]}`))));
  return [
    element("p", {}, element("b", {}, `${found.count.toLocaleString("en")} of ${count(found.of, "generated sample")} (${percent(found.count / found.of)})`),
      ` lie nearer to one of ${count(found.compared_with, "training sample")} than all but ${percent(found.expected)} of those lie to each other. New data of the same kind would score about ${percent(found.expected)}. `,
      element("b", {}, alarming ? "Look at the pairs: some seem to be copied." : "Nothing points to copying.")),
    element("p", { class: "faint" }, "The nearest pairs, generated on the left, training on the right:"),
    element("div", { class: "pairs" }, pairs),
  ];
}

function configurationSection(run) {
  const rows = Object.entries(run.config).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, isolated(value))));
  return [element("details", {}, element("summary", {}, `All ${rows.length} options`), element("div", { class: "scroll" }, element("table", { class: "options" }, element("tbody", {}, rows))))];
}

function missingData() {
  return element("p", { class: "faint" }, "The data of the run was not at hand when this page was made.");
}
