// A participant's way: privacy first, then the questions, then a look at what is sent, then the receipt.
import { busy, call, complain, renew, twice, word } from "./api.js";
import { parse, written } from "./numbers.js";
import { localTimes } from "./page.js";

const form = document.getElementById("answer");
const stop = document.getElementById("stop");
const cards = [...document.querySelectorAll(".choice")];
const study = form && JSON.parse(document.getElementById("study").textContent);
const field = (id) => document.getElementById(id);
const questions = study?.questions.map((question) => ({ ...question, id: `q-${question.name}`, box: form.querySelector(`fieldset[data-question="${question.name}"]`) })) ?? [];

// ---------------------------------------------------------------------------------------------------------
// The privacy choice

// Nothing is chosen until the person chooses: a slider has a place from the start, which counts only once it was touched.
function chosen() {
  if (stop) return stop.classList.contains("unset") ? undefined : cards[Number(stop.value)];
  return form.querySelector('input[name="choice"]:checked')?.closest(".choice");
}
const chooser = () => stop ?? form.querySelector('input[name="choice"]');
const choiceError = (text) => complain(stop ?? field("choices"), field("choice-error"), text);
const moreError = (text) => complain(field("allow-more"), field("more-error"), text);

// A slider shows one card at a time. To allow more than before has to be confirmed, each time anew.
function show() {
  const card = chosen();
  field("more").hidden = card?.dataset.more === undefined;
  field("allow-more").checked = false;
  if (card) choiceError("");
  moreError("");
  if (!stop || !card) return;
  cards.forEach((other) => { other.hidden = other !== card; });
  field("stop-name").textContent = card.dataset.shown;
  stop.setAttribute("aria-valuetext", [".choice-meaning", ".choice-limit"].reduce((text, part) => `${text}. ${card.querySelector(part).textContent}`, card.dataset.shown));
}
function touched() {
  stop.classList.remove("unset");
  show();
}
if (stop) {
  stop.addEventListener("input", touched);
  // At the end where it stands already no input is reported.
  stop.addEventListener("pointerup", touched);
  stop.addEventListener("keyup", (event) => { if (/^(Arrow|Home|End|Page)/.test(event.key)) touched(); });
}
if (form) {
  form.querySelectorAll('input[name="choice"]').forEach((radio) => radio.addEventListener("change", show));
  show();
}
function choiceWrong() {
  const card = chosen(), unsure = card?.dataset.more !== undefined && !field("allow-more").checked;
  choiceError(card ? "" : word("script.answer.choose"));
  moreError(unsure ? word("script.answer.confirm") : "");
  return !card ? chooser() : unsure ? field("allow-more") : null;
}

// ---------------------------------------------------------------------------------------------------------
// The questions. Values are checked here, where only their owner sees the verdict; the server takes everything without a word.

// What a question holds: {value, shown}, or {wrong, where} for an error beside the field.
function read(question) {
  if (question.kind !== "number") {
    const radio = question.box.querySelector("input:checked");
    if (!radio) return { wrong: word("script.answer.pick"), where: question.box.querySelector("input") };
    if (radio.value === "none") return { value: null, shown: radio.dataset.shown };
    const i = Number(radio.value);
    return { value: question.kind === "yes-no" ? i === 0 : question.choices[i], shown: radio.dataset.shown };
  }
  const input = field(question.id), none = field(`${question.id}-none`)?.checked;
  const { number, problem, larger, smaller } = parse(input.value);
  if (none && problem === "none") return { value: null, shown: word("script.answer.not-said") };
  if (none) return { wrong: word("script.answer.both"), where: input };
  const decimal = word("script.answer.decimal"), [low, high] = question.bounds, typed = input.value.trim();
  if (problem === "two-ways") {
    const fits = [larger, smaller].filter((way) => { const x = Number(way.replace(",", ".")); return x >= low && x <= high; });
    const [value, other] = fits.map((way) => way.replace(/[.,]/, decimal));
    if (other) return { wrong: word("script.answer.two-ways", { typed, larger: value, smaller: other }), where: input };
    if (value) return { wrong: word("script.answer.one-way", { typed, value }), where: input };
  }
  if (problem && problem !== "two-ways") return { wrong: word(`script.answer.${problem}`), where: input };
  if (problem || number < low || number > high) return { wrong: word("script.answer.outside", { low: written(low, decimal), high: written(high, decimal) }), where: input };
  return { value: number, shown: `${written(number, decimal)} ${question.unit}`.trim() };
}
function questionsWrong() {
  let first = null;
  for (const question of questions) {
    const { wrong, where } = read(question);
    complain(question.kind === "number" ? field(question.id) : question.box, field(`${question.id}-error`), wrong ?? "");
    if (wrong) first ??= where;
  }
  return first;
}
// An error goes once its field is touched.
questions.forEach((question) => question.box.addEventListener("input", () => {
  complain(question.kind === "number" ? field(question.id) : question.box, field(`${question.id}-error`), "");
}));
field("consent")?.addEventListener("change", (event) => complain(event.target, field("consent-error"), ""));
field("allow-more")?.addEventListener("change", () => moreError(""));
// Who says that they prefer not to say has said nothing, and the other way round.
questions.filter((question) => question.kind === "number" && question.optional).forEach((question) => {
  const input = field(question.id), none = field(`${question.id}-none`);
  none.addEventListener("change", () => { if (none.checked) input.value = ""; });
  input.addEventListener("input", () => { if (input.value) none.checked = false; });
});

// ---------------------------------------------------------------------------------------------------------
// The steps

const STEPS = { privacy: () => null, questions: choiceWrong, check: () => choiceWrong() ?? questionsWrong() };

function reveal(name) {
  form.querySelectorAll(".step").forEach((step) => { step.hidden = step.dataset.step !== name; });
  return form.querySelector(`[data-step="${name}"]`);
}
function go(name) {
  const wrong = STEPS[name]();
  if (wrong) {
    reveal(wrong.closest(".step").dataset.step);
    wrong.focus();
    return;
  }
  if (name === "check") {
    questions.forEach((question) => { form.querySelector(`dd[data-of="${question.name}"]`).textContent = read(question).shown; });
    field("sent-choice").textContent = chosen().dataset.shown;
  }
  reveal(name).querySelector("h2").focus();
  scrollTo(0, form.offsetTop - 20);
}
// Who leaves, or switches the language, while something is entered and not sent is asked first.
let entered = false;
form?.addEventListener("input", () => { entered = true; });
addEventListener("beforeunload", (event) => { if (entered) event.preventDefault(); });
form?.addEventListener("click", (event) => { if (event.target.dataset.go) go(event.target.dataset.go); });
// Enter in a field goes on, as the button below it does.
form?.addEventListener("keydown", (event) => {
  const next = event.target.closest(".step")?.querySelector(".button");
  if (event.key !== "Enter" || !event.target.matches("input") || next?.type !== "button") return;
  event.preventDefault();
  next.click();
});

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const consent = field("consent");
  if (STEPS.check()) { go("check"); return; }
  if (consent) {
    complain(consent, field("consent-error"), consent.checked ? "" : word("script.answer.consent"));
    if (!consent.checked) { consent.focus(); return; }
  }
  busy(form.querySelector('[data-step="check"]'), send);
});

async function send() {
  const card = chosen();
  const choice = stop ? { epsilon: Number(card.dataset.epsilon) } : { tier: card.dataset.name };
  const answers = Object.fromEntries(questions.map((question) => [question.name, read(question).value]));
  const agreed = field("consent") ? { consent: true } : {};
  try {
    // If a date or the publication has moved since this page was made, it promises what no longer holds: nothing is sent.
    const { wave, closes } = study;
    await receipt(await call("PUT", "/api/answer", { answers, ...choice, ...agreed, allow_more: field("allow-more").checked, wave, closes }), card);
  } catch (error) {
    if (!["choice", "more"].includes(error.code)) throw error;
    reveal("privacy");
    field("more").hidden = error.code !== "more";
    (error.code === "more" ? moreError : choiceError)(error.message);
    (error.code === "more" ? field("allow-more") : chooser()).focus();
  }
}

async function receipt(said, card) {
  entered = false;
  form.reset(); // no value stays on the page
  form.hidden = true;
  form.querySelectorAll("#sent dd").forEach((shown) => { shown.textContent = ""; });
  field("joined")?.remove();
  field("results")?.remove(); // the receipt has it
  if (Number(card.dataset.epsilon) === 0) field("receipt-title").textContent = field("receipt-title").dataset.unused;
  field("receipt-choice").textContent = card.dataset.shown;
  const time = (seconds) => `<time datetime="${new Date(1000 * seconds).toISOString()}"></time>`;
  field("receipt-time").innerHTML = time(said.at);
  field("receipt-until").querySelectorAll("time").forEach((date) => { date.outerHTML = time(said.closes); });
  localTimes(field("receipt"));
  if (said.come_back) {
    field("link").value = said.come_back;
    field("come-back").hidden = false;
  }
  field("same-link").hidden = Boolean(said.come_back);
  field("receipt").hidden = false;
  field("receipt").focus({ preventScroll: true });
  field("receipt").scrollIntoView();
  // The limit of what was chosen, and what was spent, which is the ledger's word, are those of now, and how to leave is
  // another thing now: the server words them on this very page.
  for (const name of ["limit", "spent"]) field(`receipt-${name}`).innerHTML = `<span id="${name}"></span>`;
  await renew("limit", "spent", "leave");
  for (const shown of [field("limit"), field("spent")]) shown.textContent ||= word("script.answer.unknown");
}

// ---------------------------------------------------------------------------------------------------------
// Afterwards

field("copy")?.addEventListener("click", async (event) => {
  field("link").select();
  try { await navigator.clipboard.writeText(field("link").value); event.target.textContent = word("script.answer.copied"); } catch { /* it is selected */ }
});

const LEAVE = {
  withdraw: ["/api/answer", "script.answer.withdrawn"],
  everything: ["/api/answer?everything=true", "script.answer.erased"],
};
// What was done stands at the top and stays there. After everything was deleted nothing else on the page holds.
function confirmed(text) {
  const said = Object.assign(document.createElement("p"), { className: "notice", id: "done", tabIndex: -1, textContent: text });
  document.querySelector("h1").after(said);
  said.focus();
}
document.addEventListener("click", (event) => {
  const [path, done] = LEAVE[event.target.id] ?? [];
  if (!path || !twice(event.target, word(event.target.id === "withdraw" ? "script.answer.sure-withdraw" : "script.answer.sure"))) return;
  busy(field("leave"), async () => {
    await call("DELETE", path);
    entered = false;
    if (event.target.id === "withdraw") {
      sessionStorage.setItem("done", done);
      history.scrollRestoration = "manual";
      location.reload();
      return;
    }
    document.querySelectorAll("main > :not(h1)").forEach((part) => part.remove());
    confirmed(word(done));
  });
});
const done = sessionStorage.getItem("done");
sessionStorage.removeItem("done");
if (done) confirmed(word(done));
