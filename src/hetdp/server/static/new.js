import { busy, call } from "./api.js";

const form = document.getElementById("new-study");
const rows = document.getElementById("tier-rows");
const field = (id) => document.getElementById(id);

function addTier(name = "", epsilon = "", sentence = "") {
  const row = field("tier-row").content.cloneNode(true);
  row.querySelector(".tier-name").value = name;
  row.querySelector(".tier-epsilon").value = epsilon;
  row.querySelector(".tier-sentence").value = sentence;
  row.querySelector(".remove").addEventListener("click", (event) => event.target.closest("li").remove());
  rows.append(row);
}
addTier("Strict", "0.1", "Almost nothing about your answer can be learnt.");
addTier("Standard", "0.5", "Little can be learnt. A good choice for most people.");
addTier("Open", "2", "You do not mind if more could be learnt.");
field("add-tier").addEventListener("click", () => { addTier(); rows.lastElementChild.querySelector("input").focus(); });

form.querySelectorAll('input[name="kind"]').forEach((radio) => radio.addEventListener("change", () => {
  const free = form.elements.kind.value === "free";
  field("free").hidden = !free;
  field("tiers").hidden = free;
  rows.querySelectorAll("input").forEach((input) => { input.disabled = free; });
}));

const local = (date) => new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
const now = new Date();
field("opens").value = local(now);
field("closes").value = local(new Date(now.getTime() + 14 * 86400000));

const seconds = (id) => Math.floor(new Date(field(id).value).getTime() / 1000);
const level = (text) => (/^(inf|public)$/i.test(text.trim()) ? text.trim().toLowerCase() : Number(text));

function study() {
  const count = Number(field("waves").value);
  const tiers = [...rows.children].map((row) => ({
    name: row.querySelector(".tier-name").value.trim(),
    epsilon: level(row.querySelector(".tier-epsilon").value),
    sentence: row.querySelector(".tier-sentence").value.trim(),
  }));
  const free = form.elements.kind.value === "free";
  const step = Number(field("days").value) * 86400;
  return {
    question: field("question").value.trim(),
    unit: field("unit").value.trim(),
    bounds: [Number(field("lower").value), Number(field("upper").value)],
    tiers: free ? [] : tiers,
    free: free ? { least: Number(field("least").value), most: Number(field("most").value) } : null,
    opens: seconds("opens"),
    waves: Array.from({ length: count }, (_, i) => ({ closes: seconds("closes") + i * step, share: Math.floor(1e6 / count) / 1e6 })),
    fewest: Number(field("fewest").value),
    changeable: field("changeable").checked,
    until: seconds("closes") + (count - 1) * step + Number(field("kept").value) * 86400,
  };
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(form, async () => {
    const made = await call("POST", "/api/studies", study());
    location.assign(`/curator/studies/${made.id}`);
  });
});
