/* Light, dark or as the system has it. A plain script in the head, so that the first paint is right. */
{
  const next = { auto: "light", light: "dark", dark: "auto" };
  const read = () => localStorage.getItem("p3dc-theme") ?? "auto";

  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (!button) return;
    button.title = `Colours: ${theme}`;
    button.setAttribute("aria-label", `Colours: ${theme}. Change to ${next[theme]}`);
    button.querySelector("use").setAttribute("href", `#i-${theme}`);
  };

  show(read());
  document.addEventListener("DOMContentLoaded", () => {
    show(read());
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("p3dc-theme", next[read()]);
      show(read());
    });
  });
}
