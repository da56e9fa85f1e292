#!/usr/bin/env bash
# Runs a command in the processor time that nothing else on the machine wants, until its parent ends:
#   setsid --wait bash scripts/in-background.sh COMMAND [ARGUMENT...]
# The scheduler shares time among sessions before it looks at priorities, so this one is a session of its own.
set -euo pipefail
renice -n 19 -p $$ >/dev/null
# Not every kernel groups by sessions.
if [[ -w /proc/self/autogroup ]]; then echo 19 >/proc/self/autogroup; fi
exec setpriv --pdeathsig TERM "$@"
