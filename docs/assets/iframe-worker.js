/* Search from the disk. A page opened as file:// may start no worker; this runs the search in a hidden frame,
   which has the worker's two ways to speak: messages in, messages out. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        this.ready = true;
        this.waiting.forEach(data => this.send(data));
      };
      this.inner.document.body.append(script);
    }

    send(data) {
      this.inner.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.ready) this.send(data);
      else this.waiting.push(data);
    }
  };
  window.Worker = window.IFrameWorker;
}
