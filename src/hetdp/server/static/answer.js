import { busy, call } from "./api.js";

const form = document.getElementById("answer");
const value = document.getElementById("value");
const stop = document.getElementById("stop");
const cards = [...document.querySelectorAll(".choice")];

// A slider shows one card at a time.
function show() {
  cards.forEach((card, i) => { card.hidden = i !== Number(stop.value); });
  document.getElementById("stop-name").textContent = cards[Number(stop.value)].dataset.name;
}
if (stop) {
  stop.addEventListener("input", show);
  show();
}

// The value is checked here, where only its owner sees the verdict; the server takes every number without a word.
function problem() {
  const [lower, upper] = [Number(form.dataset.lower), Number(form.dataset.upper)];
  const number = value.valueAsNumber;
  if (Number.isNaN(number)) return "Enter a number.";
  return number < lower || number > upper ? `Enter a number from ${lower.toLocaleString()} to ${upper.toLocaleString()}.` : "";
}

function choice() {
  if (stop) return { epsilon: Number(cards[Number(stop.value)].dataset.epsilon) };
  const picked = form.querySelector('input[name="choice"]:checked');
  return picked ? { tier: picked.value } : null;
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const wrong = problem();
  document.getElementById("value-error").textContent = wrong;
  value.toggleAttribute("aria-invalid", Boolean(wrong));
  if (wrong) { value.focus(); return; }
  busy(form, async () => {
    const chosen = choice();
    if (!chosen) {
      form.querySelector('input[name="choice"]').focus();
      throw new Error("Choose how private your answer should stay.");
    }
    receipt(await call("PUT", "/api/answer", { value: value.valueAsNumber, ...chosen }));
  });
});

function receipt(said) {
  value.value = "";
  form.hidden = true;
  document.getElementById("joined")?.remove();
  document.getElementById("receipt-choice").textContent = said.tier ? `${said.tier} (ε = ${said.epsilon})` : `ε = ${said.epsilon}`;
  document.getElementById("receipt-time").textContent = new Date().toLocaleString();
  if (said.come_back) {
    document.getElementById("link").value = said.come_back;
    document.getElementById("come-back").hidden = false;
  }
  const card = document.getElementById("receipt");
  card.hidden = false;
  card.focus();
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
