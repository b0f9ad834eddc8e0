"""A fake page with files of each kind: serving does not depend on their content."""

from turnledger.server.chat_page.files import BuiltPage

ASSET = "index-Ab12.js"
FILES = {
    "index.html": b'<!doctype html><title>Made up</title><script src="./assets/index-Ab12.js"></script>',
    "favicon.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "service-worker.js": b"addEventListener('fetch', () => {});",
    f"assets/{ASSET}": b"document.title = 'it runs'; // " + b"again and " * 100,
    "assets/index-Cd34.css": b"body { margin: 0 }",
    "assets/letters-Ef56.woff2": b"wOF2" * 100,
    "assets/whatever-Gh78.bin": b"\x00" * 100,
}
PAGE = BuiltPage(FILES)
