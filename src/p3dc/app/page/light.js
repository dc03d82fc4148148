/** Highlight the photo under the pointer or with the keyboard's focus wherever it is shown: in its list and on the map. */

function lit(target, on) {
  const id = target.closest?.("[data-photo]")?.dataset.photo;
  if (!id) return;
  const shown = document.querySelectorAll(`[data-photo="${CSS.escape(id)}"]`);
  for (const element of shown) element.classList.toggle("lit", on);
}

export function listenForLight() {
  document.addEventListener("pointerover", ({ target }) => lit(target, true));
  document.addEventListener("pointerout", ({ target }) => lit(target, false));
  document.addEventListener("focusin", ({ target }) => lit(target, target.matches(":focus-visible")));
  document.addEventListener("focusout", ({ target }) => lit(target, false));
}
