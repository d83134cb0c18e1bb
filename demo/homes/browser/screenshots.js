// Test helper: takes screenshots, and stores them in one folder.

import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class Screenshots {
  constructor(folder) {
    this.folder = folder;
  }

  static async temporary() {
    return new Screenshots(await mkdtemp(join(tmpdir(), "ephor-pictures-")));
  }

  // What is in the window, under a name made of the words' letters.
  async take(page, words, options = {}) {
    const path = join(this.folder, `${words.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.png`);
    await page.screenshot({ path, ...options });
    return path;
  }
}
