// The theme that was chosen in this browser. It is a script of its own, not a module, so that it
// runs before the page is drawn.
{
  const themes = ["system", "light", "dark"];
  let theme = "system";
  try {
    theme = localStorage.getItem("theme") ?? theme;
  } catch {
    // This browser keeps nothing.
  }

  const apply = () => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };

  apply();
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => { button.textContent = `Theme: ${theme}`; };
    label();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      apply();
      label();
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // It is kept until the page is left.
      }
    });
  });
}
