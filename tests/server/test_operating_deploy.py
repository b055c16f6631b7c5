"""What stands in deploy/: nginx really runs before a real server; the rest is read by the tools that know it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml

import hetdp
from hetdp.server import Settings
from hetdp.server.settings import KNOWN
from serving import NUMBER, TIERS, saying

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)
SIXES = Path("/proc/net/if_inet6")
SIX = "00000000000000000000000000000001" in (SIXES.read_text() if SIXES.exists() else "")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx here; tests/system.sh installs it")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def certificate(folder):
    """A certificate for localhost that nobody signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(9))
    signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "fullchain.pem").write_bytes(signed.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "privkey.pem").write_bytes(key.private_bytes(pem, *plain))


class Behind:
    """A real server in a process of its own behind a real nginx with the file of deploy/."""

    def __init__(self, folder, limits=()):
        self.folder, self.port, self.tls, self.plain = folder, free_port(), free_port(), free_port()
        certificate(folder)
        self.clients = []
        self.origin = f"https://localhost:{self.tls}/survey"
        text = (DEPLOY / "nginx.conf").read_text()
        changes = {
            "server server:8000": f"server 127.0.0.1:{self.port}",
            "listen 80;": f"listen 127.0.0.1:{self.plain};",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.tls} ssl;",
            "listen [::]:80;": f"listen [::1]:{self.plain};" if SIX else "",
            "listen [::]:443 ssl;": f"listen [::1]:{self.tls} ssl;" if SIX else "",
            "/etc/hetdp/tls": str(folder),
            "survey.example.org;": "localhost;",
        }
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
        main = (
            f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}} "
            f"http {{ client_body_temp_path {folder}/body; {places} {text} }}"
        )
        if os.geteuid() == 0:
            main = f"user root; {main}"
        (folder / "nginx.conf").write_text(main)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(hetdp.__file__).parents[1]),
            "HETDP_PROXIES": "127.0.0.1",
            "HETDP_ORIGIN": self.origin,
            "HETDP_PORT": str(self.port),
            "HETDP_DATABASE": f"sqlite:///{folder}/survey.db",
            **dict(limits),
        }
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "hetdp", "serve"]
        with (folder / "log").open("w") as log:
            self.server = subprocess.Popen(command, env=environment, stdout=pipe, stderr=log, text=True)
        self.nginx = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder])
        assert self.server.stdout.readline().startswith("curator key: in ")
        self.key = (folder / "survey.db.curator").read_text().strip()

    def client(self, **headers):
        client = httpx.Client(verify=self.context, base_url=self.origin, headers=headers, timeout=60)
        self.clients.append(client)
        return client

    def __enter__(self):
        context = ssl.create_default_context(cafile=self.folder / "fullchain.pem")
        self.context = context
        for _ in range(600):
            try:
                with self.client() as client:
                    if client.get("/health").status_code == 200:
                        return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError((self.folder / "error.log").read_text() + (self.folder / "log").read_text())

    def __exit__(self, *_):
        for client in self.clients:
            client.close()
        for process in (self.nginx, self.server):
            process.terminate()
            process.wait(30)
        self.server.stdout.close()


@needs_nginx
@pytest.mark.slow
def test_a_study_goes_through_a_real_nginx_with_tls_under_a_path(tmp_path):
    with Behind(tmp_path) as site:
        with httpx.Client() as plain:
            for place in ("127.0.0.1", "[::1]") if SIX else ("127.0.0.1",):
                moved = plain.get(f"http://{place}:{site.plain}/survey/", headers={"Host": "localhost"})
                assert moved.status_code == 308
                assert moved.headers["location"].startswith("https://localhost/survey/")
        curator = site.client(Authorization=f"Bearer {site.key}")
        answer = curator.get("/curator", follow_redirects=False)
        assert answer.status_code == 200
        assert "max-age" in answer.headers["strict-transport-security"]
        stranger = site.client().get("/curator", follow_redirects=False)
        assert (stranger.status_code, stranger.headers["location"]) == (303, "/survey/sign-in")
        now = int(time.time())
        new = {"title": "How many?", "questions": [NUMBER], "tiers": TIERS, "opens": now - 5}
        study = curator.post("/api/studies", json={**new, "waves": [{"closes": now + 3600}]})
        assert study.status_code == 201, study.text
        link = curator.post(f"/api/studies/{study.json()['id']}/invitations", json={"count": 1}).json()["links"][0]
        assert link.startswith(f"{site.origin}/join#")
        person = site.client(Origin=f"https://localhost:{site.tls}")
        joined = person.post("/api/session/participant", json={"token": link.partition("#")[2]})
        assert joined.status_code == 200, joined.text
        assert re.search(r"^__Secure-hetdp_person=.*; Path=/survey; .*Secure", joined.headers["set-cookie"])
        csrf = {"X-CSRF-Token": joined.json()["csrf"]}
        said = person.put("/api/answer", json=saying(3.0, tier="open"), headers=csrf)
        assert said.status_code == 200, said.text
        assert said.json()["come_back"].startswith(f"{site.origin}/join#")
        foreign = site.client(Origin="https://evil.example").post("/api/session/curator", json={"key": site.key})
        assert foreign.status_code == 403
        large = curator.post(f"/api/studies/{study.json()['id']}/rows", content=b"x" * (18 * 2**20))
        assert large.status_code == 413


@needs_nginx
@pytest.mark.slow
def test_behind_nginx_a_limit_counts_for_the_clients_address_and_nobody_can_claim_another(tmp_path):
    with Behind(tmp_path, {"HETDP_ATTEMPTS": "5"}) as site:
        codes = []
        for i in range(8):
            client = site.client(**{"X-Forwarded-For": f"10.0.0.{i}"})  # what a client claims
            codes.append(client.post("/api/session/curator", json={"key": "x" * 43}).status_code)
        assert codes[:5] == [403] * 5
        assert codes[-1] == 429
        # The control: from a trusted proxy such a header is the client's address, and each has a limit of its own.
        direct = f"http://127.0.0.1:{site.port}/survey/api/session/curator"
        with httpx.Client() as proxy:
            asked = [
                proxy.post(direct, json={"key": "x" * 43}, headers={"X-Forwarded-For": f"10.0.0.{i}"}) for i in range(8)
            ]
        assert [one.status_code for one in asked] == [403] * 8


# ---------------------------------------------------------------------------------------------------------
# Files for what does not run here


def test_the_compose_file_says_what_the_settings_know():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    server = compose["services"]["server"]
    said = {name.removeprefix("HETDP_").lower() for name in server["environment"]}
    assert said <= KNOWN.keys()
    (subnet,) = [one["subnet"] for one in compose["networks"]["inside"]["ipam"]["config"]]
    assert server["environment"]["HETDP_PROXIES"] == subnet
    Settings.said({}, {k: v for k, v in server["environment"].items() if not k.endswith("_FILE")})
    for service in compose["services"].values():
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        named = {volume.partition(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")}
        assert named <= compose["volumes"].keys()
    mounted = {volume.partition(":")[2].partition(":")[0] for volume in server["volumes"]}
    assert (
        set(re.search(r"VOLUME \[(.*)\]", (DEPLOY / "Dockerfile").read_text())[1].replace('"', "").split(", "))
        == mounted
    )
    assert "server:8000" in (DEPLOY / "nginx.conf").read_text()


def test_nothing_secret_is_sent_to_the_builder_of_the_image_and_all_that_is_copied_is():
    left_out = set((ROOT / ".dockerignore").read_text().split())
    assert {".git", ".venv", "deploy/secrets", "deploy/certs"} <= left_out
    assert not left_out & {"src", "pyproject.toml", "README.md", "LICENSE"}


def test_the_dockerfile_sets_what_the_settings_know_and_copies_what_is_there():
    text = (DEPLOY / "Dockerfile").read_text()
    said = dict(re.findall(r"(HETDP_[A-Z_]+)=(\S+)", text))
    settings = Settings.said({"database": "postgresql://x@y/z"}, said)
    assert (settings.host, settings.port) == ("0.0.0.0", 8000)  # noqa: S104  inside a container
    assert str(settings.register_file.parent) == "/beside"
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    extras = re.search(r"'\.\[(.*)\]'", text)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= known.keys()


def test_systemd_accepts_the_service_and_its_settings_are_known(tmp_path):
    Settings.said({}, {}, DEPLOY / "survey.toml")
    unit = (DEPLOY / "hetdp.service").read_text()
    assert "hetdp serve --check" in unit
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    (tmp_path / "hetdp.service").write_text(unit.replace("/opt/hetdp/bin/hetdp", "/bin/true"))
    command = ["systemd-analyze", "verify", tmp_path / "hetdp.service"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
