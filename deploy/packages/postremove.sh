#!/bin/sh
# After removal and upgrade. Settings, the password and the data in /var/lib/private/sqlbrain stay, unless they are purged.
set -e
if [ "$1" = purge ]; then
  rm -f /etc/sqlbrain/datastore-password
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
