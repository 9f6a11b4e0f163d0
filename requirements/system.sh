#!/usr/bin/env bash
# What some tests need that pip does not bring: the oldest PostgreSQL that is supported, a pooler, a
# browser, a terminal. On Debian and as root they are installed; elsewhere install them yourself.
# What is missing is named here, and the tests that need it are skipped and say so at the end.
set -uo pipefail

missing=()
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing+=(postgresql-15)
command -v pgbouncer > /dev/null || missing+=(pgbouncer)
command -v chromium > /dev/null || missing+=(chromium fonts-liberation)
command -v tmux > /dev/null || missing+=(tmux)
command -v promtool > /dev/null || missing+=(promtool)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "not installed, so tests are skipped: ${missing[*]}" >&2
  exit 0
fi
apt-get update -qq
for package in "${missing[@]}"; do
  if [ "$package" = promtool ]; then  # and not the server that comes with it
    folder=$(mktemp -d)
    (cd "$folder" && apt-get download -qq prometheus 2> /dev/null && dpkg-deb -x prometheus_*.deb . &&
      install usr/bin/promtool /usr/local/bin/) > /dev/null ||
      echo "could not be installed, so a test is skipped: promtool" >&2
    rm -rf "$folder"
    continue
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$package" > /dev/null ||
    echo "could not be installed, so tests are skipped: $package" >&2
done
