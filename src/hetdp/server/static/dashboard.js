import { busy, call, short } from "./api.js";
import { localTimes } from "./page.js";

const live = document.getElementById("live");
const study = live.dataset.study;
const PAUSE = 2000;

// The part that changes is the same template, rendered again by the server.
async function refresh() {
  const response = await fetch(`/curator/studies/${study}/live`, { credentials: "same-origin" });
  if (!response.ok || response.redirected) return;
  const html = await response.text();
  if (html.trim() === refresh.last) return;
  refresh.last = html.trim();
  live.innerHTML = html;
  if (live.querySelector("[data-phase]").dataset.phase !== live.dataset.phase) location.reload(); // other forms fit now
  localTimes(live);
  document.getElementById("heard").textContent = `${document.getElementById("n").textContent} people have joined.`;
}
if (live.dataset.phase !== "published") {
  setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, PAUSE);
}

function on(id, action) {
  const form = document.getElementById(id);
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(form, (say) => action(say, form));
  });
}

on("what-if", async (say, form) => {
  const at = document.getElementById("at");
  const query = new URLSearchParams({ people: document.getElementById("more").value, [at.dataset.key]: at.value });
  const { now, then } = await call("GET", `/api/studies/${study}/what-if?${query}`);
  const unit = form.querySelector(".status").dataset.unit;
  const error = (figures) => (figures && !figures.abstains ? `± ${short(figures.worst_case_error)} ${unit}` : "half the range");
  say(`The worst-case error would go from ${error(now)} to ${error(then)}, the saturation level from ` +
      `${short(now?.threshold)} to ${short(then.threshold)}.`);
});

on("invite", async (say) => {
  const count = Number(document.getElementById("count").value);
  const { links } = await call("POST", `/api/studies/${study}/invitations`, { count });
  document.getElementById("link-list").value = links.join("\n");
  document.getElementById("link-csv").href = URL.createObjectURL(new Blob([`invitation\n${links.join("\n")}\n`], { type: "text/csv" }));
  document.getElementById("links").hidden = false;
  say(`${links.length} links were made.`);
});

on("import", async (say) => {
  const input = document.getElementById("rows");
  const { people } = await call("POST", `/api/studies/${study}/rows`, input.files[0], { "Content-Type": "text/csv" });
  input.value = "";
  say(`The ${people.toLocaleString()} people of this file are in.`);
  await refresh();
});

document.getElementById("imports")?.addEventListener("click", (event) => {
  const { file } = event.target.dataset;
  if (file) busy(event.target.closest("section"), async () => {
    await call("DELETE", `/api/studies/${study}/rows/${file}`);
    location.reload();
  });
});

on("delete", async () => {
  await call("DELETE", `/api/studies/${study}`);
  location.reload();
});

on("close", async (say, form) => {
  await call("POST", `/api/studies/${study}/close`, { wave: Number(form.dataset.wave) });
  location.reload();
});

on("publish", async (say, form) => {
  say("Publishing…");
  const { wave } = await call("POST", `/api/studies/${study}/publish`, { wave: Number(form.dataset.wave) });
  location.assign(`/results/${study}?wave=${wave}`);
});
