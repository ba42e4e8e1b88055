#!/bin/sh
# ship.sh FILE: sends the lines that are added to FILE into the live stream. weir takes the place of this shell, so that
# signals reach it and its end is the container's; what is added while it is away is not sent.
set -eu
pipe=$(mktemp -u)
mkfifo "$pipe"
tail -n 0 -F "$1" >"$pipe" &
exec weir ingest - --format nginx --live <"$pipe"
