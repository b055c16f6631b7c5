import { call, language, say, short, whole, word } from "./api.js";
import { brief, draw } from "./chart.js";

const START = JSON.parse(document.getElementById("mix").dataset.start);
const MOST = 6;
const field = (id) => document.getElementById(id);
const tiers = field("tiers");

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

// What one slider takes the others give: shares make 100 % at most, and no tier is stricter than the one before it.
function settle(moved) {
  const all = [...tiers.children], i = all.indexOf(moved), at = (tier, kind) => tier.querySelector(kind);
  const level = Number(at(moved, ".eps").value);
  all.forEach((tier, j) => {
    const input = at(tier, ".eps");
    input.value = j < i ? Math.min(input.value, level) : Math.max(input.value, level);
  });
  let room = 100 - (i < all.length - 1 ? hundredths(moved) : 0);
  all.slice(0, -1).filter((tier) => tier !== moved).forEach((tier) => {
    const share = Math.min(hundredths(tier), room);
    at(tier, ".share").value = share / 100;
    room -= share;
  });
}
const hundredths = (tier) => Math.round(100 * read(tier).share);
const rest = () => 100 - [...tiers.children].slice(0, -1).reduce((sum, tier) => sum + hundredths(tier), 0);

// The last tier is the open one; it takes whom the others leave.
function label() {
  const all = [...tiers.children];
  document.querySelector('output[for="n"]').textContent = whole(people());
  all.forEach((tier, i) => {
    const last = i === all.length - 1;
    tier.querySelector("legend").textContent = last ? word("script.explore.open") : all.length === 2 ? word("script.explore.strict") : word("script.explore.tier", { n: i + 1 });
    tier.querySelectorAll(".slider").forEach((slider) => { // a label that holds an output needs to say whose it is
      const input = slider.querySelector("input");
      input.id = `${input.className}-${i}`;
      slider.querySelector("label").htmlFor = input.id;
    });
    const [eps, share] = tier.querySelectorAll("output");
    eps.textContent = short(read(tier).epsilon);
    share.textContent = `${last ? rest() : hundredths(tier)} %`;
    tier.querySelector(".share").hidden = last;
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
  const mine = ++asked, mix = { n: people(), tiers: [...tiers.children].map(read) };
  try {
    const data = await call("POST", "/api/explore", mix);
    if (mine === asked) show(data, mix.tiers.at(-1).epsilon);
  } catch (error) {
    say(field("said"), error.message, true);
  }
}

// A limit is rounded to its safe side.
const figure = (x, way = "halfExpand") => x.toLocaleString(language, { minimumSignificantDigits: 3, maximumSignificantDigits: 3, useGrouping: false, roundingMode: way });
const percent = (share, way) => `± ${figure(100 * share, way)} %`;

function show(data, allowed) {
  const open = data.people.at(-1) ? data.tiers.find((tier) => tier.epsilon === allowed) : null; // nobody may be in it
  const most = data.tiers.at(-1);
  const adpm = data.comparison.methods.find((entry) => entry.method === "adpm");
  const free = open ? Math.max(0, 1 - open.spent / open.epsilon) : 0;
  field("t").textContent = data.abstains ? "–" : short(data.threshold, "ceil");
  field("free").textContent = !open ? "–" : data.abstains ? word("script.explore.all") : `${Math.floor(100 * free)} %`;
  field("error").textContent = percent(adpm.worst_case_error);
  field("floor").textContent = percent(Math.sqrt(data.comparison.certificate.lower), "floor");
  const facts = { epsilon: short(most.epsilon), spent: short(most.spent, "ceil"), cap: short(data.frontier) };
  say(field("said"), word(data.abstains ? "script.explore.midpoint" : most.spent < 0.999 * most.epsilon ? "script.explore.spends" : "script.explore.in-full", facts));
  document.body.dataset.threshold = data.threshold ?? "";
  charts(data, allowed, open);
  table(data.comparison.methods);
}

function table(methods) {
  const best = Math.min(...methods.map((entry) => entry.worst_case_error ?? Infinity));
  field("table").replaceChildren(...methods.map((entry) => {
    const row = document.createElement("tr");
    const cells = entry.refusal ? [entry.label, "–", "–", "–"]
      : [entry.label, `${figure(100 * entry.worst_case_error)} %`, (entry.worst_case_error / best).toLocaleString(language, { minimumFractionDigits: 2, maximumFractionDigits: 2 }), short(entry.spent.most, "ceil")];
    cells.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (i) cell.className = "num"; else cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
}

// The two methods that matter most are drawn boldly, the others thinly, each with dashes of its own.
function lines(curves) {
  let next = 0;
  return curves.map((curve) => ({
    name: curve.label,
    values: curve.error.map((error) => 100 * error),
    look: ["adpm", "minimax"].includes(curve.method) ? curve.method : `other-${next++}`,
  }));
}

function charts(data, at, open) {
  const { epsilon, methods } = data.over_epsilon, spent = data.over_epsilon.spent.map((one) => (open ? one : null));
  const allowed = { at: epsilon, label: word("script.explore.allows"), short: "ε =", show: short };
  const people = { at: data.over_n.n, label: word("script.explore.people"), short: word("script.explore.people-short"), show: (n) => brief(Math.round(n)) };
  const error = { label: word("script.explore.error"), unit: " %", show: brief, value: figure };
  draw(field("over-epsilon"), {
    title: word("script.explore.over-epsilon"), x: allowed, y: { label: word("script.explore.one-person"), unit: "", show: short, value: (x) => short(x, "ceil") }, mark: at, area: Boolean(open),
    lines: [{ name: word("script.explore.spent"), values: spent, look: "adpm" }, { name: word("script.explore.allowed"), values: epsilon, look: "allowed" }],
  });
  draw(field("methods"), { title: word("script.explore.methods"), x: allowed, y: error, mark: at, lines: lines(methods) });
  draw(field("over-n"), { title: word("script.explore.over-n"), x: people, y: error, mark: data.n, lines: lines(data.over_n.methods) });
}

function reset() {
  field("n").value = Math.log10(START.n);
  tiers.replaceChildren();
  START.tiers.forEach(addTier);
  changed();
}
field("mix").addEventListener("input", (event) => {
  const tier = event.target.closest("fieldset");
  if (tier) settle(tier);
  changed();
});
field("mix").addEventListener("submit", (event) => event.preventDefault());
field("reset").addEventListener("click", reset);
field("add").addEventListener("click", () => {
  const [before, last] = [...tiers.children].slice(-2);
  addTier({ epsilon: Math.sqrt(read(before).epsilon * read(last).epsilon), share: Math.min(15, Math.floor(rest() / 2)) / 100 });
  tiers.insertBefore(tiers.lastElementChild, last);
  changed();
});
reset();
