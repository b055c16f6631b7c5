import { at, busy, call, counted, language, once, renew, say as tell, twice, whole, word } from "./api.js";
import { localTimes } from "./page.js";

const live = document.getElementById("live");
const study = live.dataset.study;
const PAUSE = 2000;
let working = false; // a form is being sent: the page must not be loaded anew under it

// The part that changes is the same template, rendered again by the server.
async function refresh() {
  const response = await fetch(at(`/curator/studies/${study}/live`), { credentials: "same-origin" });
  if (!response.ok || response.redirected) return;
  const html = await response.text();
  if (working || html.trim() === refresh.last) return;
  refresh.last = html.trim();
  live.innerHTML = html;
  invited(JSON.parse(live.querySelector("[data-invited]").dataset.invited));
  if (live.querySelector("[data-stands]").dataset.stands !== live.dataset.stands) location.reload(); // other forms fit now
  localTimes(live);
  document.getElementById("heard").textContent = word("script.dashboard.joined", { n: document.getElementById("n").textContent });
}
// How many invitations there are stands beside the form that makes them, while there is one.
function invited(counts) {
  for (const [name, n] of Object.entries(counts)) document.getElementById(`invited-${name}`)?.replaceChildren(whole(n));
}
if (!["published", "deleted"].includes(live.dataset.phase)) {
  setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, PAUSE);
}

// What else on the page follows from what was done here: the log, and more.
async function news(...ids) {
  await renew(...ids, "log");
  localTimes(document.getElementById("log"));
}

function on(id, action, meant = () => true) {
  const form = document.getElementById(id);
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!meant()) return;
    working = true;
    busy(form, (say) => action(say, form)).finally(() => { working = false; });
  });
}

on("what-if", async () => {
  const choice = document.getElementById("at");
  const query = new URLSearchParams({ people: document.getElementById("more").value, [choice.dataset.key]: choice.value });
  const { now, then } = await call("GET", `/api/studies/${study}/what-if?${query}`);
  const questions = JSON.parse(document.getElementById("questions").textContent);
  // Rounded up to two digits, as the table above does.
  const up = (x) => {
    const places = x > 0 ? 1 - Math.floor(Math.log10(x)) : 0, decimals = Math.max(0, places);
    return (Math.ceil(x * 10 ** places - 1e-6) / 10 ** places).toLocaleString(language, { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  };
  const width = (question, one) => {
    if (!one || one.width === null || one.abstains) return word("script.dashboard.unusable");
    const size = question.kind === "number" ? `± ${up(one.width)} ${question.unit}`.trim() : word("script.dashboard.points", { n: up(100 * one.width) });
    return one.uncertain ? word("script.dashboard.uncertain", { size }) : size;
  };
  document.getElementById("what-if-said").replaceChildren(...questions.map((question) => {
    const [before, after] = [now, then].map((all) => width(question, all?.find((one) => one.question === question.name)));
    const line = document.createElement("li");
    line.textContent = word("script.dashboard.what-if", { question: question.text, before, after });
    return line;
  }));
});

// The links are shown this once; so that they are not lost, the page is not loaded again by itself.
on("invite", async (say) => {
  const count = Number(document.getElementById("count").value);
  const { links } = await call("POST", `/api/studies/${study}/invitations`, { count });
  document.getElementById("link-list").value = links.join("\n");
  document.getElementById("link-csv").href = URL.createObjectURL(new Blob([`invitation\n${links.join("\n")}\n`], { type: "text/csv" }));
  document.getElementById("links").hidden = false;
  say(counted("script.dashboard.links", links.length));
  invited(await call("GET", `/api/studies/${study}/invitations`));
});

on("revoke", async () => {
  await call("DELETE", `/api/studies/${study}/invitations`);
  location.reload();
});

on("import", async (say) => {
  const input = document.getElementById("rows");
  const files = async () => (await call("GET", `/api/studies/${study}/rows`)).map((one) => one.file);
  const before = await files();
  const { people } = await call("POST", `/api/studies/${study}/rows`, input.files[0], { "Content-Type": "text/csv" });
  input.value = "";
  const known = (await files()).every((file) => before.includes(file));
  await news("imports");
  say(counted(known ? "script.dashboard.imported-before" : "script.dashboard.imported", people));
});

document.addEventListener("click", (event) => {
  const { file } = event.target.dataset;
  if (file && twice(event.target, word("script.dashboard.sure"))) busy(document.getElementById("imports"), async () => {
    await call("DELETE", `/api/studies/${study}/rows/${file}`);
    location.reload();
  });
});

// The second press is for the link that stood there at the first.
const theirs = document.getElementById("their-link"), eraser = document.querySelector("#erase button");
theirs?.addEventListener("input", () => { once(eraser); tell(document.querySelector("#erase .status"), ""); });
on("erase", async (say) => {
  await call("DELETE", `/api/studies/${study}/people`, { link: theirs.value.trim() });
  theirs.value = "";
  once(eraser);
  await news();
  say(word("script.dashboard.erased"));
}, () => twice(eraser, word("script.dashboard.sure")));

on("delete", async () => {
  await call("DELETE", `/api/studies/${study}`);
  location.reload();
});

on("close", async (say, form) => {
  await call("POST", `/api/studies/${study}/close`, { wave: Number(form.dataset.wave) });
  location.reload();
});

on("publish", async (say, form) => {
  say(word("script.dashboard.publishing"));
  const { wave } = await call("POST", `/api/studies/${study}/publish`, { wave: Number(form.dataset.wave) });
  location.assign(at(`/results/${study}?wave=${wave}`));
});
