const page = document.documentElement;
const buttons = document.querySelectorAll("[data-speak]");
function speak(language) {
  page.lang = page.dataset.lang = language;
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.speak === language));
}
for (const button of buttons) button.addEventListener("click", () => speak(button.dataset.speak));
speak(navigator.language.startsWith("ko") ? "ko" : "en");
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
