// Replaces the package @azure-tools/test-credential: a shared key instead of Entra ID tokens, which cannot
// be issued here.
import { parseEventHubConnectionString } from "@azure/event-hubs";
import { AzureNamedKeyCredential } from "@azure/core-auth";

export function createTestCredential() {
  const { sharedAccessKeyName, sharedAccessKey } = parseEventHubConnectionString(process.env.EPHOR_LIVE_CONNECTION);
  return new AzureNamedKeyCredential(sharedAccessKeyName, sharedAccessKey);
}

/** For clients that are made and never connect. */
export class NoOpCredential {
  getToken() {
    return Promise.resolve({ token: "none", expiresOnTimestamp: Date.now() + 3600_000 });
  }
}
