// Directs the JavaScript SDK's live tests to `ephor dev`, and runs them with the published package: imports
// of the checkout's src/ are resolved to the same file in the package. Each test file has a hub of its own.
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = path.dirname(fileURLToPath(import.meta.url));
const sdk = process.env.EPHOR_LIVE_SDK;
const specs = JSON.parse(readFileSync(process.env.EPHOR_LIVE_SPECS, "utf8"));
const published = path.join(here, "node_modules/@azure/event-hubs/dist/esm");
const replaced = { "@azure-tools/test-credential": "credential.js", "@azure-tools/test-utils-vitest": "assertions.js" };

const imports = {
  name: "ephor-live",
  enforce: "pre",
  async resolveId(source, importer) {
    if (!importer?.startsWith(sdk)) return null;
    if (replaced[source]) return path.join(here, replaced[source]);
    if (source.startsWith(".")) {
      const file = path.resolve(path.dirname(importer), source);
      const inner = path.relative(path.join(sdk, "src"), file);
      return inner.startsWith("..") ? null : { id: path.join(published, inner), external: true };
    }
    return this.resolve(source, path.join(here, "vitest.config.js"), { skipSelf: true }); // the checkout has no packages
  },
};

const project = (spec, number) => ({
  plugins: [imports],
  root: sdk,
  test: {
    name: spec,
    include: [`test/${spec}`],
    setupFiles: [path.join(here, "loopback.js")],
    testTimeout: Number(process.env.EPHOR_LIVE_TEST_MS),
    hookTimeout: Number(process.env.EPHOR_LIVE_TEST_MS),
    fakeTimers: {
      toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "setImmediate", "clearImmediate", "Date"],
    },
    // What the specs would otherwise get from a key vault.
    provide: {
      TEST_MODE: "live",
      EVENTHUB_FQDN: process.env.EPHOR_LIVE_HOST,
      EVENTHUB_NAME: `live-${number}`,
      EVENTHUB_CONSUMER_GROUP_NAME: "$Default",
      EVENTHUB_CONNECTION_STRING: process.env.EPHOR_LIVE_CONNECTION,
      AZURE_LOG_LEVEL: undefined,
    },
  },
});

export default defineConfig({
  root: sdk,
  cacheDir: path.join(here, "cache"),
  test: { watch: false, maxWorkers: Number(process.env.EPHOR_LIVE_AT_ONCE), projects: specs.map(project) },
});
