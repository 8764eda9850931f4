package main

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// notify tells the service manager a state such as READY=1, if it asked for it
// with NOTIFY_SOCKET; see sd_notify(3).
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	// net turns a leading @ into the zero byte of the abstract name space.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
