"""Runs in a network of its own, in which 9.9.9.9 is a server of the world and 10.1.2.3 one of a private network.

usage: remote_public.py FOLDER CHAIN KEY; 77: this machine can't do it. Called by test_remote.py.
"""

import json
import subprocess
import sys
from pathlib import Path

from files import f32, safetensors
from harness import IO, OK, UNSAFE, Failed, check_equal, tconv
from hub_server import Hub
from remote_server import Certificate, Server


def set_up(folder):
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.1.2.3 inner.test\n127.0.0.1 rebound.test\n")
    steps = ["ip link set lo up", "ip addr add 9.9.9.9/32 dev lo", "ip addr add 10.1.2.3/32 dev lo"]
    for step in [*steps, f"mount --bind {hosts} /etc/hosts"]:
        try:
            if subprocess.run(step.split(), capture_output=True, check=False).returncode != 0:
                sys.exit(77)
        except OSError:
            sys.exit(77)


def error_of(result):
    return json.loads(result.out.splitlines()[-1])["error"]["code"] if result.code else ""


def lead_inside(folder, public, inner):
    """Redirects of the public server."""
    for host in ("10.1.2.3", "inner.test", "rebound.test", "127.0.0.1", "localhost", "0", "[::1]", "[::ffff:10.1.2.3]", "167838211"):
        url = public.add("/go.npy", b"", faults=[f"go:https://{host}:{inner.port}/m.safetensors"] * 9)
        result = tconv("info", url, "--json", cwd=folder)
        check_equal((result.code, error_of(result)), (UNSAFE, "redirect"), host, result)
    check_equal(inner.connections, 0, "connections to the private network")
    url = public.add("/again.safetensors", b"", faults=["go:/m.safetensors"] * 9)
    check_equal(tconv("info", url, cwd=folder).code, OK, "a redirect of the same server")
    # Whoever names a private server may be led into its network.
    url = inner.add("/go.npy", b"", faults=[f"go:https://10.1.2.3:{inner.port}/m.safetensors"] * 9)
    result = tconv("info", url, "--json", cwd=folder)
    check_equal(error_of(result), "certificate", "only the certificate is wrong there", result)


def send_inside(folder, hub, inner):
    """Addresses for uploads that the public Hub names."""
    (folder / "m.safetensors").write_bytes(safetensors({"z": f32(3)}, {}))
    places = ["https://10.1.2.3", "https://inner.test", "https://127.0.0.1", "https://0", "https://[::ffff:7f00:1]"]
    places += ["http://127.0.0.1", "http://localhost", "http://[::1]", "https://u:p@9.9.9.9"]
    for place in places:

        def batch(handler, path, place=place):
            if not path.endswith("/batch"):
                return False
            there = {"href": f"{place}:{inner.port}/put"}
            objects = [{**each, "actions": {"upload": there}} for each in json.loads(handler.body)["objects"]]
            hub.reply(handler, {"transfer": "basic", "objects": objects})
            return True

        hub.hook = batch
        env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token}
        result = tconv("hub", "push", "org/name", "m.safetensors", "--json", cwd=folder, env=env)
        check_equal((result.code, error_of(result)), (UNSAFE, "redirect"), place, result)
    check_equal(inner.connections, 0, "connections to the private network")


class Counting(Server):
    """A server that counts connections, also those that never ask for anything."""

    def __init__(self, *args, **how):
        self.connections = 0
        super().__init__(*args, **how)
        accept = self.listener.get_request

        def count():
            self.connections += 1
            return accept()

        self.listener.get_request = count


def main():
    folder, chain, key = sys.argv[1:]
    folder = Path(folder)
    set_up(folder)
    certificate = Certificate("", chain, key)
    with Server(certificate, "9.9.9.9") as public, Counting(certificate, "0.0.0.0") as inner:
        public.add("/m.safetensors", safetensors({"a": f32(1)}, {}))
        inner.url = f"https://10.1.2.3:{inner.port}"
        inner.add("/m.safetensors", safetensors({"a": f32(1)}, {}))
        lead_inside(folder, public, inner)
        inner.connections = 0
        with Hub(certificate=certificate, host="9.9.9.9") as hub:
            hub.add_repo("org/name", {"x": b"1"})
            send_inside(folder, hub, inner)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        print(failure)
        sys.exit(IO)
