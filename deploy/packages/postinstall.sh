#!/bin/sh
# After installation and upgrade, of deb and rpm. The service is not started, it needs settings first, nor restarted:
# members are restarted one after the other.
set -e
# The unit reads this file as a credential, so it must exist. It may stay empty.
if [ ! -e /etc/sqlbrain/datastore-password ]; then
  (umask 077 && : >/etc/sqlbrain/datastore-password)
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
