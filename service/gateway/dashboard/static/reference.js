// A key that is pasted stays in this page, and is gone when it is left.
const { theme } = document.documentElement.dataset;
const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
document.documentElement.classList.toggle("dark-mode", dark);
// Swagger UI's parts on our page, which has its own heading and its own landmark; a path lies in a button, so it is no link.
const parts = ({ React: { createElement: draw } }) => ({
  components: {
    Parts: ({ getComponent }) => draw(
      "div", { className: "swagger-ui" },
      ...["errors", "AuthorizeBtnContainer", "operations", "Models"].map((name) => draw(getComponent(name, true))),
    ),
  },
  // A button is called what is written on it.
  wrapComponents: {
    DeepLink: () => ({ text }) => draw("span", null, text),
    Button: (Plain) => ({ "aria-label": name, ...props }) =>
      draw(Plain, typeof props.children === "string" ? props : { "aria-label": name, ...props }),
  },
});
// What Swagger UI leaves without a name.
const NAMELESS = {
  ".close-modal": () => "Close the dialog",
  ".body-param__text": () => "Request body",
  "table[role='region']": (table) => `Responses of ${table.id}`,
};
const reference = document.getElementById("reference");
new MutationObserver(() => {
  for (const [selector, name] of Object.entries(NAMELESS)) {
    for (const one of reference.querySelectorAll(`${selector}:not([aria-label])`)) one.setAttribute("aria-label", name(one));
  }
}).observe(reference, { childList: true, subtree: true });
SwaggerUIBundle({
  dom_id: "#reference",
  url: reference.dataset.document,
  docExpansion: "none",
  deepLinking: true,
  validatorUrl: null,
  syntaxHighlight: { activated: false },
  plugins: [parts],
  layout: "Parts",
});
