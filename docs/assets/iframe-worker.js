// Search without a web server. A browser refuses to start a worker for a page that was opened from a file, so there its
// script runs in a hidden frame instead, with the same two calls: postMessage, and a "message" event for what comes back.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      (document.body || document.documentElement).appendChild(frame);
      const inside = frame.contentWindow;
      // What the worker's script calls postMessage reaches this page as an event of this object.
      inside.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.document.open();
      inside.document.write("<script>var postMessage = answer;<\/script>");
      inside.document.write(`<script src="${new URL(url, location.href)}"><\/script>`);
      inside.document.close();
      inside.addEventListener("load", () => {
        this.inside = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
  window.Worker = window.IFrameWorker;
}
