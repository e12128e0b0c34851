// A sample in words and as a card: beside the pointer, at the side of the map, and read out.

function sampleFacts(view, i) {
  const facts = [`cluster ${view.clusters[i]}`];
  if (view.labels && i < view.real) facts.unshift(isolatedText(view.classes[view.labels[i]]));
  if (view.norms && Number.isFinite(view.norms[i])) facts.push(`σ ${shortNumber(view.norms[i])}`);
  return facts;
}

function sampleWords(view, i) {
  const near = view.neighbours(i).map((j) => isolatedText(view.name(j)));
  return `${isolatedText(view.name(i))}: ${sampleFacts(view, i).join(", ")}. Nearest: ${near.join(", ")}.`;
}

/** With `onclick` its neighbours are buttons. */
function sampleCard(view, i, size, small, onclick) {
  const [sheet, place] = view.sheetOf(i);
  const near = view.neighbours(i).map((j) => {
    const picture = thumbnail(...view.sheetOf(j), small, view.name(j));
    const label = picture || isolated(view.name(j));
    if (!onclick) return element("span", { class: picture ? null : "row" }, label);
    const look = { type: "button", class: picture ? "bare" : "link", "aria-label": isolatedText(view.name(j)) };
    return element("button", { ...look, onclick: () => onclick(j) }, label);
  });
  return [
    element("div", { class: "head" }, sheet ? thumbnail(sheet, place, size, view.name(i)) : null,
      element("div", {}, element("strong", { class: "name" }, isolated(view.name(i))),
        element("div", { class: "facts" }, sampleFacts(view, i).join(" · ")))),
    element("div", { class: "near" }, element("span", { class: "faint" }, view.isGenerated(i) ? "nearest held-out" : "nearest"),
      element("div", { class: sheet ? "strip" : "names" }, near)),
  ];
}
