#!/bin/sh
# Before removal and upgrade. dpkg says "upgrade" and rpm 1 if another version follows: the service keeps running.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now sqlbrain.service
    fi
    ;;
esac
