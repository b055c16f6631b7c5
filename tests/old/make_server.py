"""Write a small installation with the hetdp that is on the path, for `server-VERSION.tar.gz`: see README.md here."""

from __future__ import annotations

import json
import sys
import tarfile
import time
from pathlib import Path

import serving
from hetdp.server import Settings

FAR = 4_000_000_000  # the year 2096: the second wave stays open
CROWD = [(float(i % 10), "public") for i in range(20)] + [(5.0, "strict")] * 5 + [(6.0, "open")] * 5


def main(folder: Path) -> None:
    """Make a study of two waves, publish the first, and pack everything, the key and a link to come back too."""
    folder.mkdir()
    settings = Settings(database=f"sqlite:///{folder}/server.db", key_file=folder / "server.key", tick=0.0)
    with serving.served(settings) as site:
        now = int(time.time())
        waves = [{"closes": now + 20, "share": 0.5}, {"closes": FAR, "share": 0.5}]
        study = site.study(waves=waves)
        links = []
        for person, (value, tier) in zip(map(site.enter, site.invite(study, len(CROWD))), CROWD, strict=True):
            said = person.put("/api/answer", json={"value": value, "tier": tier})
            assert said.status_code == 200, said.text
            links.append(said.json()["come_back"])
        time.sleep(now + 21 - time.time())
        published = site.curator.post(f"/api/studies/{study}/publish", json={"wave": 0})
        assert published.status_code == 200, published.text
        about = {"study": study, "key": site.key, "link": links[0], "first": published.json()["result"]["estimate"]}
    (folder / "about.json").write_text(json.dumps(about))
    with tarfile.open(f"{folder}.tar.gz", "w:gz") as packed:
        for path in sorted(folder.iterdir()):
            if not path.name.endswith((".lock", "-shm", "-wal")):
                packed.add(path, path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
