"""Fetch the modules that the web page is made with, check them, and put them into the package.

    python requirements/page.py            fetch the versions below and check their hashes
    python requirements/page.py --newest   print the newest versions and their hashes

Needs npm, to fetch; the page itself needs nothing but a browser. Each large module is one file,
taken as it is. The small ones, which every page needs at once, are one file together: a browser
asks a server of HTTP/1.1 for six files at a time, and waits a whole way there and back for each.
"""

import base64
import hashlib
import json
import re
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
        "library.js",
    ),
    Module(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        "hooks/dist/hooks.mjs",
        "library.js",
    ),
    Module(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        "dist/htm.mjs",
        "library.js",
    ),
    Module(
        "@preact/signals-core",
        "1.14.5",
        "sha512-vcRv7Ityz5JVmeiVqIluLFzT/PDS/AlhHUpw3/aUWqcVUs6bDGIPXE/6RSC4evBNWYvnniozg5Syfj33al3gkg==",
        "dist/signals-core.mjs",
        "library.js",
    ),
    Module(
        "@preact/signals",
        "2.11.4",
        "sha512-Rb+5RPo9gWSaHtzJeauhHxiC8KP/IF2DEPkHPEOGOnuy2wnJzRqyeLRankUCYd6ADqtxS6GnWGv6Ie343d8aYw==",
        "dist/signals.mjs",
        "library.js",
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

LIBRARY = "library.js"
NAMES = {
    "dist/preact.mjs": "preact",
    "hooks/dist/hooks.mjs": "preact/hooks",
    "dist/htm.mjs": "htm",
    "dist/signals-core.mjs": "@preact/signals-core",
    "dist/signals.mjs": "@preact/signals",
}
"""The modules that become one, each behind those that it imports, and what importers call them."""

EXPORTS = {
    "preact": ("h", "render", "Fragment"),
    "preact/hooks": ("useEffect", "useLayoutEffect", "useMemo", "useRef", "useState"),
    "htm": ("htm",),
    "@preact/signals": ("signal", "computed", "batch", "effect"),
}
"""What the page uses of them."""


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


def without_map(text: str) -> str:
    """The same module, naming no map of its source: that is not there."""
    return re.sub(r"//# sourceMappingURL=\S*", "", text).strip() + "\n"


def pairs(names: str) -> list[tuple[str, str]]:
    """The names of `a as b, c`: [("a", "b"), ("c", "c")]."""
    return [(one.split(" as ")[0], one.split(" as ")[-1]) for one in names.split(",")]


def as_value(text: str, variables: dict[str, str]) -> str:
    """The module as an expression: an object with all that it exports."""
    found: list[str] = []

    def taken(match: re.Match[str]) -> str:
        inner = ",".join(f"{theirs}:{ours}" for theirs, ours in pairs(match[1]))
        return f"const{{{inner}}}={variables[match[2]]};"

    def passed_on(match: re.Match[str]) -> str:
        source = variables[match[2]]
        found.extend(f"{ours}:{source}.{theirs}" for theirs, ours in pairs(match[1]))
        return ""

    def given(match: re.Match[str]) -> str:
        found.extend(f"{theirs}:{ours}" for ours, theirs in pairs(match[1]))
        return ""

    text = re.sub(r'import\{([^}]*)\}from"([^"]+)";', taken, text.strip())
    text = re.sub(r'export\{([^}]*)\}from"([^"]+)";', passed_on, text)
    text = re.sub(r"export\{([^}]*)\};?", given, text)
    if "export default function(" in text:
        text = text.replace("export default function(", "const main=function(")
        found.append("htm:main")
    if re.search(r"\b(?:import|export)[{ ]", text):
        sys.exit("a module imports or exports in a way that is not known here")
    return f"(()=>{{{text};return{{{','.join(found)}}}}})()"


def joined(texts: dict[str, str]) -> str:
    """One module of those in NAMES, by their names: each is a value behind those that it needs."""
    variables = {name: f"m{number}" for number, name in enumerate(texts)}
    lines = [
        f"const {variables[name]}={as_value(text, variables)};" for name, text in texts.items()
    ]
    lines += [
        f"export const{{{','.join(names)}}}={variables[name]};" for name, names in EXPORTS.items()
    ]
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
        small: dict[str, str] = {}
        for module in MODULES:
            archive = fetch(module, folder)
            text = without_map(member(archive, module.file))
            if module.target == LIBRARY:
                small[NAMES[module.file]] = text
            else:
                (TARGET / module.target).write_text(text, encoding="utf-8")
            licence = f"{module.name} {module.version}\n\n{member(archive, 'LICENSE').strip()}\n"
            if licence not in licences:
                licences.append(licence)
            print(f"{module.target}: {module.name} {module.version}, {len(text):,} characters")
        (TARGET / LIBRARY).write_text(joined(small), encoding="utf-8")
        sums = [
            f"{hashlib.sha256((TARGET / target).read_bytes()).hexdigest()}  {target}"
            for target in dict.fromkeys(module.target for module in MODULES)
        ]
        (TARGET / "SHA256SUMS.txt").write_text("\n".join(sums) + "\n", encoding="utf-8")
        rule = "\n" + "-" * 80 + "\n\n"
        (TARGET / "LICENSES.txt").write_text(rule.join(licences), encoding="utf-8")


if __name__ == "__main__":
    main()
