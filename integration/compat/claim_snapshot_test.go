package compat

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"
)

// snapshots compares what is in the snapshots of both servers, and how they are sent.
func (c *checker) snapshots() {
	c.t.Helper()
	q := call{"Maintenance/Snapshot", &pb.SnapshotRequest{}}
	var got []string
	for _, s := range c.p.sides() {
		a := s.ask(q)
		if a.err != nil {
			c.t.Fatalf("%s: %s", s.name, a)
		}
		var parts []*pb.SnapshotResponse
		for _, m := range a.messages {
			parts = append(parts, m.(*pb.SnapshotResponse))
		}
		got = append(got, c.snapshotOf(s, parts))
	}
	if c.same("snapshots", got) {
		c.rec.request(q, true)
	}
}

// webSnapshots is snapshots over HTTP.
func (c *checker) webSnapshots() {
	c.t.Helper()
	const path = "/v3/maintenance/snapshot"
	var got []string
	for _, s := range c.p.sides() {
		resp, err := httpClient.Post(s.node.Endpoint()+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			c.t.Fatal(err)
		}
		var parts []*pb.SnapshotResponse
		lines := json.NewDecoder(resp.Body)
		for {
			var line struct{ Result json.RawMessage }
			if err := lines.Decode(&line); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				c.t.Fatalf("%s: %v", s.name, err)
			}
			part := &pb.SnapshotResponse{}
			if err := protojson.Unmarshal(line.Result, part); err != nil {
				c.t.Fatalf("%s: %v", s.name, err)
			}
			parts = append(parts, part)
		}
		if err := resp.Body.Close(); err != nil {
			c.t.Error(err)
		}
		got = append(got, resp.Status+" "+resp.Header.Get("Content-Type")+"\n"+c.snapshotOf(s, parts))
	}
	if c.same(path, got) {
		c.rec.webRequest(http.MethodPost, path, true)
	}
}

// snapshotOf returns what is in a snapshot, but for what belongs to raft and to members,
// once it is sure that the parts make one.
func (c *checker) snapshotOf(s *side, parts []*pb.SnapshotResponse) string {
	c.t.Helper()
	if len(parts) < 2 {
		c.t.Fatalf("%s: %d parts", s.name, len(parts))
	}
	var file []byte
	for i, p := range parts {
		hash := i == len(parts)-1
		if hash {
			if sum := sha256.Sum256(file); !bytes.Equal(p.Blob, sum[:]) {
				c.t.Errorf("%s: the last part is %x, the hash of the others %x", s.name, p.Blob, sum)
			}
		} else {
			file = append(file, p.Blob...)
		}
		left := uint64(0)
		for _, later := range parts[i+1 : max(i+1, len(parts)-1)] {
			left += uint64(len(later.Blob))
		}
		if p.RemainingBytes != left || p.Version != "3.7.0" {
			c.t.Errorf("%s: part %d says that %d bytes remain, of version %s; it is %d", s.name, i, p.RemainingBytes,
				p.Version, left)
		}
	}
	path := filepath.Join(c.t.TempDir(), "db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		c.t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		c.t.Fatalf("%s: %v", s.name, err)
	}
	var content strings.Builder
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			c.t.Errorf("%s: %v", s.name, err)
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			fmt.Fprintf(&content, "bucket %s\n", name)
			return b.ForEach(func(k, v []byte) error {
				switch string(name) {
				case "members", "members_removed":
					return nil
				case "meta":
					if bytes.HasSuffix(k, []byte("CompactRev")) || string(k) == "storageVersion" {
						break
					}
					v = nil
				}
				fmt.Fprintf(&content, "%q %q\n", k, v)
				return nil
			})
		})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		c.t.Fatalf("%s: %v", s.name, err)
	}
	return content.String()
}

// aPast gives both servers what a snapshot may have.
func (c *checker) aPast() {
	for i := range 30 {
		c.put(fmt.Sprint("k", i%7), fmt.Sprint(i))
	}
	c.grant(4711, 900)
	c.kv("Put", &pb.PutRequest{Key: []byte("leased"), Lease: 4711})
	c.then(opsPut("x", "1"), opsDelete("k1", "k3"), opsPut("y", ""))
	c.compact(c.revision-3, true)
	c.del("k0", "")
	c.put("k0", "again")
}
