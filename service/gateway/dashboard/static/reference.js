// A key that is pasted stays in this page, and is gone when it is left.
const { theme } = document.documentElement.dataset;
const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
document.documentElement.classList.toggle("dark-mode", dark);
SwaggerUIBundle({
  dom_id: "#reference",
  url: document.getElementById("reference").dataset.document,
  docExpansion: "none",
  deepLinking: true,
  validatorUrl: null,
});
