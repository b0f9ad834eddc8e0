// Keeps the text in the browser's language, or the first one.
const texts = [...document.querySelectorAll("main")];
const preferred = navigator.languages.map((each) => texts.find(({ lang }) => each.split("-")[0] === lang));
const text = preferred.find(Boolean) ?? texts[0];
for (const each of texts) if (each !== text) each.remove();
document.documentElement.lang = text.lang;
document.title = text.querySelector("h1").textContent;
// Loads the same address again, with its fragment: it may name a chat, or be a share link.
text.querySelector("button").addEventListener("click", () => location.reload());
addEventListener("online", () => location.reload());
