// The page's side of the engine: it loads the engine's program and a model's weights when the reader asks, as scripts,
// which a page that was opened from a file may load, too, and starts them in a worker.  Nothing is asked of another host.

const BASIS = () => document.documentElement.dataset.content_root ?? "";     // from a page to the top of the book

const REFUSED = "the browser did not start a worker";

// The value that a script assigns to `globalThis.caracalPart`; `trouble` says what is the matter if there is none.
function scripted(address, trouble) {
  return new Promise((arrived, failed) => {
    const script = Object.assign(document.createElement("script"), { src: address });
    const end = (value) => {
      script.remove();
      globalThis.caracalPart = undefined;
      if (value === undefined) failed(new Error(trouble)); else arrived(value);
    };
    script.onload = () => end(globalThis.caracalPart);
    script.onerror = () => end(undefined);
    document.head.append(script);
  });
}

// An engine with the model of a folder; `hear` gets what worker.js sends of it.  `load` may be called again where it has
// failed, and goes on from there; after a worker that the browser refused, on the page's own thread.
class Engine {
  constructor({ folder, digest }, hear) {
    Object.assign(this, { folder: `${BASIS()}${folder}`, digest, hear, post: null, manifest: null, next: 0, slow: false });
  }

  // Load all parts; `progress` hears the number of the one that is on its way, and how many there are.
  async load(progress) {
    const absent = "the weights are not beside this page";
    if (!this.post) this.start(await scripted(`${this.folder}/engine.js`, absent));
    if (!this.manifest) {
      const manifest = await scripted(`${this.folder}/manifest.js`, absent);
      if (manifest.digest !== this.digest) throw new Error("the weights beside this page are of another model");
      this.manifest = manifest;
    }
    if (!this.opened) {
      Object.assign(this, { opened: true, next: 0 });
      this.post?.({ kind: "open", manifest: this.manifest });
    }
    for (const { parts } = this.manifest; this.next < parts.length; this.next++) {
      progress(this.next + 1, parts.length);
      const data = await scripted(`${this.folder}/${parts[this.next].file}`, `part ${this.next + 1} did not arrive`);
      await new Promise((arrived, failed) => {
        this.placed = { arrived, failed };
        if (this.post) this.post({ kind: "part", index: this.next, data });
        else failed(new Error(REFUSED));
      });
    }
  }

  // Start the program in a worker; where the page may have none, on its own thread in slices.
  start(source) {
    this.opened = false;
    try {
      if (this.slow) throw new Error(REFUSED);
      const code = `${source}\nconst receive = serve(postMessage);\nonmessage = ({ data }) => receive(data);`;
      const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
      worker.onmessage = ({ data }) => this.receive(data);
      worker.onerror = () => this.refused();
      this.post = (message) => worker.postMessage(message);
    } catch {
      this.slow = true;
      this.post = new Function("post", `${source}\nreturn serve(post);`)((message) => this.receive(message));
    }
  }

  refused() {
    Object.assign(this, { slow: true, post: null });
    this.placed?.failed(new Error(REFUSED));
  }

  receive(message) {
    if (message.kind === "part") this.placed.arrived();
    else if (message.index !== undefined) this.placed.failed(new Error(`part ${message.index + 1}: ${message.why}`));
    else this.hear(message);
  }
}
