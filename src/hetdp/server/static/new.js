// The form for a new study. Numbers may have a decimal comma; what is wrong is said beside the field that it concerns.
import { at, busy, call, word } from "./api.js";
import { parse, written } from "./numbers.js";

const form = document.getElementById("new-study");
const field = (id) => document.getElementById(id);
const DAY = 86400;

// ---------------------------------------------------------------------------------------------------------
// Rows: questions, tiers, publications

// Shares are equal until somebody writes one; then they are as written, and what is left is shown.
class Rows {
  constructor(kind, least, most) {
    Object.assign(this, { kind, least, most, list: field(`${kind}-rows`), sum: field(`${kind}-sum`), equal: true });
    field(`add-${kind}`).addEventListener("click", () => this.add({}, true));
    this.list.addEventListener("input", (event) => {
      if (event.target.dataset.part !== "share") return;
      this.equal = false;
      this.settle();
    });
  }
  get all() { return [...this.list.children]; }
  add(values, focus = false) {
    this.list.append(field(`${this.kind}-row`).content.cloneNode(true));
    const row = this.list.lastElementChild;
    for (const [name, value] of Object.entries({ ...this.fresh?.(this.all.length), ...values })) part(row, name).value = value;
    row.querySelector(".remove").addEventListener("click", () => { row.remove(); this.settle(); });
    this.prepare?.(row);
    this.settle();
    if (focus) row.querySelector("input").focus();
  }
  settle() {
    this.all.forEach((row, i) => {
      const legend = row.querySelector("legend");
      if (legend) legend.textContent = word(`script.new.${this.kind}`, { n: i + 1 });
      if (this.sum && this.equal) part(row, "share").value = written(Math.floor(1e4 / this.all.length) / 100, word("script.new.decimal"));
      row.querySelector(".remove").hidden = this.all.length <= this.least;
    });
    field(`add-${this.kind}`).hidden = this.all.length >= this.most;
    if (!this.sum) return;
    const total = this.all.reduce((sum, row) => sum + (percentage(part(row, "share").value).number ?? 0), 0);
    const over = total > 100.0005, rounded = (x) => written(Math.round(1000 * x) / 1000, word("script.new.decimal"));
    this.sum.textContent = this.equal && this.all.length < 2 ? "" : this.equal ? word(`script.new.${this.kind}-equal`) : word(over ? "script.new.too-much" : "script.new.left", { total: rounded(total), left: rounded(Math.abs(100 - total)) });
    this.sum.classList.toggle("bad", !this.equal && over);
  }
  // A share as a part of one, written so that no digit is added by the division; none if all are equal.
  share(row) {
    if (this.equal) return undefined;
    const percent = number(part(row, "share"), percentage);
    if (!(percent >= 0.1 && percent <= 100)) throw new WrongField(part(row, "share"), word("script.new.percent"));
    return Number((percent / 100).toPrecision(12));
  }
}
// No share has thousands, so 33.333 and 33,333 can be read in one way only.
function percentage(typed) {
  const read = parse(typed);
  return read.problem === "two-ways" ? { number: Number(read.smaller.replace(",", ".")) } : read;
}
const part = (row, name) => row.querySelector(`[data-part="${name}"]`);

const questions = new Rows("question", 1, 12), tiers = new Rows("tier", 1, 12), waves = new Rows("wave", 1, 24);
questions.fresh = (n) => ({ name: `q${n}` });
questions.prepare = (row) => {
  const fit = () => row.querySelectorAll("[data-for]").forEach((box) => {
    box.hidden = box.dataset.for !== part(row, "kind").value;
    box.querySelectorAll("input, textarea").forEach((input) => { input.disabled = box.hidden; });
  });
  part(row, "kind").addEventListener("change", fit);
  fit();
};
const local = (date) => new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
const seconds = (input) => Math.floor(new Date(input.value).getTime() / 1000);
waves.fresh = (n) => {
  const before = n > 1 ? seconds(part(waves.all.at(-2), "closes")) + 91 * DAY : seconds(field("opens")) + 14 * DAY;
  return { closes: Number.isNaN(before) ? "" : local(new Date(1000 * before)) };
};

field("opens").value = local(new Date());
questions.add({});
for (const name of ["strict", "standard", "open"]) {
  tiers.add({ name: word(`script.new.${name}`), epsilon: written({ strict: 0.1, standard: 0.5, open: 2 }[name], word("script.new.decimal")), sentence: word(`script.new.${name}-text`) });
}
waves.add({});

// Names and sentences of levels that the form filled in follow the language of the study, unless they were changed.
const filled = JSON.parse(field("levels").textContent);
field("language").addEventListener("change", () => tiers.list.querySelectorAll("input").forEach((input) => {
  for (const words of Object.values(filled)) {
    const key = Object.keys(words).find((one) => words[one] === input.value);
    if (key) { input.value = filled[field("language").value][key]; return; }
  }
}));

form.querySelectorAll('input[name="kind"]').forEach((radio) => radio.addEventListener("change", () => {
  const free = form.elements.kind.value === "free";
  field("free").hidden = !free;
  field("tiers").hidden = free;
  tiers.list.querySelectorAll("input").forEach((input) => { input.disabled = free; });
}));

// ---------------------------------------------------------------------------------------------------------
// Errors beside their fields

let made = 0;
function wrong(element, text) {
  const box = element.closest(".field") ?? element;
  const problem = document.createElement("p");
  Object.assign(problem, { className: "problem", id: `problem-${++made}`, textContent: text });
  problem.setAttribute("role", "alert");
  box.append(problem);
  const target = element.matches("input, select, textarea") ? element : element.querySelector("input:not([disabled]), select, textarea") ?? element;
  target.dataset.described ??= target.getAttribute("aria-describedby") ?? "";
  target.setAttribute("aria-describedby", `${target.dataset.described} ${problem.id}`.trim());
  target.setAttribute("aria-invalid", "true");
  return target;
}
function forget() {
  form.querySelectorAll("p.problem").forEach((problem) => problem.remove());
  form.querySelectorAll("[aria-invalid]").forEach(clear);
}
function clear(input) {
  input.removeAttribute("aria-invalid");
  if (input.dataset.described) input.setAttribute("aria-describedby", input.dataset.described); else input.removeAttribute("aria-describedby");
}
// An error goes once its field is touched.
form.addEventListener("input", (event) => {
  if (!event.target.matches("[aria-invalid]")) return;
  const ids = event.target.getAttribute("aria-describedby").split(" ");
  ids.map((id) => document.getElementById(id)).filter((one) => one?.matches("p.problem")).forEach((problem) => problem.remove());
  clear(event.target);
});
// The element that a path of the API means, such as waves.1.closes; else the nearest part of the form around it.
const LISTS = { questions, tiers, waves };
function locate(path) {
  const [first, i, name] = path.split(".");
  const row = LISTS[first]?.all[Number(i)];
  if (row && i !== undefined) return (name && part(row, name)) ?? row;
  return form.querySelector(`[data-field="${path}"]`) ?? form.querySelector(`[data-field="${first}"]`);
}

class WrongField extends Error {
  constructor(element, text) { super(text); this.element = element; }
}
function number(input, way = parse) {
  const { number: found, problem, larger, smaller } = way(input.value);
  if (problem === "two-ways") throw new WrongField(input, word("script.new.two-ways", { typed: input.value.trim(), larger, smaller: smaller.replace(/[.,]/, word("script.new.decimal")) }));
  if (problem) throw new WrongField(input, word("script.new.number"));
  return found;
}
const level = (input) => (/^(inf|public|∞)$/i.test(input.value.trim()) ? "inf" : number(input));

// ---------------------------------------------------------------------------------------------------------
// What is sent

function question(row) {
  const kind = part(row, "kind").value;
  const about = { name: part(row, "name").value.trim(), kind, text: part(row, "text").value.trim(), share: questions.share(row) };
  if (kind === "number") Object.assign(about, { unit: part(row, "unit").value.trim(), bounds: [number(part(row, "lower")), number(part(row, "upper"))] });
  if (kind === "choice") about.choices = part(row, "choices").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return about;
}
function study() {
  const free = form.elements.kind.value === "free", count = waves.all.length;
  const closes = waves.all.map((row) => seconds(part(row, "closes")));
  return {
    title: field("title").value.trim(),
    questions: questions.all.map(question),
    tiers: free ? [] : tiers.all.map((row) => ({ name: part(row, "name").value.trim(), epsilon: level(part(row, "epsilon")), sentence: part(row, "sentence").value.trim() })),
    free: free ? { least: number(field("least")), most: number(field("most")) } : null,
    opens: seconds(field("opens")),
    waves: waves.all.map((row, i) => ({ closes: closes[i], share: waves.share(row) ?? Math.floor(1e5 / count) / 1e5 })),
    fewest: Number(field("fewest").value),
    changeable: field("changeable").checked,
    until: closes.at(-1) + Number(field("kept").value) * DAY,
    each_wave: form.elements.each.value,
    imports_count: field("imports").checked,
    language: field("language").value,
    about: Object.fromEntries(["institute", "contact", "notice", "consent"].map((name) => [name, field(name).value.trim()])),
  };
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  forget();
  const empty = [...form.querySelectorAll("[required]")].filter((input) => !input.disabled && !input.value.trim());
  if (empty.length) {
    empty.map((input) => wrong(input, word("script.new.required")))[0].focus();
    return;
  }
  busy(form, async () => {
    try {
      const { id } = await call("POST", "/api/studies", study());
      location.assign(at(`/curator/studies/${id}`));
    } catch (error) {
      const element = error.element ?? (error.field && locate(error.field));
      if (!element) throw error;
      const target = wrong(element, error.message);
      setTimeout(() => target.focus()); // once the buttons are back
    }
  });
});
