// What does not stand out by 3:1 (WCAG 2.2, 1.4.11) among the marks of bars, charts and legends: a list of sentences.
// Every shape is compared with the ground behind it. Parts of a bar are compared with the next one, and bars on top of
// each other have the ground's colour between them. The lines of a chart's grid may be faint: its labels say the same.
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
  return [...new Set(found)];
})()
