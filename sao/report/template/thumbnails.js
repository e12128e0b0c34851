// A few pictures hold all thumbnails: elements show a part of one as their background, the map copies parts of them.

const sheets = new Map();

/** Sizes are known at once, so nothing moves when the pictures come. */
function describeSheets(described) {
  for (const [name, sheet] of Object.entries(described)) {
    sheets.set(name, { ...sheet, bitmaps: [], number: sheets.size });
  }
}

async function loadSheets(painted) {
  const style = element("style", {});
  document.head.append(style);
  for (const sheet of sheets.values()) {
    for (const [place, uri] of sheet.uris.entries()) {
      const [head, body] = uri.split(",");
      const blob = new Blob([unpacked(body, Uint8Array)], { type: head.slice(5).split(";")[0] });
      style.append(`.sheet-${sheet.number}-${place}{background-image:url(${URL.createObjectURL(blob)})}\n`);
      sheet.bitmaps[place] = await createImageBitmap(blob);
      painted();
    }
    sheet.uris = null;
  }
}

/** Whether pixels are to be seen as squares: small images would only be blurred by anything else. */
function coarse(sheet) {
  return Math.max(sheet.width, sheet.height) <= 16;
}

/** A thumbnail whose longer side has so many pixels, with a name for who cannot see it. */
function thumbnail(sheetName, index, size, name) {
  const sheet = sheets.get(sheetName);
  if (!sheet) return null;
  const factor = size / Math.max(sheet.width, sheet.height);
  const width = sheet.width * factor, height = sheet.height * factor;
  const picture = Math.floor(index / sheet.each), place = index % sheet.each;
  const left = -(place % sheet.columns) * width, top = -Math.floor(place / sheet.columns) * height;
  const style = `width: ${width}px; height: ${height}px; background-size: ${sheet.columns * width}px auto; `
    + `background-position: ${left}px ${top}px${coarse(sheet) ? "; image-rendering: pixelated" : ""}`;
  return element("span", { class: `thumbnail sheet-${sheet.number}-${picture}`, role: "img", "aria-label": isolatedText(name), title: name, style });
}

/** Where a thumbnail stands: [picture, left, top, width, height], or null while it is not there yet. */
function tileOf(sheetName, index) {
  const sheet = sheets.get(sheetName);
  const bitmap = sheet && sheet.bitmaps[Math.floor(index / sheet.each)];
  if (!bitmap) return null;
  const place = index % sheet.each;
  return [bitmap, place % sheet.columns * sheet.width, Math.floor(place / sheet.columns) * sheet.height, sheet.width, sheet.height];
}
