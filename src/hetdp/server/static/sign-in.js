import { at, busy, call } from "./api.js";

const form = document.getElementById("sign-in");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(form, async () => {
    await call("POST", "/api/session/curator", { key: document.getElementById("key").value.trim() });
    location.assign(at("/curator"));
  });
});
