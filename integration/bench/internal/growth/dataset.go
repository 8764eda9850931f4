package growth

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// prefix is of all keys of the data; those that are created while it is measured
// are below created.
const (
	prefix  = "/registry/growth/"
	created = "/registry/created/"
)

// keyOf returns the key of a number. Keys are in the order of their numbers.
func keyOf(n int) string { return prefix + fmt.Sprintf("ns-%05d/name-%09d", n/1000, n) }

// numberOf is the inverse of keyOf.
func numberOf(key []byte) (int, error) {
	_, name, _ := strings.Cut(string(key), "/name-")
	n, err := strconv.Atoi(name)
	if err != nil || keyOf(n) != string(key) {
		return 0, fmt.Errorf("key %q is none of the data", key)
	}
	return n, nil
}

// valueOf returns the value of a key's version, counted from 1: half of its bytes
// repeat, as in a cluster's objects.
func valueOf(n, version, size int) []byte {
	b := make([]byte, 0, size+40)
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	b = binary.BigEndian.AppendUint32(b, uint32(version))
	seed := uint64(n)<<32 ^ uint64(version)
	for len(b) < size {
		seed = seed*6364136223846793005 + 1442695040888963407
		b = append(b, "metadata.labels:"...)
		b = binary.LittleEndian.AppendUint64(b, seed)
		b = binary.LittleEndian.AppendUint64(b, seed*0x9e3779b97f4a7c15)
	}
	return b[:size]
}

// check fails if kv is not what the data holds: the newest of so many versions.
func (d *Dataset) check(kv *mvccpb.KeyValue) error {
	n, err := numberOf(kv.Key)
	if err != nil {
		return err
	}
	version := d.Versions
	if n < d.rewritten {
		version++
	}
	if n >= d.Keys || !bytes.Equal(kv.Value, valueOf(n, version, d.ValueSize)) {
		return fmt.Errorf("key %s has another value than its version %d", kv.Key, version)
	}
	if d.versioned && kv.Version != int64(version) {
		return fmt.Errorf("key %s has version %d, want %d", kv.Key, kv.Version, version)
	}
	return nil
}

// checkPage fails if resp is not the page of most keys that begins with number from.
func (d *Dataset) checkPage(resp *clientv3.GetResponse, from, most int) error {
	want := min(most, d.Keys-from)
	if len(resp.Kvs) != want || resp.Count != int64(d.Keys-from) || resp.More != (want < d.Keys-from) {
		return fmt.Errorf("page from %d: %d keys, count %d, more %t", from, len(resp.Kvs), resp.Count, resp.More)
	}
	for i, kv := range resp.Kvs {
		if n, err := numberOf(kv.Key); err != nil || n != from+i {
			return fmt.Errorf("page from %d: key %d of it is %q", from, i, kv.Key)
		}
		if err := d.check(kv); err != nil {
			return err
		}
	}
	return nil
}
