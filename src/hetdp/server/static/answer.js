import { busy, call } from "./api.js";

const form = document.getElementById("answer");
const value = document.getElementById("value");
const stop = document.getElementById("stop");
const cards = [...document.querySelectorAll(".choice")];

// Nothing is chosen until the person chooses: a slider has a place from the start, which counts only once it was touched.
function chosen() {
  if (stop) return stop.classList.contains("unset") ? undefined : cards[Number(stop.value)];
  return form.querySelector('input[name="choice"]:checked')?.closest(".choice");
}

// A slider shows one card at a time. To allow more than before has to be confirmed, each time anew.
function show() {
  const card = chosen(), more = document.getElementById("more");
  more.hidden = card?.dataset.more === undefined;
  document.getElementById("allow-more").checked = false;
  if (card) complain("");
  if (!stop || !card) return;
  cards.forEach((other) => { other.hidden = other !== card; });
  document.getElementById("stop-name").textContent = card.dataset.name;
  const limit = card.querySelector(".choice-limit").textContent, meaning = card.querySelector(".choice-meaning").textContent;
  stop.setAttribute("aria-valuetext", `${card.dataset.name}. ${limit} ${meaning}`);
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

// An error stands beside its field, belongs to it, and is announced.
function complain(text) {
  document.getElementById("choice-error").textContent = text;
  (stop ?? document.getElementById("choices")).setAttribute("aria-invalid", String(Boolean(text)));
}

// The value is checked here, where only its owner sees the verdict; the server takes every number without a word.
function problem() {
  const [lower, upper] = [Number(form.dataset.lower), Number(form.dataset.upper)];
  const number = value.valueAsNumber;
  if (Number.isNaN(number)) return "Enter a number.";
  return number < lower || number > upper ? `Enter a number from ${lower.toLocaleString()} to ${upper.toLocaleString()}.` : "";
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const wrong = problem(), card = chosen();
  document.getElementById("value-error").textContent = wrong;
  value.setAttribute("aria-invalid", String(Boolean(wrong)));
  if (!card) complain("Choose how private your answer should stay. Nothing is chosen for you.");
  if (wrong) { value.focus(); return; }
  if (!card) { (stop ?? form.querySelector('input[name="choice"]')).focus(); return; }
  busy(form, async () => {
    const choice = stop ? { epsilon: Number(card.dataset.epsilon) } : { tier: card.dataset.name };
    const more = document.getElementById("allow-more");
    try {
      await receipt(await call("PUT", "/api/answer", { value: value.valueAsNumber, ...choice, allow_more: more.checked }), card);
    } catch (error) {
      if (!["choice", "more"].includes(error.code)) throw error;
      document.getElementById("more").hidden = error.code !== "more";
      complain(error.message);
      (error.code === "more" ? more : stop ?? form.querySelector('input[name="choice"]')).focus();
    }
  });
});

async function receipt(said, card) {
  value.value = "";
  form.hidden = true;
  document.getElementById("joined")?.remove();
  const limit = card.querySelector(".choice-limit").textContent;
  const now = await call("GET", "/api/answer").catch(() => null); // what was spent is the ledger's word, as of now
  document.getElementById("receipt-choice").textContent = said.tier ? `${said.tier} (ε = ${said.epsilon})` : `ε = ${said.epsilon}`;
  document.getElementById("receipt-limit").textContent = now?.choices.find((choice) => choice.own)?.limit ?? limit;
  document.getElementById("receipt-spent").textContent = now?.balance.sentence ?? "Not known now. Open your link to see it.";
  document.getElementById("receipt-time").textContent = new Date().toLocaleString();
  if (said.come_back) {
    document.getElementById("link").value = said.come_back;
    document.getElementById("come-back").hidden = false;
  }
  const shown = document.getElementById("receipt");
  shown.hidden = false;
  shown.focus();
}

document.getElementById("copy")?.addEventListener("click", async (event) => {
  const link = document.getElementById("link");
  link.select();
  try { await navigator.clipboard.writeText(link.value); event.target.textContent = "Copied"; } catch { /* it is selected */ }
});

document.getElementById("withdraw")?.addEventListener("click", (event) => {
  busy(event.target.closest("section"), async (say) => {
    await call("DELETE", "/api/answer");
    say("Your answer was deleted.");
    setTimeout(() => location.reload(), 1200);
  });
});
