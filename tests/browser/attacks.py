"""Attacks of a page, in JavaScript. Each takes a URL and returns what the page could read of the answer.

The browser runs them as the script of any page; `read` and the other tools below are on every page.
"""

from __future__ import annotations

TOOLS = """
window.read = async response => ({
  type: response.type, status: response.status, headers: [...response.headers], body: await response.text(),
});
window.tried = async attempt => {
  try { return await attempt(); } catch (problem) { return {error: problem.name}; }
};
// Report the event of an element, and what the page can read inside.
window.loaded = (name, properties) => new Promise(resolve => {
  const element = document.createElement(name);
  const report = event => {
    let inside = null;
    try { inside = element.contentDocument?.body?.innerText ?? null; } catch {}
    resolve({event: event.type, inside, width: element.naturalWidth ?? element.videoWidth ?? 0,
             rules: element.sheet ? tryRules(element.sheet) : null, ran: window.ran ?? null});
    element.remove();
  };
  element.onload = element.onerror = element.onloadeddata = report;
  Object.assign(element, properties);
  document.body.append(element);
});
window.tryRules = sheet => { try { return sheet.cssRules.length; } catch { return null; } };
// Run a script in a frame of another origin.
window.framed = (sandbox, source, address) => new Promise(resolve => {
  const frame = document.createElement("iframe");
  if (sandbox !== null) frame.sandbox = sandbox;
  addEventListener("message", event => { frame.remove(); resolve(event.data); }, {once: true});
  const html = `<script>(async () => {
    let result;
    try {
      const response = await (${source})(${JSON.stringify(address)});
      result = {status: response.status, body: await response.text()};
    } catch (problem) { result = {error: problem.name}; }
    parent.postMessage(result, "*");
  })()</` + `script>`;
  if (sandbox === null) frame.src = "data:text/html," + encodeURIComponent(html); else frame.srcdoc = html;
  document.body.append(frame);
});
window.submitted = (action, enctype, fields, method = "POST", target = null) => new Promise(resolve => {
  const form = document.createElement("form");
  const frame = document.createElement("iframe");
  frame.name = "answer" + Math.random();
  Object.assign(form, {action, enctype, method, target: target ?? frame.name});
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("textarea");
    Object.assign(field, {name, value});
    form.append(field);
  }
  document.body.append(form, frame);
  if (target !== null) { form.submit(); resolve({}); return; }
  const report = () => {
    let inside = null;
    try { inside = frame.contentDocument?.body?.innerText ?? null; } catch {}
    frame.remove();
    resolve({inside});
  };
  setTimeout(() => { frame.onload = report; form.submit(); }, 0);
});
window.working = script => new Promise(resolve => {
  const worker = new Worker(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
  worker.onmessage = event => resolve(event.data);
  worker.onerror = () => resolve({error: "worker"});
});
"""

READING = {
    "fetch": "url => tried(async () => read(await fetch(url)))",
    "fetch without cors": "url => tried(async () => read(await fetch(url, {mode: 'no-cors'})))",
    "fetch with credentials": "url => tried(async () => read(await fetch(url, {credentials: 'include'})))",
    "fetch with a header": """url => tried(async () =>
        read(await fetch(url, {headers: {Authorization: 'Bearer guessed-by-a-page'}})))""",
    "fetch that follows a redirect": """url => tried(async () =>
        read(await fetch('/redirect?to=' + encodeURIComponent(url))))""",
    "fetch that follows a redirect without cors": """url => tried(async () =>
        read(await fetch('/redirect?to=' + encodeURIComponent(url), {mode: 'no-cors'})))""",
    "fetch from a sandboxed frame": "url => framed('allow-scripts', 'url => fetch(url)', url)",
    "fetch from a data frame": "url => framed(null, 'url => fetch(url)', url)",
    "fetch from a worker": """url => working(`
        fetch(${JSON.stringify(url)}).then(answer => answer.text())
          .then(body => postMessage({body}), problem => postMessage({error: problem.name}))`)""",
    "importScripts": """url => working(`
        try { importScripts(${JSON.stringify(url)}); postMessage({ran: true}); }
        catch (problem) { postMessage({error: problem.name}); }`)""",
    "XMLHttpRequest": """url => new Promise(resolve => {
        const request = new XMLHttpRequest();
        request.onloadend = () => resolve({status: request.status, body: request.responseText,
                                           headers: request.getAllResponseHeaders()});
        request.open('GET', url);
        request.send();
    })""",
    "EventSource": """url => new Promise(resolve => {
        const source = new EventSource(url);
        source.onmessage = event => { source.close(); resolve({body: event.data}); };
        source.onerror = () => { source.close(); resolve({error: 'source'}); };
    })""",
    "import": "url => tried(async () => Object.keys(await import(url)))",
    "script": "url => loaded('script', {src: url})",
    "image": "url => loaded('img', {src: url})",
    "stylesheet": "url => loaded('link', {rel: 'stylesheet', href: url})",
    "preload": "url => loaded('link', {rel: 'preload', as: 'script', href: url})",
    "prefetch": "url => loaded('link', {rel: 'prefetch', href: url})",
    "video": "url => loaded('video', {src: url, preload: 'auto'})",
    "frame": "url => loaded('iframe', {src: url})",
    "object": "url => loaded('object', {data: url})",
    "embed": "url => loaded('embed', {src: url})",
    "font": """url => tried(async () => {
        await new FontFace('f', `url(${url})`).load();
        return {ran: true};
    })""",
}

RUNNING = {
    "fetch": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', body, headers: {'Content-Type': 'application/json'}})))""",
    "fetch with a conversation": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', body,
        headers: {'Content-Type': 'application/json', 'X-Conversation-Id': 'of-the-page'}})))""",
    "fetch of text": """([url, body]) => tried(async () => read(await fetch(url, {method: 'POST', body})))""",
    "fetch of text without cors": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', mode: 'no-cors', body, headers: {'Content-Type': 'text/plain'}})))""",
    "fetch of text with json in its type": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', mode: 'no-cors', body,
        headers: {'Content-Type': 'text/plain; application/json'}})))""",
    "fetch of a form without cors": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', mode: 'no-cors', body,
        headers: {'Content-Type': 'application/x-www-form-urlencoded'}})))""",
    "fetch of parts without cors": """([url, body]) => tried(async () => {
        const parts = new FormData();
        parts.append('body', new Blob([body], {type: 'application/json'}));
        return read(await fetch(url, {method: 'POST', mode: 'no-cors', body: parts}));
    })""",
    "fetch of untyped bytes without cors": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', mode: 'no-cors', body: new TextEncoder().encode(body)})))""",
    "fetch that outlives the page": """([url, body]) => tried(async () => read(await fetch(url, {
        method: 'POST', mode: 'no-cors', keepalive: true, body})))""",
    "fetch that follows a redirect": """([url, body]) => tried(async () => read(await fetch(
        '/redirect?status=307&to=' + encodeURIComponent(url), {method: 'POST', mode: 'no-cors', body})))""",
    "fetch from a sandboxed frame": """([url, body]) => framed('allow-scripts',
        `url => fetch(url, {method: 'POST', mode: 'no-cors', body: ${JSON.stringify(body)}})`, url)""",
    "XMLHttpRequest of text": """([url, body]) => new Promise(resolve => {
        const request = new XMLHttpRequest();
        request.onloadend = () => resolve({status: request.status, body: request.responseText});
        request.open('POST', url);
        request.setRequestHeader('Content-Type', 'text/plain');
        request.send(body);
    })""",
    "beacon of text": "([url, body]) => { navigator.sendBeacon(url, body); return {}; }",
    "beacon of json": """([url, body]) => {
        navigator.sendBeacon(url, new Blob([body], {type: 'application/json'}));
        return {};
    }""",
    "form of text": """([url, body]) =>
        submitted(url, 'text/plain', {[body.slice(0, -1) + ', "user": "']: '"}'})""",
    "form of parts": "([url, body]) => submitted(url, 'multipart/form-data', {body})",
    "form": "([url, body]) => submitted(url, 'application/x-www-form-urlencoded', {[body]: ''})",
    "form in a window": """([url, body]) => submitted(
        url, 'text/plain', {[body.slice(0, -1) + ', "user": "']: '"}'}, 'POST', '_blank')""",
    "ping": """([url, body]) => {
        const link = document.createElement('a');
        Object.assign(link, {href: '#', ping: url});
        document.body.append(link);
        link.click();
        return {};
    }""",
    "policy report": """([url, body]) => loaded('iframe', {src: '/reporting?to=' + encodeURIComponent(url)})
        .then(() => ({}))""",
}

WEB_SOCKET = """url => new Promise(resolve => {
    const socket = new WebSocket(url.replace('http', 'ws'));
    socket.onopen = () => resolve({ran: true});
    socket.onmessage = event => resolve({body: event.data});
    socket.onerror = () => resolve({error: 'socket'});
})"""
