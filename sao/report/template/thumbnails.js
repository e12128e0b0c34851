// One picture holds all thumbnails: elements show a part of it as their background, the map copies parts of it.

const sheets = new Map();

async function loadSheets(described) {
  const rules = [];
  for (const [name, sheet] of Object.entries(described)) {
    const [head, body] = sheet.uri.split(",");
    const letters = atob(body);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    const blob = new Blob([bytes], { type: head.slice(5).split(";")[0] });
    const className = `sheet-${sheets.size}`;
    rules.push(`.${className}{background-image:url(${URL.createObjectURL(blob)})}`);
    sheets.set(name, { ...sheet, uri: null, className, bitmap: await createImageBitmap(blob) });
  }
  document.head.append(element("style", {}, rules.join("\n")));
}

/** Whether pixels are to be seen as squares: small images would only be blurred by anything else. */
function coarse(sheet) {
  return Math.max(sheet.width, sheet.height) <= 16;
}

/** A thumbnail so many pixels high, with a name for who cannot see it. */
function thumbnail(sheetName, index, size, name) {
  const sheet = sheets.get(sheetName);
  if (!sheet) return null;
  const factor = size / Math.max(sheet.width, sheet.height);
  const width = sheet.width * factor, height = sheet.height * factor;
  const lines = Math.round(sheet.bitmap.height / sheet.height);
  const made = element("span", { class: `thumbnail ${sheet.className}`, role: "img", "aria-label": isolatedText(name), title: name });
  made.style.width = `${width}px`;
  made.style.height = `${height}px`;
  made.style.backgroundSize = `${sheet.columns * width}px ${lines * height}px`;
  made.style.backgroundPosition = `${-(index % sheet.columns) * width}px ${-Math.floor(index / sheet.columns) * height}px`;
  if (coarse(sheet)) made.style.imageRendering = "pixelated";
  return made;
}
