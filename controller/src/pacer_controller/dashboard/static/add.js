// The form that adds a class and a flow of packets for it.

import { put } from "./dom.js";
import { changeState, Problem } from "./server.js";

const find = (id) => document.getElementById(id);

/** Sets the form up; `switchName()` is the switch that is shown. */
export function setUpForm(switchName) {
  const form = find("add-form");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(form));
    try {
      await changeState(switchName(), (state) => add(state, fields));
      form.reset();
      showMessage(null);
      find("add").open = false;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showMessage(error.advice);
    }
  });
}

function add(state, { name, rate, protocol, dst, port }) {
  if (state.classes[name]) throw new Problem(0, `class ${name} exists already`);
  state.classes[name] = rate ? { rate } : { mode: "unpaced" };
  const match = {
    ...(protocol ? { protocol } : {}), ...(dst ? { dst } : {}),
    ...(port ? { dst_port: Number(port) || port } : {}),
  };
  if (!Object.keys(match).length) return;
  if (state.flows[name]) throw new Problem(0, `flow ${name} exists already`);
  state.flows[name] = { match, class: name };
}

function showMessage(text) {
  find("add-message").hidden = text === null;
  put(find("add-message"), text ?? "");
}
