import { call, say, short } from "./api.js";

const START = JSON.parse(document.getElementById("mix").dataset.start);
const MOST = 6;
const field = (id) => document.getElementById(id);
const tiers = field("tiers");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function addTier({ epsilon, share }) {
  const node = field("tier").content.cloneNode(true);
  node.querySelector(".eps").value = Math.log10(epsilon);
  node.querySelector(".share").value = share;
  node.querySelector(".remove").addEventListener("click", (event) => { event.target.closest("fieldset").remove(); changed(); });
  tiers.append(node);
}

function people() { return Math.round(10 ** Number(field("n").value)); }
function read(tier) {
  return { epsilon: Number((10 ** Number(tier.querySelector(".eps").value)).toPrecision(3)), share: Number(tier.querySelector(".share").value) };
}

// The last tier is the open one; it takes whom the others leave.
function label() {
  const all = [...tiers.children];
  document.querySelector('output[for="n"]').textContent = people().toLocaleString();
  all.forEach((tier, i) => {
    const last = i === all.length - 1;
    tier.querySelector("legend").textContent = last ? "Open tier" : all.length === 2 ? "Strict tier" : `Tier ${i + 1}`;
    tier.querySelectorAll(".slider").forEach((slider) => { // a label that holds an output needs to say whose it is
      const input = slider.querySelector("input");
      input.id = `${input.className}-${i}`;
      slider.querySelector("label").htmlFor = input.id;
    });
    const [eps, share] = tier.querySelectorAll("output");
    eps.textContent = short(read(tier).epsilon);
    share.textContent = `${Math.round(100 * read(tier).share)} %`;
    tier.querySelector(".share-slider").hidden = last;
    tier.querySelector(".remove").hidden = all.length < 3 || last;
  });
  field("add").hidden = all.length >= MOST;
}

let asked = 0;
let timer;
function changed() {
  label();
  clearTimeout(timer);
  timer = setTimeout(ask, 120);
}
async function ask() {
  const mine = ++asked;
  try {
    const data = await call("POST", "/api/explore", { n: people(), tiers: [...tiers.children].map(read) });
    if (mine === asked) show(data);
  } catch (error) {
    say(field("said"), error.message, true);
  }
}

function show(data) {
  const asked = read(tiers.lastElementChild).epsilon;
  const open = data.tiers.find((tier) => tier.epsilon === asked) ?? data.tiers.at(-1);
  const most = data.tiers.at(-1);
  const adpm = data.comparison.methods.find((entry) => entry.method === "adpm");
  const free = open.epsilon > 0 ? Math.max(0, 1 - open.spent / open.epsilon) : 0;
  field("t").textContent = data.abstains ? "–" : short(data.threshold);
  field("free").textContent = data.abstains ? "all" : `${Math.floor(100 * free)} %`;
  field("error").textContent = `± ${(100 * adpm.worst_case_error).toPrecision(3)} %`;
  field("floor").textContent = `± ${(100 * Math.sqrt(data.comparison.certificate.lower)).toPrecision(3)} %`;
  say(field("said"), data.abstains
    ? "So few people, or so little ε, that the best answer is the midpoint: no data is used."
    : most.spent < 0.999 * most.epsilon
      ? `People who allow ε = ${short(most.epsilon)} spend ${short(most.spent)}. With ε = ${short(data.frontier)} for everybody above it, the squared error would grow by 1 %.`
      : "Nobody is above the saturation level: everybody's ε is used in full.");
  document.body.dataset.threshold = data.threshold ?? "";
  draw(data, open);
  table(data.comparison.methods);
}

function table(methods) {
  const best = Math.min(...methods.map((entry) => entry.worst_case_error ?? Infinity));
  field("table").replaceChildren(...methods.map((entry) => {
    const row = document.createElement("tr");
    const cells = entry.refusal ? [entry.label, "–", "–", "–"]
      : [entry.label, `${(100 * entry.worst_case_error).toPrecision(3)} %`, (entry.worst_case_error / best).toFixed(2), short(entry.spent.most)];
    cells.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (i) cell.className = "num"; else cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
}

const faded = (hex) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},0.55)`;
const LOUD = { adpm: 3.5, minimax: 2 };
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash", "dot"];
function lines(curves, x) {
  const hues = ["#8f6bb1", "#c27d2c", "#4b8fd0", "#b5566b", "#7a8a3a", "#3f9c9c", "#9a7b5b"];
  let next = 0;
  return curves.map((curve, i) => ({
    x, y: curve.error.map((e) => 100 * e), name: curve.label, mode: "lines", hovertemplate: "%{y:.3g} %",
    line: {
      width: LOUD[curve.method] ?? 1.6, dash: curve.method === "adpm" ? "solid" : DASHES[i],
      color: curve.method === "adpm" ? colour("--accent") : curve.method === "minimax" ? colour("--ink") : hues[next++ % hues.length],
    },
  }));
}

function layout(xtitle, ytitle, extra) {
  const axis = { type: "log", gridcolor: colour("--line"), zeroline: false, linecolor: colour("--line"), dtick: 1, automargin: true };
  return {
    margin: { l: 56, r: 12, t: 8, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified",
    font: { color: colour("--soft"), size: 12, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: colour("--surface"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
    xaxis: { ...axis, title: { text: xtitle } }, yaxis: { ...axis, dtick: "D2", title: { text: ytitle } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, ...extra,
  };
}
const upright = (x) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: colour("--soft"), width: 1, dash: "dot" } });
const OPTIONS = { displayModeBar: false, responsive: true, staticPlot: false };

function draw(data, open) {
  const { epsilon, spent, methods } = data.over_epsilon;
  Plotly.react("over-epsilon", [
    { x: epsilon, y: spent, name: "spent", mode: "lines", line: { color: colour("--accent"), width: 3.5 }, fill: "tozeroy", fillcolor: "rgba(0,0,0,0)", hovertemplate: "%{y:.3g}" },
    { x: epsilon, y: epsilon, name: "allowed; what lies between is free", mode: "lines", line: { color: colour("--soft"), width: 1.5, dash: "dash" }, fill: "tonexty", fillcolor: faded(colour("--pale")), hovertemplate: "%{y:.3g}" },
  ], layout("ε that the open tier allows", "ε", { shapes: [upright(open.epsilon)] }), OPTIONS);
  Plotly.react("methods", lines(methods, epsilon), layout("ε that the open tier allows", "worst-case error, % of the range", { shapes: [upright(open.epsilon)] }), OPTIONS);
  Plotly.react("over-n", lines(data.over_n.methods, data.over_n.n), layout("people", "worst-case error, % of the range", { shapes: [upright(data.n)] }), OPTIONS);
}

function reset() {
  field("n").value = Math.log10(START.n);
  tiers.replaceChildren();
  START.tiers.forEach(addTier);
  changed();
}
field("mix").addEventListener("input", changed);
field("mix").addEventListener("submit", (event) => event.preventDefault());
field("reset").addEventListener("click", reset);
field("add").addEventListener("click", () => {
  const last = tiers.lastElementChild;
  addTier({ epsilon: Math.sqrt(read(tiers.children[0]).epsilon * read(last).epsilon), share: 0.15 });
  tiers.insertBefore(tiers.lastElementChild, last);
  changed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ask);
reset();
