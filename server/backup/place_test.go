package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// objectStorage is an S3 server in this process. fault, if not nil, may answer in its place: then it returns true.
type objectStorage struct {
	server *httptest.Server
	fault  atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func newObjectStorage(t *testing.T) *objectStorage {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bucket"))
	s3 := gofakes3.New(backend).Server()
	o := &objectStorage{}
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := o.fault.Load(); f != nil && (*f)(w, r) {
			return
		}
		if r.URL.Query().Has("partNumber") && strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
			r.Body = io.NopCloser(&signedChunks{in: bufio.NewReader(r.Body)}) // the server does that for whole files only
			r.ContentLength, _ = strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
			r.Header.Set("Content-Length", fmt.Sprint(r.ContentLength))
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(o.server.Close)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": o.server.URL, "AWS_ENDPOINT_URL_S3": "",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_REGION": "us-east-1"} {
		t.Setenv(name, value)
	}
	return o
}

// signedChunks reads what chunks hold: size in hexadecimal, ";", signature, "\r\n", content, "\r\n".
type signedChunks struct {
	in   *bufio.Reader
	left int64
}

func (c *signedChunks) Read(p []byte) (int, error) {
	if c.left == 0 {
		line, err := c.in.ReadString('\n')
		for err == nil && line == "\r\n" {
			line, err = c.in.ReadString('\n')
		}
		if err != nil {
			return 0, err
		}
		size, _, _ := strings.Cut(line, ";")
		if c.left, err = strconv.ParseInt(size, 16, 64); err != nil {
			return 0, err
		}
		if c.left == 0 {
			return 0, io.EOF
		}
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func (o *objectStorage) set(fault func(w http.ResponseWriter, r *http.Request) bool) {
	o.fault.Store(&fault)
}

func openPlace(t *testing.T, target string) Place {
	t.Helper()
	p, err := OpenPlace(target, nil)
	require.NoError(t, err)
	require.Equal(t, target, p.String())
	return p
}

// onPlaces runs a test on each kind of place.
func onPlaces(t *testing.T, test func(t *testing.T, p Place)) {
	t.Run("directory", func(t *testing.T) {
		test(t, openPlace(t, "file://"+filepath.ToSlash(filepath.Join(t.TempDir(), "not", "there"))))
	})
	t.Run("s3", func(t *testing.T) {
		newObjectStorage(t)
		test(t, openPlace(t, "s3://bucket/some/where"))
	})
}

func put(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

// TestPlaces: what Place documents.
func TestPlaces(t *testing.T) {
	onPlaces(t, func(t *testing.T, p Place) {
		ctx := t.Context()
		names := func(want ...string) {
			t.Helper()
			got, err := p.List(ctx)
			require.NoError(t, err)
			require.ElementsMatch(t, want, got)
		}
		content := func(name string, want []byte) {
			t.Helper()
			r, err := p.Read(ctx, name)
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, errors.Join(err, r.Close()))
			require.True(t, bytes.Equal(want, got), "%d bytes in place of %d", len(got), len(want))
		}
		names()
		_, err := p.Read(ctx, "none")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, p.Remove(ctx, "none"))

		large := make([]byte, partBytes+partBytes/2)
		for i := range large {
			large[i] = byte(i >> 10)
		}
		require.NoError(t, p.Create(ctx, "one", put([]byte("1"))))
		require.NoError(t, p.Create(ctx, "one", put([]byte("2"))))
		require.NoError(t, p.Create(ctx, "large", put(large)))
		content("one", []byte("2"))
		content("large", large)
		names("one", "large")

		for written, failure := range map[int]error{0: fmt.Errorf("reading: %w", io.EOF), 1: errors.New("the source"),
			len(large): io.EOF} {
			for _, name := range []string{"one", "new"} {
				require.ErrorIs(t, p.Create(ctx, name, func(w io.Writer) error {
					return cmp.Or(put(large[:written])(w), failure)
				}), failure)
			}
		}
		for _, name := range []string{"one", "new"} { // a disk that hangs until another one leads
			ended, cancel := context.WithCancel(ctx)
			err := p.Create(ended, name, func(w io.Writer) error {
				cancel()
				return put([]byte("3"))(w)
			})
			cancel()
			require.ErrorIs(t, err, context.Canceled)
		}
		content("one", []byte("2"))
		names("one", "large")
		require.NoError(t, p.Remove(ctx, "none", "large"))
		names("one")
	})
}

func TestTargetsThatAreNoPlace(t *testing.T) {
	for _, target := range []string{"", "backups", "/backups", "file://host/dir", "file:dir", "s3://", "s3:///prefix",
		"http://b/p",
		"s3://user:secret@bucket/p", "s3://user:secret%@bucket/p", "s3://bucket/p?key=secret",
		"s3://bucket/p?x=y", "s3://bucket:9000/p"} {
		_, err := OpenPlace(target, nil)
		require.ErrorContains(t, err, "names no place for a backup", "%q", target)
		require.NotContains(t, err.Error(), "secret")
	}
	t.Setenv("AWS_ENDPOINT_URL", "minio:9000")
	_, err := OpenPlace("s3://bucket", nil)
	require.ErrorContains(t, err, "AWS_ENDPOINT_URL")
}

// TestShipToObjectStorage and restore from it, while requests fail, answers are slow and connections break; two
// processes ship.
func TestShipToObjectStorage(t *testing.T) {
	o := newObjectStorage(t)
	random := rand.New(rand.NewPCG(1, 1))
	w := newWorld(t)
	w.place = openPlace(t, "s3://bucket/p")
	var faults, n atomic.Int64
	o.set(func(rw http.ResponseWriter, r *http.Request) bool {
		switch faults.Add(1); n.Add(1) % 5 {
		case 1:
			http.Error(rw, "", http.StatusInternalServerError)
		case 2: // the answer is cut
			rw.Header().Set("Content-Length", "1000")
			rw.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		case 3: // the request was executed
			if r.Method == http.MethodPut {
				f := o.fault.Load()
				o.fault.Store(nil)
				o.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
				o.fault.Store(f)
				panic(http.ErrAbortHandler)
			}
			return false
		default:
			return false
		}
		return true
	})
	w.write(5, random)
	first := w.Revision()
	for range 3 {
		w.ship()
		w.write(10, random)
	}
	w.ship()
	require.Greater(t, faults.Load(), int64(20))
	for revision := first; revision <= w.Revision(); revision += 7 {
		got, _ := w.restored(Moment{Revision: revision})
		require.Equal(t, hash(t, w.Replica, revision), hash(t, got, 0), "revision %d", revision)
	}
	o.fault.Store(nil)
	w.write(3, random)
	one := w.shipper()
	w.place = openPlace(t, "s3://bucket/p")
	two := w.shipper()
	require.NoError(t, one.step(t.Context()))
	require.ErrorIs(t, two.step(t.Context()), errChanged)
	require.NoError(t, two.open(t.Context()))
	w.write(3, random)
	require.NoError(t, two.step(t.Context()))
	w.write(3, random)
	require.ErrorIs(t, one.step(t.Context()), errChanged)
	require.NoError(t, one.open(t.Context()))
	require.NoError(t, one.step(t.Context()))
	got, _ := w.restored(Moment{})
	require.Equal(t, hash(t, w.Replica, 0), hash(t, got, 0))
}

// TestManifestThatIsHalfReadIsNotReplaced: the process that reads it stops, and writes what is missing in its own.
func TestManifestThatIsHalfReadIsNotReplaced(t *testing.T) {
	o := newObjectStorage(t)
	random := rand.New(rand.NewPCG(49, 50))
	w := newWorld(t)
	w.place = openPlace(t, "s3://bucket/p")
	w.write(5, random)
	w.ship()
	one := w.shipper()
	w.place = openPlace(t, "s3://bucket/p")
	two := w.shipper()
	require.NoError(t, two.step(t.Context()))
	w.write(3, random)
	require.NoError(t, one.step(t.Context()))
	etag := `"` + one.To.(*bucket).manifest + `"`
	ctx, cancel := context.WithCancel(t.Context())
	o.set(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" { // it continues after the cut
			cancel()
			panic(http.ErrAbortHandler)
		}
		rw.Header().Set("ETag", etag)
		rw.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		rw.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(rw, "{")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})
	require.Error(t, two.open(ctx))
	o.fault.Store(nil)
	w.write(3, random)
	two.finish(ctx)
	m, err := one.to.manifest(t.Context())
	require.NoError(t, err)
	require.True(t, m.equal(one.manifest), "%+v", m)
}

// TestOutage: Ship continues once the storage is there again.
func TestOutage(t *testing.T) {
	o := newObjectStorage(t)
	random := rand.New(rand.NewPCG(2, 2))
	w := newWorld(t)
	w.place = openPlace(t, "s3://bucket/p")
	w.write(5, random)
	w.ship()
	w.write(5, random)
	var refused atomic.Int64
	o.set(func(rw http.ResponseWriter, _ *http.Request) bool {
		if refused.Add(1) < 3*requestAttempts {
			http.Error(rw, "", http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	w.ship()
	got, _ := w.restored(Moment{})
	require.Equal(t, hash(t, w.Replica, 0), hash(t, got, 0))
}

// TestReadContinuesAfterCuts and ends with an error if the file has changed, or nothing more comes.
func TestReadContinuesAfterCuts(t *testing.T) {
	o := newObjectStorage(t)
	p := openPlace(t, "s3://bucket")
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	require.NoError(t, p.Create(t.Context(), "f", put(content)))
	var most, then atomic.Int64 // bytes that an answer brings, and those after it
	o.set(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		all := httptest.NewRecorder()
		f := o.fault.Load()
		o.fault.Store(nil)
		o.server.Config.Handler.ServeHTTP(all, r)
		o.fault.Store(f)
		for k, v := range all.Header() {
			rw.Header()[k] = v
		}
		rw.WriteHeader(all.Code)
		sent := min(int(most.Load()), all.Body.Len())
		cut := all.Body.Len() > sent
		if cut {
			most.Store(then.Load()) // before the client can ask again
		}
		if _, err := rw.Write(all.Body.Bytes()[:sent]); err != nil || cut {
			panic(http.ErrAbortHandler)
		}
		return true
	})
	read := func() ([]byte, error) {
		r, err := p.Read(t.Context(), "f")
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		_ = r.Close()
		return got, err
	}
	most.Store(300_000)
	then.Store(300_000)
	got, err := read()
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	then.Store(0)
	_, err = read()
	require.Error(t, err)
}

// TestRefusedCredentials and a bucket that does not exist end Ship with what to do.
func TestRefusedCredentials(t *testing.T) {
	o := newObjectStorage(t)
	w := newWorld(t)
	w.place = openPlace(t, "s3://bucket/p")
	o.set(func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw, `<Error><Code>SignatureDoesNotMatch</Code><Message>check your key</Message></Error>`)
		return true
	})
	err := w.refused(w.store)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "check your key")
	require.NotContains(t, err.Error(), "the-secret")
	o.fault.Store(nil)
	w.place = openPlace(t, "s3://another/p")
	err = w.refused(w.store)
	require.ErrorIs(t, err, errBucket)
	require.ErrorContains(t, err, "s3://another/p")
}

// forbidden is a Place that may be read only.
type forbidden struct{ Place }

func (forbidden) Create(context.Context, string, func(io.Writer) error) error {
	return fs.ErrPermission
}

// TestPlaceThatMayOnlyBeRead ends Ship, before the first file and later.
func TestPlaceThatMayOnlyBeRead(t *testing.T) {
	w := newWorld(t)
	written := w.place
	w.place = forbidden{written}
	require.ErrorIs(t, w.refused(w.store), fs.ErrPermission)
	w.place = written
	w.write(3, rand.New(rand.NewPCG(3, 3)))
	w.ship()
	w.write(3, rand.New(rand.NewPCG(4, 4)))
	w.place = forbidden{written}
	require.ErrorIs(t, w.refused(w.store), fs.ErrPermission)
}

// TestEncryptedBackup: nothing but the manifest can be read without an identity, and no other one will do.
func TestEncryptedBackup(t *testing.T) {
	onPlaces(t, func(t *testing.T, p Place) {
		mine, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		other, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "identity")
		require.NoError(t, os.WriteFile(file, []byte("# a comment\n"+mine.String()+"\n"), 0o600))
		recipients, err := Recipients([]string{mine.Recipient().String()})
		require.NoError(t, err)
		identities, err := Identities(file)
		require.NoError(t, err)

		w := newWorld(t)
		w.place, w.recipients, w.identities = p, recipients, identities
		random := rand.New(rand.NewPCG(5, 5))
		secret := []byte("a-key-that-none-may-see")
		write := func() {
			w.write(5, random)
			_, err := w.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: secret, Value: secret}}}},
				true)
			require.NoError(t, err)
		}
		write()
		w.ship()
		write()
		w.ship()
		b := w.open(Moment{})
		require.NotEmpty(t, b.segments)
		require.NoError(t, b.Close())
		for range 2 {
			got, _ := w.restored(Moment{})
			require.Equal(t, hash(t, w.Replica, 0), hash(t, got, 0))
		}
		names, err := p.List(t.Context())
		require.NoError(t, err)
		identity, err := w.store.Get(t.Context(), coder.IdentityKey())
		require.NoError(t, err)
		for _, name := range names {
			content, err := archive{Place: p}.read(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, name != manifestName, bytes.HasPrefix(content, []byte("age-encryption.org/v1\n")), name)
			require.NotContains(t, string(content), string(secret))
			require.NotContains(t, string(content), string(identity))
		}

		w.identities = nil
		_, err = Open(t.Context(), w.source(), Moment{})
		require.ErrorIs(t, err, ErrIdentity)
		w.identities = []age.Identity{other}
		_, err = Open(t.Context(), w.source(), Moment{})
		require.ErrorIs(t, err, ErrIdentity)
		w.recipients = nil
		err = w.refused(w.store)
		require.ErrorIs(t, err, errSealed)
		require.ErrorAs(t, err, new(placeError))

		w.identities = identities
		b = w.open(Moment{})
		base := b.base.name()
		require.NoError(t, p.Create(t.Context(), base, put([]byte("SQLite format 3"))))
		_, err = b.Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
		require.ErrorIs(t, err, ErrDamaged, "who may write to the place has replaced it by one that is not encrypted")
		require.NoError(t, b.Close())
		spans, damages, err := Verify(t.Context(), w.source())
		require.NoError(t, err)
		require.Empty(t, spans)
		require.Len(t, damages, 1)
		require.ErrorContains(t, damages[0], base)
		a := archive{Place: p}
		m, err := a.manifest(t.Context())
		require.NoError(t, err)
		m.Encrypted = false
		require.NoError(t, a.setManifest(t.Context(), m))
		_, err = Open(t.Context(), w.source(), Moment{})
		require.ErrorIs(t, err, errPlain)
	})
}

func TestRecipientsAndIdentities(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(path, []byte("AGE-SECRET-KEY-WRONG\n"), 0o600))
	for _, name := range []string{"age1", "age1qqqq", path, filepath.Join(dir, "none"), "AGE-SECRET-KEY-1Q"} {
		_, err := Recipients([]string{name})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "AGE-SECRET")
	}
	for _, name := range []string{path, filepath.Join(dir, "none"), "AGE-SECRET-KEY-1Q"} {
		_, err := Identities(name)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "AGE-SECRET")
	}
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(id.Recipient().String()+"\n"), 0o600))
	all, err := Recipients([]string{path, id.Recipient().String()})
	require.NoError(t, err)
	require.Len(t, all, 2)
	none, err := Identities("")
	require.NoError(t, err)
	require.Empty(t, none)
}
