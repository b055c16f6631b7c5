import { busy, call, renew, twice, word } from "./api.js";
import { localTimes } from "./page.js";

const form = document.getElementById("add");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(form, async (say) => {
    const { key } = await call("POST", "/api/curators", { name: document.getElementById("name").value.trim() });
    document.getElementById("key").value = key;
    document.getElementById("made").hidden = false;
    say(word("script.curators.made"));
    await renew("curators", "log");
    localTimes(document.getElementById("log"));
  });
});

document.addEventListener("click", (event) => {
  const { name } = event.target.dataset;
  if (!name || !twice(event.target, word("script.curators.sure"))) return;
  busy(form, async () => {
    await call("DELETE", `/api/curators/${encodeURIComponent(name)}`);
    location.reload();
  });
});
