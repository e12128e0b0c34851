// A sample in words and as a card: beside the pointer, at the side of the map, in a window of its own, and read out.

function sampleFacts(view, i) {
  const facts = [isolatedText(view.labelled.groupName(view.groups[i]))];
  if (view.labels && i < view.real) facts.push(`class ${isolatedText(view.classes[view.labels[i]])}`);
  if (view.isHeldOut(i)) facts.push("held out");
  if (view.norms && Number.isFinite(view.norms[i])) facts.push(`σ ${shortNumber(view.norms[i])}`);
  const own = i < view.real ? view.labelled.of(i) : "";
  if (own && own !== view.labelled.groupName(view.groups[i])) facts.push(`label ${isolatedText(own)}`);
  return facts;
}

function sampleWords(view, i) {
  const near = view.neighbours(i).slice(0, 5).map((j) => isolatedText(view.name(j)));
  return `${isolatedText(view.name(i))}: ${sampleFacts(view, i).join(", ")}. Nearest: ${near.join(", ")}.`;
}

/** Its name; a link to its file where there is one. */
function sampleName(view, i) {
  const href = view.link(i);
  return href ? element("a", { href, target: "_blank", rel: "noopener" }, isolated(view.name(i))) : isolated(view.name(i));
}

/** With `onclick` its neighbours are buttons: a search goes on from any of them. */
function sampleCard(view, i, size, small, onclick) {
  const [sheet, place] = view.sheetOf(i);
  const near = view.neighbours(i).map((j, n) => {
    const similarity = view.similarity(i, n);
    const words = similarity === null ? view.name(j) : `${view.name(j)}, similarity ${similarity.toFixed(2)}`;
    const picture = thumbnail(...view.sheetOf(j), small, words);
    const label = picture || isolated(view.name(j));
    if (!onclick) return element("span", { class: picture ? null : "row" }, label);
    const look = { type: "button", class: picture ? "bare" : "link", "aria-label": isolatedText(words) };
    return element("button", { ...look, onclick: () => onclick(j) }, label);
  });
  return [
    element("div", { class: "head" }, sheet ? thumbnail(sheet, place, size, view.name(i)) : null,
      element("div", {}, element("strong", { class: "name" }, onclick ? sampleName(view, i) : isolated(view.name(i))),
        element("div", { class: "facts" }, sampleFacts(view, i).join(" · ")))),
    element("div", { class: "near" }, element("span", { class: "faint" }, view.isGenerated(i) ? "Nearest real ones" : "Most similar"),
      element("div", { class: sheet ? "strip" : "names" }, near)),
  ];
}

/** A window with one sample and what is most similar to it, from anywhere on the page. */
function openSample(panel, i) {
  const { view } = panel;
  const shown = document.getElementById("sample");
  const close = () => shown.close();
  const wide = window.innerWidth >= 640;
  const label = labelField(panel.knownLabels, "Label of this image");
  label.value = i < view.real ? view.labelled.of(i) : "";
  label.addEventListener("change", () => view.labelled.label([i], label.value));
  shown.replaceChildren(
    element("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: close }, "×"),
    ...sampleCard(view, i, wide ? 200 : 150, wide ? 96 : 66, (j) => openSample(panel, j)),
    element("div", { class: "row" },
      element("button", { type: "button", onclick: () => { close(); panel.goTo(i); panel.element.scrollIntoView({ block: "nearest" }); } }, "Show on the map"),
      i < view.real ? label : null),
  );
  if (!shown.open) shown.showModal();
  shown.querySelector(".close").focus();
}

/** A thumbnail that opens its sample. */
function sampleButton(panel, i, size, words) {
  const { view } = panel;
  const picture = thumbnail(...view.sheetOf(i), size, words || view.name(i));
  const kind = picture ? `bare${view.isHeldOut(i) ? " held-out" : ""}` : "link";
  return element("button", { type: "button", class: kind, "aria-label": isolatedText(words || view.name(i)), onclick: () => openSample(panel, i) },
    picture || isolated(view.name(i)));
}
