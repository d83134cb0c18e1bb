// Runs the live tests of the old JavaScript SDK with the published package: imports of ../lib are resolved
// to the same file in the package. Each test file has a hub of its own. The hub's name resolves to its
// loopback address, and no other name does.
require("tsx/cjs");
const dns = require("node:dns");
const Module = require("node:module");
const net = require("node:net");
const path = require("node:path");

const { EPHOR_LIVE_TESTS: tests, EPHOR_LIVE_HOST: host, EPHOR_LIVE_ADDRESS: address } = process.env;
const published = path.join(__dirname, "node_modules/@azure/event-hubs/dist-esm/src");
const specs = JSON.parse(process.env.EPHOR_LIVE_SPECS);

const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, parent, ...rest) {
  if (!parent?.filename?.startsWith(tests)) return resolve.call(this, request, parent, ...rest);
  if (request.startsWith("../lib")) return path.join(published, `${request.slice("../lib/".length) || "index"}.js`);
  return require.resolve(request, { paths: [__dirname] }); // the checkout has no packages
};

const load = Module._load;
Module._load = function (request, ...rest) {
  const spec = specs.indexOf(path.basename(request));
  if (spec >= 0) process.env.EVENTHUB_NAME = `live-${spec}`; // read when the spec is loaded
  return load.call(this, request, ...rest);
};

const lookup = dns.lookup;
dns.lookup = (name, options, callback) => {
  if (typeof options === "function") [options, callback] = [{}, options];
  if (name === host) return lookup(address, options, callback);
  if (name === "localhost" || net.isIP(name)) return lookup(name, options, callback);
  const error = new Error(`getaddrinfo ENOTFOUND ${name}: the live tests stay on this machine`);
  Object.assign(error, { code: "ENOTFOUND", errno: -3008, syscall: "getaddrinfo", hostname: name });
  process.nextTick(callback, error);
};
