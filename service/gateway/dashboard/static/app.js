// What htmx leaves to us. It keeps the focus of elements that have an id; we keep what is unfolded, and report when a
// part of the page could not be refreshed.
const unfolded = new Set();
document.addEventListener("htmx:beforeSwap", (event) => {
  for (const details of event.detail.target.querySelectorAll("details[id]")) {
    if (details.open) unfolded.add(details.id);
    else unfolded.delete(details.id);
  }
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
  markLines();
});
// Times in the reader's zone. The server wrote them in UTC, which stays in their titles.
const DAY = { day: "numeric", month: "short" }, CLOCK = { hour: "2-digit", minute: "2-digit" };
const FORMS = {
  full: { ...DAY, year: "numeric", ...CLOCK, timeZoneName: "short" }, moment: { ...DAY, ...CLOCK }, time: CLOCK, day: DAY,
  month: { month: "short", year: "numeric" }, until: { ...CLOCK, timeZoneName: "short" },
};
const FORMATS = Object.fromEntries(Object.entries(FORMS).map(([form, parts]) => [form, new Intl.DateTimeFormat("en-GB", parts)]));
function showTimes() {
  for (const time of document.querySelectorAll("time[data-form]")) {
    time.textContent = FORMATS[time.dataset.form].format(new Date(time.dateTime));
  }
  for (const zone of document.querySelectorAll(".zone")) zone.textContent = FORMATS.time.resolvedOptions().timeZone;
  for (const one of document.querySelectorAll("[data-until]")) {
    one.title = one.title.replace(/\d\d:\d\d UTC$/, FORMATS.until.format(new Date(one.dataset.until)));
  }
}
showTimes();
document.addEventListener("htmx:afterSwap", showTimes);
// What loads when it is unfolded loads again where it still is.
document.addEventListener("htmx:afterSettle", () => {
  for (const waiting of document.querySelectorAll("details[open] [hx-trigger^='toggle']")) {
    waiting.closest("details").dispatchEvent(new Event("toggle"));
  }
});
// A part of the page whose request failed shows why, and the way to go on, instead of waiting for ever.
function explain(event) {
  const { elt, target, xhr, requestConfig } = event.detail;
  const answer = xhr?.responseText ? new DOMParser().parseFromString(xhr.responseText, "text/html") : null;
  const words = ["h1", ".lead"].map((part) => answer?.querySelector(`main ${part}`)?.textContent.trim()).filter(Boolean);
  const why = words.join(": ") || (xhr?.status
    ? `The request failed with the status ${xhr.status}.`
    : "The service does not answer. Is it running, and is there a network?");
  for (const waiting of target.querySelectorAll(".failed, .computing")) waiting.remove();
  const notice = Object.assign(document.createElement("div"), { className: "notice refused failed stack tight" });
  notice.setAttribute("role", "alert");
  const again = Object.assign(document.createElement("button"), { type: "button", textContent: "Try again" });
  again.addEventListener("click", () => {
    notice.remove();
    htmx.ajax(requestConfig.verb, requestConfig.path, { source: elt, target });
  });
  const shown = Object.assign(document.createElement("p"), { textContent: why });
  const buttons = Object.assign(document.createElement("div"), { className: "row" });
  buttons.append(again);
  notice.append(shown, buttons);
  target.prepend(notice);
}
for (const failure of ["htmx:responseError", "htmx:sendError", "htmx:timeout", "htmx:swapError"]) {
  document.addEventListener(failure, explain);
}
// The plan's lines under its text, as they wrap; those that the preview remarks on are marked.
function markLines() {
  const text = document.getElementById("text"), lines = document.querySelector(".lines");
  if (!text || !lines) return;
  lines.replaceChildren(...text.value.split("\n").map((line) => Object.assign(document.createElement("span"), { textContent: `${line}\n` })));
  for (const note of document.querySelectorAll("#preview [data-line]")) {
    lines.children[note.dataset.line - 1]?.classList.add(note.dataset.mark || "noted");
  }
}
markLines();
document.getElementById("text")?.addEventListener("input", markLines);
// From a problem to its line.
document.addEventListener("click", (event) => {
  const noted = event.target.closest("#preview a[href='#text']")?.closest("[data-line]");
  const text = document.getElementById("text");
  if (!noted || !text) return;
  event.preventDefault();
  const lines = text.value.split("\n"), at = noted.dataset.line - 1;
  const start = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[at] ?? "").length);
});
// Scripts never see the answer to a copy; the browser may refuse it, and then the text is there to be selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent.trim());
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press Ctrl-C";
  }
});
// Irrevocable things are asked twice.
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) return event.preventDefault();
  // A request that takes a while shows it, and is not sent twice.
  const button = event.submitter;
  if (event.target.dataset.busy && button) {
    button.textContent = event.target.dataset.busy;
    button.disabled = true;
  }
});
// Addresses from before there were tabs, such as /knowledge-bases/support#plans.
document.querySelector(`.tabs #${CSS.escape(location.hash.slice(1).replace("spending", "usage")) || "none"}:not([aria-current])`)?.click();
