// What htmx leaves to us. It keeps the focus of elements that have an id; we keep what is unfolded, and say when a
// part of the page could not be refreshed.
const unfolded = new Set();
document.addEventListener("htmx:beforeSwap", (event) => {
  unfolded.clear();
  for (const details of event.detail.target.querySelectorAll("details[open][id]")) unfolded.add(details.id);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
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
  // What takes a while says so, and is not sent twice.
  const button = event.submitter;
  if (event.target.dataset.busy && button) {
    button.textContent = event.target.dataset.busy;
    button.disabled = true;
  }
});
