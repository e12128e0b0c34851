// Elements are made with their text as text: no name or label is ever read as markup.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Numbers that Python packed into text. */
function unpacked(text, Kind) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Kind(bytes.buffer);
}

/** A name shown in a line of other words: its own direction of writing ends with it. */
function isolated(text) {
  return element("bdi", {}, text);
}

/** The same where there are only letters, as in a label for a screen reader. */
function isolatedText(text) {
  return "\u2068" + text + "\u2069";
}

function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(2);
  return size >= 1000 ? value.toFixed(0) : size >= 100 ? value.toFixed(1) : size >= 10 ? value.toFixed(2) : value.toFixed(3);
}

function count(number, one, many) {
  return number.toLocaleString("en") + " " + (number === 1 ? one : many || one + "s");
}

/** Colours that can be told apart on white and on black, also by most who see fewer of them. */
const PALETTE = [
  [76, 120, 200], [240, 140, 40], [64, 165, 95], [214, 72, 78], [142, 105, 200],
  [150, 108, 84], [225, 120, 185], [120, 130, 145], [180, 175, 45], [50, 180, 200],
  [25, 75, 145], [175, 90, 10], [20, 110, 60], [150, 30, 60], [90, 55, 150],
  [250, 180, 130], [140, 210, 150], [245, 160, 165], [195, 175, 230], [160, 215, 230],
];

function categoryColour(index) {
  if (index < PALETTE.length) return PALETTE[index];
  // Further ones: the golden angle keeps neighbours in number apart in hue.
  const hue = (index * 137.508) % 360;
  const lightness = 0.45 + 0.15 * (index % 3 - 1);
  const channel = (shift) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (lightness - 0.3 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}

const SCALE = [[52, 34, 110], [56, 88, 150], [38, 135, 142], [70, 180, 110], [170, 214, 60], [250, 230, 70]];

/** From dark blue over green to yellow, for a share between 0 and 1. */
function scaleColour(share) {
  const place = Math.max(0, Math.min(0.9999, share)) * (SCALE.length - 1);
  const low = Math.floor(place);
  return SCALE[low].map((value, i) => Math.round(value + (SCALE[low + 1][i] - value) * (place - low)));
}

function css(colour) {
  return `rgb(${colour[0]} ${colour[1]} ${colour[2]})`;
}

/** A spot in the colour of a category. */
function swatch(category) {
  return element("i", { style: `background: ${css(categoryColour(category))}` });
}

function say(text) {
  document.getElementById("live").textContent = text;
}

/** Text beside the pointer or the focused element: what a number means, how it was measured. */
function explain(target, lines) {
  const box = document.getElementById("hover");
  const show = () => {
    box.replaceChildren(...lines());
    box.hidden = false;
    const place = target.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left), window.innerWidth - size.width - 8);
    const below = place.bottom + 6 + size.height < window.innerHeight;
    box.style.left = `${left + window.scrollX}px`;
    box.style.top = `${(below ? place.bottom + 6 : place.top - size.height - 6) + window.scrollY}px`;
  };
  const hide = () => { box.hidden = true; };
  target.setAttribute("aria-describedby", "hover");
  for (const event of ["pointerenter", "focus"]) target.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) target.addEventListener(event, hide);
  target.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}
