"""The agents: how each is installed, set up in a home of its own, started, and resumed."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.lab.script import Call
from tests.lab.wires import Wire

ROOT: Final = Path(__file__).resolve().parents[2]
VERSIONS: Final[dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("versions.toml").read_text("utf-8")
)
_INSTALL_SECONDS: Final = 600


def folder() -> Path:
    """Return where the agents are installed: `KILLICK_LAB`, or `.lab` in the checkout."""
    return Path(os.environ.get("KILLICK_LAB") or ROOT / ".lab").resolve()


@dataclass(frozen=True)
class Home:
    """A home of an agent's own, with a folder to work in, and the model that it asks."""

    path: Path
    url: str

    @property
    def work(self) -> Path:
        return self.path / "work"

    def write(self, name: str, content: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")


def _nothing(_home: Home) -> None:
    pass


@dataclass(frozen=True)
class Agent:
    """One agent, as the laboratory runs it: headless, with every tool allowed."""

    name: str
    program: str
    wire: Wire
    shell: Callable[[str], tuple[str, dict[str, Any]]]
    """Gives the name and arguments of its shell tool for a command."""
    begin: Callable[[str, str], list[str]]
    """Gives the arguments for a prompt and an address; those of `go_on` have an id before them."""
    go_on: Callable[[str, str, str], list[str]]
    environment: Callable[[str], Mapping[str, str]] = lambda _url: {}
    set_up: Callable[[Home], None] = _nothing
    sessions: str = ""
    """Where it keeps its sessions, below its home."""
    interrupts: bool = True
    """Whether Ctrl+C ends its turn and not only its process."""
    notes: dict[str, str] = field(default_factory=dict)

    def call(self, command: str, id_: str | None = None) -> Call:
        name, arguments = self.shell(command)
        return Call(name, arguments, id_)

    def executable(self) -> Path:
        return folder() / self.name / self.program

    def is_installed(self) -> bool:
        stamp = folder() / self.name / ".version"
        return (
            self.executable().exists()
            and stamp.exists()
            and stamp.read_text("utf-8") == VERSIONS[self.name]
        )

    def variables(self, home: Home) -> dict[str, str]:
        """Return the environment: nothing of the caller's but the path."""
        path = f"{self.executable().parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {
            "PATH": path,
            "HOME": str(home.path),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            **self.environment(home.url),
        }


def install(agent: Agent) -> None:
    """Install the pinned version, unless it is there. Raises CalledProcessError."""
    if agent.is_installed():
        return
    place = folder() / agent.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    kind, _, wanted = VERSIONS[agent.name].partition(":")
    if kind == "npm":
        (place / "package.json").write_text('{"private": true}\n', "utf-8")
        commands = [["npm", "install", "--no-audit", "--no-fund", *wanted.split()]]
    else:
        commands = [
            [sys.executable, "-m", "venv", str(place)],
            [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted.split()],
        ]
    for command in commands:
        subprocess.run(
            command, cwd=place, check=True, timeout=_INSTALL_SECONDS, capture_output=True
        )
    (place / ".version").write_text(VERSIONS[agent.name], "utf-8")


@cache
def missing_tool(agent_name: str) -> str | None:
    """Return what is needed to install an agent and is not here."""
    if VERSIONS[agent_name].startswith("npm:") and shutil.which("npm") is None:
        return "npm"
    return None


# -- each agent ------------------------------------------------------------------------------------


def _npm(program: str) -> str:
    return f"node_modules/.bin/{program}"


def _codex(url: str) -> list[str]:
    provider = f'{{name="local",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
    return [
        "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "-c", "model=scripted", "-c", "model_provider=local", "-c",
        f"model_providers.local={provider}",
    ]  # fmt: skip


CODEX: Final = Agent(
    "codex",
    _npm("codex"),
    "responses",
    lambda command: ("exec_command", {"cmd": command}),
    lambda url, prompt: [*_codex(url), prompt],
    lambda url, id_, prompt: [*_codex(url), "resume", id_, prompt],
    lambda _url: {"OPENAI_API_KEY": "x"},
    lambda home: (home.path / ".codex").mkdir(parents=True, exist_ok=True),
    sessions=".codex/sessions",
)

CLAUDE_CODE: Final = Agent(
    "claude-code",
    _npm("claude"),
    "anthropic",
    lambda command: ("Bash", {"command": command, "description": "Run it"}),
    lambda _url, prompt: ["-p", "--dangerously-skip-permissions", prompt],
    lambda _url, id_, prompt: ["-p", "--dangerously-skip-permissions", "--resume", id_, prompt],
    lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    },
    sessions=".claude/projects",
)


def _opencode_set_up(folder_name: str) -> Callable[[Home], None]:
    def set_up(home: Home) -> None:
        model = {
            "name": "scripted",
            "tool_call": True,
            "limit": {"context": 200000, "output": 8000},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "local",
            "options": {"baseURL": f"{home.url}/v1", "apiKey": "x"},
            "models": {"scripted": model},
        }
        config = {
            "model": "local/scripted",
            "small_model": "local/scripted",
            "share": "disabled",
            "autoupdate": False,
            "permission": "allow",
            "provider": {"local": provider},
        }
        home.write(f".config/{folder_name}/{folder_name}.json", json.dumps(config))

    return set_up


OPENCODE: Final = Agent(
    "opencode",
    _npm("opencode"),
    "chat",
    lambda command: ("bash", {"command": command, "description": "Run it"}),
    lambda _url, prompt: ["run", prompt],
    lambda _url, id_, prompt: ["run", "--session", id_, prompt],
    lambda _url: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
    _opencode_set_up("opencode"),
    sessions=".local/share/opencode",
)

KILO: Final = Agent(
    "kilo",
    "node_modules/@kilocode/cli-linux-x64/bin/kilo",
    "chat",
    lambda command: ("bash", {"command": command, "description": "Run it"}),
    lambda _url, prompt: ["run", "--auto", prompt],
    lambda _url, id_, prompt: ["run", "--auto", "--session", id_, prompt],
    lambda _url: {"KILO_DISABLE_MODELS_FETCH": "1", "KILO_DISABLE_AUTOUPDATE": "1",
                  "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
    _opencode_set_up("kilo"),
    sessions=".local/share/kilo",
)  # fmt: skip

QWEN: Final = Agent(
    "qwen",
    _npm("qwen"),
    "chat",
    lambda command: ("run_shell_command", {"command": command, "is_background": False}),
    lambda _url, prompt: ["--yolo", "--auth-type", "openai", "-p", prompt],
    lambda _url, id_, prompt: [
        "--yolo",
        "--auth-type",
        "openai",
        "--resume",
        id_,
        "-p",
        prompt,
    ],
    lambda url: {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "scripted"},
    sessions=".qwen/projects",
)

HERMES: Final = Agent(
    "hermes",
    "bin/hermes",
    "chat",
    lambda command: ("terminal", {"command": command}),
    lambda _url, prompt: ["--yolo", "-z", prompt],
    lambda _url, id_, prompt: ["--yolo", "chat", "--resume", id_, "-q", prompt],
    set_up=lambda home: home.write(
        ".hermes/config.yaml",
        "model:\n  default: scripted\n  provider: custom\n"
        f"  base_url: {home.url}/v1\n  api_key: x\n",
    ),
    sessions=".hermes",
)

GEMINI: Final = Agent(
    "gemini",
    _npm("gemini"),
    "gemini",
    lambda command: ("run_shell_command", {"command": command}),
    lambda _url, prompt: ["--yolo", "-p", prompt],
    lambda _url, id_, prompt: ["--yolo", "--resume", id_, "-p", prompt],
    lambda url: {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "x",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    lambda home: home.write(
        ".gemini/settings.json",
        json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "general": {"disableAutoUpdate": True},
                "privacy": {"usageStatisticsEnabled": False},
            }
        ),
    ),
    sessions=".gemini/tmp",
)

COPILOT: Final = Agent(
    "copilot",
    _npm("copilot"),
    "chat",
    lambda command: ("bash", {"command": command, "description": "Run it"}),
    lambda _url, prompt: ["--allow-all-tools", "-p", prompt],
    lambda _url, id_, prompt: ["--allow-all-tools", f"--resume={id_}", "-p", prompt],
    lambda url: {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "x",
        "COPILOT_MODEL": "scripted",
        "COPILOT_OFFLINE": "true",
    },
    sessions=".copilot/session-state",
)

PI: Final = Agent(
    "pi",
    _npm("pi"),
    "chat",
    lambda command: ("bash", {"command": command}),
    lambda _url, prompt: ["--provider", "local", "--model", "scripted", "-p", prompt],
    lambda _url, id_, prompt: [
        "--provider",
        "local",
        "--model",
        "scripted",
        "--session",
        id_,
        "-p",
        prompt,
    ],
    lambda _url: {"PI_SKIP_VERSION_CHECK": "1", "PI_OFFLINE": "1"},
    lambda home: home.write(
        ".pi/agent/models.json",
        json.dumps(
            {
                "providers": {
                    "local": {
                        "baseUrl": f"{home.url}/v1",
                        "api": "openai-completions",
                        "apiKey": "x",
                        "models": [{"id": "scripted", "contextWindow": 200000, "maxTokens": 8000}],
                    }
                }
            }
        ),
    ),
    sessions=".pi/agent/sessions",
)

AGENTS: Final[dict[str, Agent]] = {
    agent.name: agent
    for agent in (CODEX, CLAUDE_CODE, OPENCODE, QWEN, HERMES, GEMINI, COPILOT, PI, KILO)
}
