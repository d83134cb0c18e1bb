"""Replaces the modules with which the Python SDK's live tests prepare resources in Azure: the resource
manager and the test credentials.

Every test gets a hub of its own, which the runner has created. The tests' own conftest.py uses these modules unchanged.
"""
import os
import sys
import types

HOST = os.environ["EPHOR_LIVE_HOST"]
KEY_NAME = "RootManageSharedAccessKey"
with open(os.environ["EPHOR_LIVE_KEY_FILE"]) as file:
    KEY = file.read().strip()
current_hub = None  # set by the plugin before each test


class Hub:
    """A description of one hub, with what the tests read of it."""

    def __init__(self, name, retention_days):
        self.name, self.retention_days = name, retention_days

    def as_dict(self):
        return {"name": self.name, "partition_count": 2, "message_retention_in_days": self.retention_days}


class Namespaces:
    def list_keys(self, _group, _namespace, _rule):
        connection = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
        return types.SimpleNamespace(primary_connection_string=connection, key_name=KEY_NAME, primary_key=KEY)


class EventHubs:
    retention_days = {}  # by hub; ephor dev cannot change it while it runs, and no test depends on it

    def create_or_update(self, _group, _namespace, name, properties):
        if name in self.retention_days:
            self.retention_days[name] = properties["message_retention_in_days"]
            return Hub(name, self.retention_days[name])
        self.retention_days[current_hub] = 1
        return Hub(current_hub, 1)

    def get(self, _group, _namespace, name):
        return Hub(name, self.retention_days[name])

    def delete(self, _group, _namespace, name):
        del self.retention_days[name]


class EventHubManagementClient:
    def __init__(self, *_, **__):
        self.namespaces, self.event_hubs = Namespaces(), EventHubs()


def get_credential(is_async=False, **_):
    """A shared key in place of Entra ID, whose tokens nobody can issue here."""
    if is_async:
        from azure.eventhub.aio import EventHubSharedKeyCredential
    else:
        from azure.eventhub import EventHubSharedKeyCredential
    return EventHubSharedKeyCredential(KEY_NAME, KEY)


def install():
    """Puts the replacements where imports find them."""
    manager = types.ModuleType("azure.mgmt.eventhub")
    manager.EventHubManagementClient = EventHubManagementClient
    sys.modules["azure.mgmt"] = types.ModuleType("azure.mgmt")
    sys.modules["azure.mgmt.eventhub"] = manager
    tools = types.ModuleType("devtools_testutils")
    tools.get_credential = get_credential
    tools.get_region_override = lambda default=None: default
    sys.modules["devtools_testutils"] = tools
