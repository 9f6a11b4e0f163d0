"""Fetch the modules that the web page is made with, check them, and put them into the package.

    python requirements/page.py            fetch the versions below and check their hashes
    python requirements/page.py --newest   print the newest versions and their hashes

Needs npm, to fetch; the page itself needs nothing but a browser. Each module is one file, taken as
it is but for the names of the modules that it imports, which become addresses beside it.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).parents[1] / "src" / "killick" / "server" / "page" / "vendor"


class Module(NamedTuple):
    """A package, the hash of its archive, and the file in it that is the module."""

    name: str
    version: str
    integrity: str
    file: str
    target: str


MODULES = (
    Module(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        "dist/preact.mjs",
        "preact.js",
    ),
    Module(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        "hooks/dist/hooks.mjs",
        "hooks.js",
    ),
    Module(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        "dist/htm.mjs",
        "htm.js",
    ),
    Module(
        "@preact/signals-core",
        "1.14.5",
        "sha512-vcRv7Ityz5JVmeiVqIluLFzT/PDS/AlhHUpw3/aUWqcVUs6bDGIPXE/6RSC4evBNWYvnniozg5Syfj33al3gkg==",
        "dist/signals-core.mjs",
        "signals-core.js",
    ),
    Module(
        "@preact/signals",
        "2.11.4",
        "sha512-Rb+5RPo9gWSaHtzJeauhHxiC8KP/IF2DEPkHPEOGOnuy2wnJzRqyeLRankUCYd6ADqtxS6GnWGv6Ie343d8aYw==",
        "dist/signals.mjs",
        "signals.js",
    ),
    Module(
        "marked",
        "18.2.0",
        "sha512-KaeL+tAbtvI930q7HE2PN5lYXYdT8EiSmxHlN6F3rsfb57wd5mp5W5TLazpdj4inTQBJdgjYwbs40W/0VUGU+Q==",
        "lib/marked.esm.js",
        "marked.js",
    ),
    Module(
        "dompurify",
        "3.4.17",
        "sha512-B/pSlYVHQ58kqISD/yDjuJ1yfzI34m1gF4lAod2bwSRhiN4K5Cl3H8Af7hqB2PmTL911tdEudnnXn5FnhRoz0w==",
        "dist/purify.es.mjs",
        "dompurify.js",
    ),
)

IMPORTS = {
    '"preact/hooks"': '"./hooks.js"',
    '"@preact/signals-core"': '"./signals-core.js"',
    '"preact"': '"./preact.js"',
}


def npm(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        ["npm", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def fetch(module: Module, folder: Path) -> Path:
    """The package's archive, with the hash that it must have."""
    packed = json.loads(npm("pack", "--json", f"{module.name}@{module.version}", folder=folder))
    archive = folder / str(packed[0]["filename"])
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != module.integrity:
        sys.exit(f"{module.name} {module.version} is not what it was: sha512-{digest}")
    return archive


def member(archive: Path, name: str) -> str:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"package/{name}")
        assert file is not None, name
        return file.read().decode()


def rewritten(text: str) -> str:
    """The same module, importing from beside it and naming no map that is not there."""
    for theirs, ours in IMPORTS.items():
        text = text.replace(f"from{theirs}", f"from{ours}").replace(
            f"from {theirs}", f"from {ours}"
        )
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(lines) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if sys.argv[1:] == ["--newest"]:
            for package in dict.fromkeys(module.name for module in MODULES):
                print(package, npm("view", package, "version", "dist.integrity", folder=folder))
            return
        TARGET.mkdir(parents=True, exist_ok=True)
        licences = []
        for module in MODULES:
            archive = fetch(module, folder)
            text = rewritten(member(archive, module.file))
            (TARGET / module.target).write_text(text, encoding="utf-8")
            licence = f"{module.name} {module.version}\n\n{member(archive, 'LICENSE').strip()}\n"
            if licence not in licences:
                licences.append(licence)
            print(f"{module.target}: {module.name} {module.version}, {len(text):,} characters")
        sums = [
            f"{hashlib.sha256((TARGET / module.target).read_bytes()).hexdigest()}  {module.target}"
            for module in MODULES
        ]
        (TARGET / "SHA256SUMS.txt").write_text("\n".join(sums) + "\n", encoding="utf-8")
        rule = "\n" + "-" * 80 + "\n\n"
        (TARGET / "LICENSES.txt").write_text(rule.join(licences), encoding="utf-8")


if __name__ == "__main__":
    main()
