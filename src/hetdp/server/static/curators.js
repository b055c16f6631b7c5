import { busy, call, word } from "./api.js";

const form = document.getElementById("add");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(form, async (say) => {
    const { key } = await call("POST", "/api/curators", { name: document.getElementById("name").value.trim() });
    document.getElementById("key").value = key;
    document.getElementById("made").hidden = false;
    say(word("script.curators.made"));
  });
});

// Removing asks once more, in the button itself.
document.getElementById("curators").addEventListener("click", (event) => {
  const { name, sure } = event.target.dataset;
  if (!name) return;
  if (!sure) {
    event.target.dataset.sure = "yes";
    event.target.textContent = word("script.curators.sure");
    event.target.removeAttribute("aria-label");
    return;
  }
  busy(form, async () => {
    await call("DELETE", `/api/curators/${encodeURIComponent(name)}`);
    location.reload();
  });
});
