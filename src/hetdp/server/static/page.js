// Every page: times in the reader's own zone, which is named, and another language by a cookie that holds nothing but its code.
import { at, language } from "./api.js";

export function localTimes(root = document) {
  const day = { day: "numeric", month: "short", year: "numeric" }, time = { hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  const form = (parts) => new Intl.DateTimeFormat(language === "en" ? "en-GB" : language, parts);
  root.querySelectorAll("time").forEach((one) => { one.textContent = form(one.closest(".day") ? day : { ...day, ...time }).format(new Date(one.dateTime)); });
}
localTimes();

document.querySelectorAll("[data-language]").forEach((button) => button.addEventListener("click", () => {
  const safe = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `hetdp_language=${button.dataset.language}; path=${at("/")}; max-age=31536000; samesite=strict${safe}`;
  location.reload();
}));
