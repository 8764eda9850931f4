package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// partBytes is the size of the parts of a large file, up to three of which are in memory. A file has up to 10,000.
	partBytes = 32 << 20
	// silence is how long a connection may pass no byte in either direction.
	silence = time.Minute
	// requestAttempts is how often a request is sent before it counts as failed, up to 1 s apart.
	requestAttempts = 5
)

var (
	// errChanged: another process has written the manifest since this one read it.
	errChanged = errors.New("another process writes to this backup")
	errBucket  = errors.New("the bucket does not exist")
)

// bucket is a Place in object storage that speaks S3. It replaces a manifest only if that is the one which it read or
// wrote last, if the server knows If-Match: then two processes that ship take turns, and lose nothing of each other.
type bucket struct {
	client       minio.Core
	role         credentials.Provider // nil: none
	name, prefix string

	mu       sync.Mutex
	manifest string // ETag of the manifest, "" unless it was read to its end, or written
}

// openBucket returns the place s3://BUCKET/PREFIX. Endpoint and region come from the environment, credentials also from
// the files of the AWS tools, or role.
func openBucket(u *url.URL, role credentials.Provider) (*bucket, error) {
	endpoint, err := url.Parse(cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"),
		"https://s3.amazonaws.com"))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, errors.New("AWS_ENDPOINT_URL is no URL that begins with https:// or http://")
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, err
	}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &watchedConn{conn}, err
	}
	chain := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if role != nil {
		chain = append(chain, role)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials(chain), Secure: endpoint.Scheme == "https", Transport: transport,
		MaxRetries: requestAttempts, Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	})
	if err != nil {
		return nil, err
	}
	return &bucket{client: minio.Core{Client: client}, role: role, name: u.Host, prefix: strings.Trim(u.Path, "/")}, nil
}

// watchedConn is a connection that fails after silence.
type watchedConn struct{ net.Conn }

func (c *watchedConn) Read(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(silence)) // fails if it is closed, as Read then
	return c.Conn.Read(b)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(silence)) // fails if it is closed, as Write then
	return c.Conn.Write(b)
}

func (b *bucket) String() string { return "s3://" + path.Join(b.name, b.prefix) }

func (b *bucket) object(name string) string { return path.Join(b.prefix, name) }

// failure gives an error of the client the meaning that Place documents.
func (b *bucket) failure(err error) error {
	switch r := minio.ToErrorResponse(err); {
	case err == nil:
		return nil
	case r.Code == minio.NoSuchKey:
		return fmt.Errorf("%s: %w", b, fs.ErrNotExist)
	case r.Code == minio.NoSuchBucket:
		return fmt.Errorf("%s: %w: create it", b, errBucket)
	case r.StatusCode == http.StatusPreconditionFailed, r.Code == "ConditionalRequestConflict":
		return fmt.Errorf("%s: %w", b, errChanged)
	case r.StatusCode == http.StatusForbidden && r.Code != "RequestTimeTooSkewed":
		if keys, kerr := b.client.GetCreds(); kerr != nil || keys.AccessKeyID == "" {
			if b.role != nil {
				_, kerr = b.role.RetrieveWithCredContext(nil)
			}
			err = fmt.Errorf("no credentials were found in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, files or a role: %w",
				errors.Join(kerr, err))
		}
		return fmt.Errorf("%s: %w: %w", b, fs.ErrPermission, err)
	}
	return fmt.Errorf("%s: %w", b, err)
}

// Read implements Place. It continues after a connection broke.
func (b *bucket) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	r := &resumed{ctx: ctx, from: b, name: b.object(name)}
	if err := r.open(); err != nil {
		if name == manifestName && errors.Is(err, fs.ErrNotExist) {
			b.saw("")
		}
		return nil, err
	}
	return r, nil
}

func (b *bucket) saw(manifest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manifest = manifest
}

// resumed is a file that is read. It belongs to one goroutine.
type resumed struct {
	io.ReadCloser
	ctx      context.Context
	from     *bucket
	name     string
	etag     string
	at, size int64
	failures int // without a byte since
}

func (r *resumed) open() (err error) {
	var o minio.GetObjectOptions
	if r.at > 0 {
		if err := errors.Join(o.SetRange(r.at, 0), o.SetMatchETag(r.etag)); err != nil {
			return err
		}
	}
	body, info, _, err := r.from.client.GetObject(r.ctx, r.from.name, r.name, o)
	if err != nil {
		return r.from.failure(err)
	}
	if r.ReadCloser = body; r.at == 0 {
		r.etag, r.size = info.ETag, info.Size
	}
	return nil
}

func (r *resumed) Read(p []byte) (int, error) {
	for {
		n, err := r.ReadCloser.Read(p)
		if n > 0 {
			r.at, r.failures = r.at+int64(n), 0
			return n, nil
		}
		if err == nil || r.at == r.size && errors.Is(err, io.EOF) {
			if err != nil && r.name == r.from.object(manifestName) {
				r.from.saw(r.etag)
			}
			return 0, err
		}
		if r.failures++; r.failures > requestAttempts || r.ctx.Err() != nil {
			return 0, r.from.failure(errors.Join(err, r.ctx.Err()))
		}
		if retry.Database.Wait(r.ctx, r.failures) != nil {
			return 0, r.ctx.Err()
		}
		_ = r.ReadCloser.Close() // it is broken
		if err := r.open(); err != nil {
			return 0, err
		}
	}
}

// Create implements Place. It keeps up to three parts in memory.
func (b *bucket) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		err := write(w)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err) // io.EOF itself would end the file
		}
		_ = w.CloseWithError(err) // returns nil
	}()
	defer func() {
		_ = r.Close() // returns nil; ends write
		<-written
	}()
	var first bytes.Buffer
	size, err := io.Copy(&first, io.LimitReader(r, partBytes))
	if err != nil {
		return err
	}
	content := io.Reader(bytes.NewReader(first.Bytes()))
	if size == partBytes {
		content, size = io.MultiReader(content, r), -1
	}
	o := minio.PutObjectOptions{PartSize: partBytes, ContentType: "application/octet-stream"}
	if name == manifestName {
		b.mu.Lock()
		if b.manifest != "" {
			o.SetMatchETag(b.manifest)
		} else {
			o.SetMatchETagExcept("*")
		}
		b.mu.Unlock()
	}
	info, err := b.client.Client.PutObject(ctx, b.name, b.object(name), content, size, o)
	if err != nil {
		return b.failure(err)
	}
	if name == manifestName {
		b.saw(info.ETag)
	}
	return nil
}

// List implements Place.
func (b *bucket) List(ctx context.Context) (names []string, err error) {
	prefix := b.prefix
	if prefix != "" {
		prefix += "/"
	}
	for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, b.failure(o.Err)
		}
		if name := strings.TrimPrefix(o.Key, prefix); name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// Remove implements Place.
func (b *bucket) Remove(ctx context.Context, names ...string) error {
	results, err := b.client.RemoveObjectsWithIter(ctx, b.name, func(yield func(minio.ObjectInfo) bool) {
		for _, name := range names {
			if !yield(minio.ObjectInfo{Key: b.object(name)}) {
				return
			}
		}
	}, minio.RemoveObjectsOptions{})
	if err != nil {
		return b.failure(err)
	}
	for r := range results {
		if ferr := b.failure(r.Err); !errors.Is(ferr, fs.ErrNotExist) {
			err = errors.Join(err, ferr)
		}
	}
	return errors.Join(err, ctx.Err())
}
