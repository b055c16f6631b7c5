import { language, short, word } from "./api.js";

// A chart of lines over logarithmic axes, drawn as SVG. Colours are classes of the style sheet, so both schemes work.
// The legend shows the value of each line at the marked place, or where the pointer is.
const EDGE = { left: 62, right: 20, top: 10, bottom: 48 };
const STEPS = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]];
const compact = new Intl.NumberFormat(language, { notation: "compact", maximumSignificantDigits: 3 });
export const brief = (x) => (x < 10_000 ? short(x) : compact.format(x));

function node(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// The finest round numbers between two ends of which there are not too many.
function ticks(low, high, most) {
  const within = (steps) => {
    const found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade += 1)
      for (const step of steps) found.push(Number((step * 10 ** decade).toPrecision(3)));
    return found.filter((x) => x >= low && x <= high);
  };
  return STEPS.map(within).findLast((found) => found.length <= most) ?? [low, high];
}

// Ends of an axis on which all numbers are seen, also if they are nearly the same.
function ends(numbers) {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const room = Math.max(1.08, Math.sqrt(4 * low / high));
  return [low / room, high * room];
}

const scale = (low, high, from, to) => (x) => from + (Math.log(x / low) / Math.log(high / low)) * (to - from);
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

const drawn = new Map();
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  if (drawn.get(target).width !== target.clientWidth) draw(target, drawn.get(target).about);
}));

export function draw(where, about) {
  drawn.set(where, { about, width: where.clientWidth });
  resized.observe(where);
  const { title, x, y, lines, area, mark } = about;
  const [width, height] = [Math.max(where.clientWidth, 240), 320];
  const [x0, x1] = [Math.min(...x.at), Math.max(...x.at)];
  const [y0, y1] = ends(lines.flatMap((line) => line.values).filter((value) => value > 0));
  const across = scale(x0, x1 > x0 ? x1 : 2 * x0, EDGE.left, width - EDGE.right);
  const up = scale(y0, y1, height - EDGE.bottom, EDGE.top);
  const points = (line) => x.at.map((at, i) => [across(at), line.values[i]]).filter(([, value]) => value > 0).map(([at, value]) => [at, up(value)]);

  const svg = node("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": `${where.id}-t ${where.id}-d` });
  svg.append(node("title", { id: `${where.id}-t` }, title), node("desc", { id: `${where.id}-d` }));
  for (const tick of ticks(y0, y1, 8)) {
    svg.append(node("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: up(tick), y2: up(tick) }));
    svg.append(node("text", { x: EDGE.left - 8, y: up(tick) + 4, "text-anchor": "end" }, y.show(tick)));
  }
  for (const tick of ticks(x0, x1, width < 480 ? 5 : 9)) {
    svg.append(node("line", { class: "grid", x1: across(tick), x2: across(tick), y1: EDGE.top, y2: height - EDGE.bottom }));
    svg.append(node("text", { x: across(tick), y: height - EDGE.bottom + 18, "text-anchor": "middle" }, x.show(tick)));
  }
  const middle = (EDGE.top + height - EDGE.bottom) / 2;
  svg.append(node("text", { class: "axis", x: (EDGE.left + width - EDGE.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label));
  svg.append(node("text", { class: "axis", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, y.label));
  if (area) svg.append(node("path", { class: "area", d: `${path([...points(lines[0]), ...points(lines[1]).reverse()])}Z` }));
  [...lines].reverse().forEach((line) => svg.append(node("path", { class: `line ${line.look}`, d: path(points(line)) })));
  const pointer = node("line", { class: "mark", y1: EDGE.top, y2: height - EDGE.bottom });
  svg.append(pointer);

  const legend = document.createElement("ul");
  legend.className = "legend";
  const shown = lines.map((line) => {
    const entry = document.createElement("li");
    const swatch = node("svg", { class: "key-line", viewBox: "0 0 26 10", "aria-hidden": "true" });
    swatch.append(node("path", { class: `line ${line.look}`, d: "M0,5L26,5" }));
    const value = document.createElement("strong");
    entry.append(swatch, `${line.name} `, value);
    legend.append(entry);
    return value;
  });
  const place = document.createElement("li");
  legend.prepend(place);

  // Between two places of the grid a value is read off the line that is drawn there.
  function valueAt(line, at) {
    const i = Math.max(1, x.at.findIndex((there) => there >= at));
    const [left, right] = [line.values[i - 1], line.values[i] ?? line.values[i - 1]];
    if (!(left > 0 && right > 0) || x.at.length < 2) return right || left;
    const part = Math.min(1, Math.max(0, Math.log(at / x.at[i - 1]) / Math.log(x.at[i] / x.at[i - 1])));
    return left * (right / left) ** part;
  }
  function point(at) {
    pointer.setAttribute("x1", across(at));
    pointer.setAttribute("x2", across(at));
    place.textContent = `${x.short} ${x.show(at)}:`;
    lines.forEach((line, i) => { shown[i].textContent = `${y.value(valueAt(line, at))}${y.unit}`; });
  }
  const within = (at) => Math.min(x1, Math.max(x0, at));
  point(within(mark));
  const values = lines.map((line, i) => `${line.name} ${shown[i].textContent}`).join(", ");
  svg.querySelector("desc").textContent = word("script.chart.described", { y: y.label, x: x.label, low: x.show(x0), high: x.show(x1), place: place.textContent, values });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width * width - EDGE.left) / (width - EDGE.left - EDGE.right);
    point(within(x0 * (x1 / x0) ** at));
  });
  svg.addEventListener("pointerleave", () => point(within(mark)));
  where.replaceChildren(legend, svg);
}
