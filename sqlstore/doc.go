// Package sqlstore is being written.
package sqlstore
