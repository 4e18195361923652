// Search runs in a worker, and browsers start no worker in a page that was opened from disk. There a frame that is not
// shown takes its place: it runs the worker's script and passes messages on.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow;
    inside.postMessage = (data) => this.dispatch(data);
    inside.importScripts = (...names) =>
      Promise.all(names.map((name) => new Promise((done) => FrameWorker.load(inside.document, name, done))));
    this.ready = new Promise((done) => FrameWorker.load(inside.document, String(url), done));
    this.inside = inside;
  }

  static load(page, url, done) {
    const script = page.createElement("script");
    script.src = url;
    script.onload = done;
    (page.body || page.documentElement).append(script);
  }

  dispatch(data) {
    const event = new MessageEvent("message", { data });
    this.dispatchEvent(event);
    if (this.onmessage) this.onmessage(event);
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
  }

  terminate() {
    this.inside.frameElement.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
