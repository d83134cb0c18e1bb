// Resolves the hub's name to its loopback address, and no other name, so that no test reaches the internet.
import dns from "node:dns";
import net from "node:net";

const lookup = dns.lookup;
dns.lookup = (name, options, callback) => {
  if (typeof options === "function") [options, callback] = [{}, options];
  if (name === process.env.EPHOR_LIVE_HOST) return lookup(process.env.EPHOR_LIVE_ADDRESS, options, callback);
  if (name === "localhost" || net.isIP(name)) return lookup(name, options, callback);
  const error = new Error(`getaddrinfo ENOTFOUND ${name}: the live tests stay on this machine`);
  Object.assign(error, { code: "ENOTFOUND", errno: -3008, syscall: "getaddrinfo", hostname: name });
  process.nextTick(callback, error);
};
