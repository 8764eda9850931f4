import { post } from "./api.js";
import { failed, field, fill, h } from "./dom.js";

// login asks for a name and a password, and calls done once the server took them.
export function login(main, problem, done) {
  const name = h("input", { name: "name", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const state = h("div", null, problem ? failed(new Error(problem)) : null);
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  fill(main, h("section", { class: "login" }, h("h1", null, "Log in"), state,
    h("form", { class: "login", on: { submit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await post("login", { name: name.value, password: password.value });
        done();
      } catch (error) {
        fill(state, failed(error));
        button.disabled = false;
        password.value = "";
        password.focus();
      }
    } } }, field("User", name), field("Password", password), button)));
  name.focus();
}
