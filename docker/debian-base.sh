#!/usr/bin/env bash
# Makes a stand-in for python:3.11-slim-bookworm from Debian's packages, where no container registry can be reached.
#
# Usage, as root: docker/debian-base.sh [TAG]       DOCKER names the client (default: docker).
# It brings Debian's Python 3.11 with venv and pip, and this machine's certificate authorities.
set -euo pipefail

tag=${1:-python:3.11-slim-bookworm}
docker=${DOCKER:-docker}
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" >"$root.log" 2>&1 \
  || { tail -n 20 "$root.log" >&2; exit 1; }
rm -f "$root.log"
# As in the image that this stands in for: `python`, and a pip that may install into the system.
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
ln -sf python3 "$root/usr/bin/python"
if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/man
tar -C "$root" --numeric-owner -c . | $docker import --change 'CMD ["python3"]' - "$tag" >/dev/null
echo "$tag: made from Debian's packages"
