// What the layout's tests ask a page: each function returns what is wrong, or what is there, as texts and numbers.

const list = (selector, within = document) => [...within.querySelectorAll(selector)];
const CHARTS = "[data-chart], .flat";

function outside() {
  const parts = list("body *").filter((part) => {
    if (part.closest(".skip, .wide table, svg, .plotly-notifier, .modebar-container")) return false;
    const box = part.getBoundingClientRect();
    return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
  });
  return parts.map((part) => `${part.tagName}.${part.className}: ${part.textContent.slice(0, 40)}`);
}

// Texts that leave their chart.
function clipped() {
  return list(CHARTS).flatMap((chart) => {
    const room = chart.getBoundingClientRect();
    const cut = (box) => box.width > 0 && (box.left < room.left - 1 || box.right > room.right + 1
      || box.top < room.top - 1 || box.bottom > room.bottom + 1);
    const texts = list("svg text", chart).filter((text) => cut(text.getBoundingClientRect()));
    return texts.map((text) => `${chart.dataset.chart}: ${text.textContent}`);
  });
}

// Texts of one chart that lie on each other.
function colliding() {
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  return list(CHARTS).flatMap((chart) => {
    const texts = list(".xtick text, .ytick text, .xtitle, .ytitle, .legendtext, .modebar-group", chart);
    const boxes = texts.map((text) => [text.textContent || "buttons", text.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], i) =>
      boxes.slice(i + 1).filter(([, b]) => over(a, b)).map(([other]) => `${chart.dataset.chart}: ${one} / ${other}`));
  });
}

// Tables whose first column goes away when they are scrolled, or leaves no room for the others.
function unstuck() {
  const boxes = list(".wide").filter((box) => {
    box.scrollLeft = 1e6;
    const left = (part) => part.getBoundingClientRect().left;
    const moved = list("th:first-child", box).some((head) => Math.abs(left(head) - left(box)) > 1);
    const covered = box.scrollWidth > box.clientWidth && list("th", box)[0].clientWidth > 0.6 * box.clientWidth;
    box.scrollLeft = 0;
    return moved || covered;
  });
  return boxes.map((box) => box.textContent.trim().slice(0, 40));
}

// Swatches that are not beside the name that they belong to.
function astray() {
  const lies = (a, b) => a.top >= b.top && a.bottom <= b.bottom && a.left >= b.left && a.right <= b.right;
  const off = list(".swatch").filter((part) => !lies(part.getBoundingClientRect(), part.parentElement.getBoundingClientRect()));
  return off.map((part) => part.parentElement.textContent);
}

// Contrasts as WCAG 2 has them.
const channel = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
const luminance = (colour) =>
  parts(colour).slice(0, 3).reduce((sum, part, i) => sum + [0.2126, 0.7152, 0.0722][i] * channel(part), 0.05);
const isSeen = (colour) => /^rgb/.test(colour) && (parts(colour)[3] ?? 1) > 0.99;

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return high / low;
}

function background(part) {
  const own = getComputedStyle(part).backgroundColor;
  return isSeen(own) ? own : background(part.parentElement);
}

// [contrast, the least there may be, what it is of] of every text, line, swatch and control.
function contrasts() {
  for (const details of list("details")) details.open = true;
  const found = [];
  for (const part of list("body *")) {
    if (part.closest(".modebar-container, .heatmap-label, script, noscript, option")) continue;
    const words = [...part.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim()).join("");
    if (!words || !part.getBoundingClientRect().width) continue;
    const look = getComputedStyle(part), ink = part.closest("svg") ? look.fill : look.color;
    found.push([contrast(ink, background(part.closest("svg")?.parentElement ?? part)), 4.5, words.slice(0, 40)]);
  }
  const drawn = [[".swatch", "backgroundColor"], [".scatterlayer .js-line", "stroke"], ["select, button", "borderTopColor"]];
  for (const [selector, key] of drawn) {
    for (const part of list(selector)) {
      const look = getComputedStyle(part), ink = look[key];
      if (!isSeen(ink) || look.borderTopStyle === "none" && key === "borderTopColor") continue;
      found.push([contrast(ink, background(part.closest("svg")?.parentElement ?? part.parentElement)), 3, selector]);
    }
  }
  return found;
}

// Whether the page, its tables and its charts are light, each.
function lights() {
  const own = (selector) => getComputedStyle(document.querySelector(selector)).backgroundColor;
  const charts = list(CHARTS).map((chart) => chart._fullLayout.paper_bgcolor);
  return [own("html"), own("tbody th"), ...charts].map((colour) => luminance(colour) > 0.5);
}
