// Clusters, samples over time, copies, curves, configuration.

const SHOWN = 48; // pixels of a thumbnail in a list

function clustersSection(run, panel) {
  if (!run.clusters) return [missingData()];
  const { map } = run;
  const name = (i) => map.names[i];
  const strip = (title, indices, sheet, label, go) => {
    if (!indices || !indices.length) return null;
    const items = indices.map((i, place) => {
      const words = label(i, place);
      const picture = sheet ? thumbnail(sheet, i, SHOWN, words) : isolated(words);
      return element("button", { type: "button", class: sheet ? "bare" : "link", "aria-label": isolatedText(words), onclick: () => go(i) }, picture);
    });
    return element("div", { class: "part" }, element("h4", {}, title), element("div", { class: sheet ? "strip" : "names" }, items));
  };
  const go = (i) => { panel.goTo(i); panel.element.scrollIntoView({ block: "nearest" }); };
  const cards = run.clusters.map((cluster, number) => {
    const dot = element("i", {});
    dot.style.background = css(categoryColour(number));
    const odd = cluster.strange ? `Outliers (${cluster.strange} far from all others)` : "Furthest from the centre";
    return element("article", { class: "cluster" },
      element("h3", {}, dot, `Cluster ${number}`, element("small", {}, count(cluster.size, "sample"))),
      labelBar(cluster.labels, map.classes),
      strip("Central", cluster.central, map.sheet, name, go),
      strip("Borderline", cluster.borderline, map.sheet, (i, place) => `${name(i)}, nearly in cluster ${cluster.towards[place]}`, go),
      strip(odd, cluster.outliers, map.sheet, name, go),
      !map.generated ? null : cluster.generated_count
        ? strip(`Generated nearest to the centre (of ${cluster.generated_count})`, cluster.generated, map.generated.sheet, (i) => `generated ${i}`, (i) => go(map.count + i))
        : element("p", { class: "faint" }, "No generated sample falls into this cluster."));
  });
  return [element("div", { class: "clusters" }, cards)];
}

/** Which labels a cluster holds, as a bar and in words. */
function labelBar(labels, classes) {
  if (!labels || !labels.length) return null;
  const total = labels.reduce((sum, [, size]) => sum + size, 0);
  const parts = labels.map(([code, size]) => {
    const part = element("i", { title: `${classes[code]}: ${size}` });
    part.style.background = css(categoryColour(code));
    part.style.flexGrow = size;
    return part;
  });
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

function copiesSection(run) {
  if (!run.map) return [missingData()];
  return [element("h3", {}, "Near-duplicates"), ...duplicates(run), element("h3", {}, "Did the generator copy?"), ...memorised(run)];
}

function duplicates(run) {
  const found = run.duplicates;
  if (!found) return [element("p", { class: "faint" }, "There are too few samples to say what is unusually near.")];
  const what = run.map.sheet
    ? "Two images count as near-duplicates if they differ, at about 16×16 pixels, by less than a fifth of what an image usually differs from its nearest other one."
    : "Rows count as duplicates if they are equal.";
  const pair = (title, one, other) => element("figure", { class: "pair", title },
    element("div", { class: "strip" }, one, other), element("figcaption", {}, isolated(title)));
  const own = (i) => run.map.sheet ? thumbnail(run.map.sheet, i, SHOWN, run.map.names[i]) : null;
  const within = found.within.map((one) => pair(`${run.map.names[one.a]} = ${run.map.names[one.b]}`, own(one.a), own(one.b)));
  const across = found.across.map((one) => pair(`${run.map.names[one.a]} = ${trainName(run, one.row)}`, own(one.a), trainThumbnail(run, one.row)));
  const list = (pairs, total) => pairs.length ? [element("div", { class: "pairs" }, pairs),
    pairs.length < total ? element("p", { class: "faint" }, `The nearest ${pairs.length} are shown.`) : null] : [];
  return [
    element("p", { class: "faint" }, what),
    element("p", {}, element("b", {}, count(found.within_count, "pair")), ` among the ${count(run.map.count, "held-out sample")} shown.`), ...list(within, found.within_count),
    element("p", {}, element("b", {}, count(found.across_count, "held-out sample")), ` with a near-duplicate among ${count(found.compared_with, "training sample")}`,
      found.across_count ? ": what is measured on them says little about new data." : "."), ...list(across, found.across_count),
  ];
}

function memorised(run) {
  const found = run.memorised;
  if (!found) return [element("p", { class: "faint" }, "This method makes no samples, so there is nothing to check.")];
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const alarming = found.count / found.of > 3 * found.expected;
  const pairs = found.nearest.map((one) => element("figure", { class: `pair ${one.suspicious ? "suspicious" : ""}`, title: `distance ${shortNumber(one.distance)}` },
    element("div", { class: "strip" },
      run.map.generated.sheet ? thumbnail(run.map.generated.sheet, one.generated, SHOWN, `generated ${one.generated}`) : null, trainThumbnail(run, one.row)),
    element("figcaption", {}, isolated(`${one.suspicious ? "too near: " : ""}generated ${one.generated} → ${trainName(run, one.row)}`))));
  return [
    element("p", {}, element("b", {}, `${found.count.toLocaleString("en")} of ${count(found.of, "generated sample")} (${percent(found.count / found.of)})`),
      ` lie nearer to one of ${count(found.compared_with, "training sample")} than all but ${percent(found.expected)} of those lie to each other. New data of the same kind would score about ${percent(found.expected)}. `,
      element("b", {}, alarming ? "Look at the pairs: some seem to be copied." : "Nothing points to copying.")),
    element("p", { class: "faint" }, "The nearest pairs, generated on the left, training on the right:"),
    element("div", { class: "pairs" }, pairs),
  ];
}

function trainName(run, row) { return run.train.rows[row].name; }

function trainThumbnail(run, row) {
  return run.train.sheet ? thumbnail(run.train.sheet, run.train.rows[row].place, SHOWN, trainName(run, row)) : null;
}

function configurationSection(run) {
  const rows = Object.entries(run.config).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, isolated(value))));
  return [element("details", {}, element("summary", {}, `All ${rows.length} options`), element("div", { class: "scroll" }, element("table", { class: "options" }, element("tbody", {}, rows))))];
}

function missingData() {
  return element("p", { class: "faint" }, "The data of the run was not at hand when this page was made.");
}
