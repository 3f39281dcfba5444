// The few lines about elements that everything else uses.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element: tag or "tag.class.class", properties, children (elements or text). */
export function h(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  return fill(element, properties, children);
}

/** The same for SVG. */
export function svg(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElementNS(SVG, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return fill(element, properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Writes a text only where it changed, so that the rest is not laid out again; returns whether. */
export function put(element, text) {
  const changed = element.textContent !== text;
  if (changed) element.textContent = text;
  return changed;
}

/** Sets or removes an attribute, if it changed. */
export function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Keeps one view per key inside a host, in the order of the items; returns the views. */
export class Keyed {
  constructor(host, make) {
    this.host = host;
    this.make = make;
    this.views = new Map();
  }

  show(items) {
    const keys = new Set(items.map(([key]) => key));
    for (const [key, view] of this.views) {
      if (!keys.has(key)) {
        view.element.remove();
        this.views.delete(key);
      }
    }
    let before = this.host.firstElementChild;
    for (const [key, item] of items) {
      let view = this.views.get(key);
      if (!view) {
        view = this.make(item);
        this.views.set(key, view);
      }
      if (view.element === before) before = before.nextElementSibling;
      else this.host.insertBefore(view.element, before);
      view.update(item);
    }
  }
}
