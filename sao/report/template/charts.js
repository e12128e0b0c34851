// Curves as SVG, with the values at the pointer below each.

const CHART = { width: 380, height: 190, left: 46, right: 10, top: 10, bottom: 24 };

function chart(described, domain) {
  const { width, height, left, right, top, bottom } = CHART;
  const x = (step) => left + (width - left - right) * (step - domain.first) / Math.max(1, domain.last - domain.first);
  const y = (value) => top + (height - top - bottom) * (domain.high - value) / (domain.high - domain.low);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chartWords(described) });
  for (const tick of ticks(domain.low, domain.high, 4)) {
    picture.append(
      shape("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      shape("text", { class: "tick", x: left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, tickWords(tick)),
    );
  }
  for (const tick of ticks(domain.first, domain.last, 5)) {
    picture.append(shape("text", { class: "tick", x: x(tick), y: height - 7, "text-anchor": "middle" }, tickWords(tick)));
  }
  if (described.kind === "band" && described.series.length === 3) picture.append(band(described.series, x, y));
  described.series.forEach((one, index) => {
    const points = one.steps.map((step, i) => `${x(step).toFixed(1)},${y(one.values[i]).toFixed(1)}`);
    const colour = css(categoryColour(seriesColour(described, index)));
    if (points.length === 1) {
      picture.append(shape("circle", { cx: x(one.steps[0]), cy: y(one.values[0]), r: 3, fill: colour }));
    } else {
      const faint = described.kind === "band" && index !== 1 ? 0.55 : 1;
      picture.append(shape("polyline", { points: points.join(" "), fill: "none", stroke: colour, opacity: faint, class: "curve" }));
    }
  });
  const marker = shape("line", { class: "marker", y1: top, y2: height - bottom, x1: left, x2: left, visibility: "hidden" });
  picture.append(marker);
  const legend = element("div", { class: "legend-line" });
  const fill = (step) => legend.replaceChildren(...legendParts(described, step));
  fill(null);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * width;
    const step = domain.first + (place - left) / (width - left - right) * (domain.last - domain.first);
    const at = nearestStep(described, step);
    marker.setAttribute("x1", x(at));
    marker.setAttribute("x2", x(at));
    marker.setAttribute("visibility", "visible");
    fill(at);
  });
  picture.addEventListener("pointerleave", () => { marker.setAttribute("visibility", "hidden"); fill(null); });
  return element("figure", { class: "chart" }, element("figcaption", {}, described.title), picture, legend);
}

function seriesColour(described, index) {
  return described.kind === "band" ? 0 : index;
}

function band(series, x, y) {
  const [low, , high] = series;
  const upper = high.steps.map((step, i) => `${x(step).toFixed(1)},${y(high.values[i]).toFixed(1)}`);
  const lower = low.steps.map((step, i) => `${x(step).toFixed(1)},${y(low.values[i]).toFixed(1)}`).reverse();
  return shape("polygon", { points: [...upper, ...lower].join(" "), fill: css(categoryColour(0)), opacity: 0.16 });
}

function legendParts(described, step) {
  return [
    element("span", { class: "at" }, step === null ? "last" : `step ${step}`),
    ...described.series.map((one, index) => {
      const value = step === null ? one.values[one.values.length - 1] : one.values[closest(one.steps, step)];
      return element("span", {}, swatch(seriesColour(described, index)), `${one.name} `, element("b", {}, shortNumber(value)));
    }),
  ];
}

function closest(steps, step) {
  let best = 0;
  for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - step) < Math.abs(steps[best] - step)) best = i;
  return best;
}

function nearestStep(described, step) {
  const longest = described.series.reduce((a, b) => (a.steps.length >= b.steps.length ? a : b));
  return longest.steps[closest(longest.steps, step)];
}

/** The range that the same chart of all runs needs, so that they can be compared by eye. */
function domainOf(charts) {
  const steps = charts.flatMap((one) => one.series.flatMap((s) => s.steps));
  const values = charts.flatMap((one) => one.series.flatMap((s) => s.values));
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return {
    first: steps.reduce((a, b) => Math.min(a, b), Infinity), last: steps.reduce((a, b) => Math.max(a, b), -Infinity),
    low: low - room, high: high + room,
  };
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / distance) * distance; at <= high + distance * 1e-6; at += distance) found.push(at);
  return found;
}

function tickWords(value) {
  const rounded = Number(value.toPrecision(4));
  return Math.abs(rounded) < 1e-12 ? "0" : Math.abs(rounded) >= 1e5 ? rounded.toExponential(0) : String(rounded);
}

function chartWords(described) {
  const last = described.series.map((one) => `${one.name} ${shortNumber(one.values[one.values.length - 1])}`);
  return `${described.title}; last values: ${last.join(", ")}`;
}
