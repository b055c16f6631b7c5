// Every page: times in the reader's own zone.
export function localTimes(root = document) {
  const form = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  root.querySelectorAll("time").forEach((time) => { time.textContent = form.format(new Date(time.dateTime)); });
}
localTimes();
