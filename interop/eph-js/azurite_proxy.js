// A proxy in front of Azurite that adds the empty metadata element to blob listings that the real service
// sends. Azurite omits it for blobs without metadata, and the legacy library then finds no leases.
import http from "node:http";

/** Passes everything on to the account in this connection string; gives the string of the account in front of it. */
export async function completed(connection) {
  const [, host, port] = connection.match(/BlobEndpoint=http:\/\/([^:]+):(\d+)/);
  const server = http.createServer((request, response) => {
    const onward = http.request({ host, port, method: request.method, path: request.url, headers: request.headers });
    onward.on("response", (answer) => (/[?&]comp=list/.test(request.url) ? complete : pass)(answer, response));
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return connection.replace(`${host}:${port}`, `127.0.0.1:${server.address().port}`);
}

function pass(answer, response) {
  response.writeHead(answer.statusCode, answer.headers);
  answer.pipe(response);
}

async function complete(answer, response) {
  const parts = [];
  for await (const part of answer) parts.push(part);
  const text = Buffer.concat(parts).toString().replaceAll("</Properties></Blob>", "</Properties><Metadata /></Blob>");
  const { "transfer-encoding": _, ...headers } = answer.headers;
  response.writeHead(answer.statusCode, { ...headers, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
