// Loads the same address again, with its fragment: it may name a chat, or be a share link.
document.querySelector("button").addEventListener("click", () => location.reload());
addEventListener("online", () => location.reload());
