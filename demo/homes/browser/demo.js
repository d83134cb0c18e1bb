// Test helper: runs `ephor demo` as a process in a folder of its own, and stops it with Ctrl-C or kills it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const BUILT = fileURLToPath(new URL("../../../target/debug/ephor", import.meta.url));
const START = 120; // seconds until the page is there
const END = 90; // seconds until all that was sent is accounted for

// A folder with a copy of the program, so that a build meanwhile changes nothing.
export async function makeFolder() {
  const folder = await mkdtemp(join(tmpdir(), "ephor-browser-"));
  await copyFile(BUILT, join(folder, "ephor"));
  return folder;
}

export const removeFolder = (folder) => rm(folder, { recursive: true, force: true });

export class Demo {
  // Starts one, and waits for its page. Port 0 is a free one.
  static async start(folder, { homes, hosts = 5, speed = 1, port = 0 }) {
    const demo = new Demo();
    const { EPHOR_DEMO_HUB, EPHOR_DEMO_RESULTS, ...environment } = process.env;
    const given = { homes, hosts, speed, data: join(folder, "demo"), page: `127.0.0.1:${port}` };
    const flags = Object.entries(given).map(([name, value]) => `--${name}=${value}`);
    demo.process = spawn(join(folder, "ephor"), ["demo", ...flags], { cwd: folder, env: environment });
    demo.over = once(demo.process, "close").then(([code, signal]) => signal ?? code);
    demo.says = "";
    for (const stream of [demo.process.stdout, demo.process.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => { demo.says += text; });
    }
    process.once("exit", () => demo.process.kill("SIGKILL")); // its own processes end with it
    for (let tries = 0; tries < START * 10; tries += 1) {
      const page = demo.says.match(/http:\/\/127\.0\.0\.1:(\d+)/);
      if (page) {
        [demo.origin, demo.port] = [page[0], Number(page[1])];
        return demo;
      }
      if (demo.process.exitCode !== null) break;
      await sleep(100);
    }
    demo.process.kill("SIGKILL");
    throw new Error(`the demo has no page:\n${demo.says}`);
  }

  // Ctrl-C. Gives the exit code; what was said is in `says`.
  async end() {
    this.process.kill("SIGINT");
    const late = setTimeout(() => this.process.kill("SIGKILL"), END * 1000);
    const code = await this.over;
    clearTimeout(late);
    return code;
  }

  // SIGKILL: not even a last word.
  async kill() {
    this.process.kill("SIGKILL");
    return this.over;
  }

  // What the page's JSON says, for what is not on the page that is open.
  async ask(path) {
    return (await fetch(this.origin + path)).json();
  }
}
