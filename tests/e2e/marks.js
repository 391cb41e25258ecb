// What does not stand out by 3:1 (WCAG 2.2, 1.4.11) among the marks of bars, charts and legends, the edges of what can be
// filled in or pressed, and the marks of what is chosen: a list of sentences.
// Every shape is compared with the ground behind it. Parts of a bar are compared with the next one, and bars on top of
// each other have the ground's colour between them. The lines of a chart's grid may be faint: its labels show the same.
(() => {
  const LEAST = 3;
  const rgba = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, ground) => {
    const mix = (name) => top[name] * top.alpha + ground[name] * (1 - top.alpha);
    return { red: mix("red"), green: mix("green"), blue: mix("blue"), alpha: 1 };
  };
  const luminance = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [darker, lighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (lighter + 0.05) / (darker + 0.05);
  };
  const ground = (element) => {
    if (!element) return { red: 255, green: 255, blue: 255, alpha: 1 };
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour.alpha === 1 ? colour : over(colour, ground(element.parentElement));
  };
  const painted = (shape, what) => {
    const style = getComputedStyle(shape);
    if (style[what] === "none") return null;
    const colour = rgba(style[what]);
    colour.alpha *= style.opacity * style[`${what}Opacity`];
    return over(colour, ground(shape.ownerSVGElement));
  };
  const found = [];
  const compare = (what, one, other) => {
    const ratio = contrast(one, other);
    if (ratio < LEAST) found.push(`${what} has a contrast of ${ratio.toFixed(2)}`);
  };
  const named = (shape) => `${shape.getAttribute("class")} of ${shape.ownerSVGElement.getAttribute("aria-label") ?? "a legend"}`;
  for (const shape of document.querySelectorAll("svg :is(rect, path):not(.grid)")) {
    if (!shape.checkVisibility()) continue;
    const behind = ground(shape.ownerSVGElement);
    const fill = painted(shape, "fill"), stroke = painted(shape, "stroke");
    const seen = [fill, stroke].filter(Boolean).sort((a, b) => contrast(b, behind) - contrast(a, behind))[0];
    if (seen) compare(named(shape), seen, behind);
    if (shape.matches(".area .bar") && !(stroke && contrast(stroke, behind) === 1)) found.push(`${named(shape)} touches the next`);
  }
  for (const bar of document.querySelectorAll("svg.gauge")) {
    if (!bar.checkVisibility()) continue;
    const { left, width } = bar.getBoundingClientRect(), empty = ground(bar);
    compare(`the frame of ${bar.getAttribute("aria-label")}`, rgba(getComputedStyle(bar).borderTopColor), ground(bar.parentElement));
    const parts = [...bar.querySelectorAll("rect")].reverse().map((part) => ({ part, box: part.getBoundingClientRect() }));
    let before = null;
    for (let x = left + 1.5; x < left + width - 1; x += 0.5) {
      const top = parts.find(({ box }) => box.left <= x && x < box.right)?.part;
      const here = { colour: top ? painted(top, "fill") : empty, what: top ? named(top) : "what is empty" };
      if (before && before.what !== here.what) compare(`${before.what} beside ${here.what}`, before.colour, here.colour);
      before = here;
    }
  }
  const sides = ["Top", "Right", "Bottom", "Left"];
  const edges = (style) => sides.filter((side) => parseFloat(style[`border${side}Width`]) > 0).map((side) => rgba(style[`border${side}Color`]));
  const shadow = (style) => (style.boxShadow.match(/(rgb|color)a?\([^)]*\)/g) ?? []).map(rgba);
  const check = (what, element) => {
    const style = getComputedStyle(element), behind = ground(element.parentElement);
    const shown = [...edges(style), ...shadow(style), ground(element)].filter(({ alpha }) => alpha > 0);
    const seen = shown.map((colour) => over(colour, behind)).sort((a, b) => contrast(b, behind) - contrast(a, behind))[0];
    compare(`${what} ${element.id || element.name || element.textContent.trim()}`, seen, behind);
  };
  // Browsers draw boxes to tick by themselves. A button without an edge is known by its words.
  const fields = "input:not([type=hidden], [type=checkbox], [type=radio], [type=range]), select, textarea";
  const seen = (element) => element.checkVisibility() && !element.disabled && !element.matches(".hidden");
  for (const field of [...document.querySelectorAll(fields)].filter(seen)) check("the edge of the field", field);
  for (const button of [...document.querySelectorAll("button, .button")].filter(seen)) {
    const { borderTopColor, borderTopWidth } = getComputedStyle(button);
    if (parseFloat(borderTopWidth) > 0 && rgba(borderTopColor).alpha > 0) check("the edge of the button", button);
  }
  for (const chosen of [...document.querySelectorAll("[aria-current], [aria-pressed=true]")].filter(seen)) check("the mark of the chosen", chosen);
  return [...new Set(found)];
})()
