package compat

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

// leaseTolerance is how many seconds of a lease's remaining time do not count.
const leaseTolerance = 120

// difference compares what both servers answered to c, and returns "" where
// that is the same.
func difference(c call, etcd, subject answer) string {
	if status.Code(etcd.err) != status.Code(subject.err) ||
		status.Convert(etcd.err).Message() != status.Convert(subject.err).Message() {
		return fmt.Sprintf("etcd:    %s\nsubject: %s", etcd, subject)
	}
	theirs, ours := etcd.messages, subject.messages
	if c.method == "KV/RangeStream" {
		var wrong string
		if ours, wrong = joinChunks(ours, subject.err); wrong != "" {
			return fmt.Sprintf("%s\nsubject: %s", wrong, subject)
		}
		theirs, _ = joinChunks(theirs, etcd.err)
	}
	if len(theirs) != len(ours) {
		return fmt.Sprintf("etcd:    %s\nsubject: %s", etcd, subject)
	}
	for i := range theirs {
		if d := messageDifference(masked(c, theirs[i]), masked(c, ours[i])); d != "" {
			return d
		}
	}
	return ""
}

func messageDifference(etcd, subject proto.Message) string {
	if proto.Equal(etcd, subject) {
		return ""
	}
	if proto.Size(etcd)+proto.Size(subject) > longestDiffed {
		return fmt.Sprintf("etcd:    %s\nsubject: %s\n(or in what long values are cut off here)", brief(etcd), brief(subject))
	}
	return fmt.Sprintf("-etcd +subject:\n%s", gocmp.Diff(etcd, subject, protocmp.Transform()))
}

// longestDiffed bounds the bytes that are compared in detail: that takes minutes
// where values are large.
const longestDiffed = 64 << 10

// masked returns a copy of m without the parts that may differ. It distinguishes a
// set id from a missing one.
func masked(c call, m proto.Message) proto.Message {
	m = proto.Clone(m)
	switch r := m.(type) {
	case *pb.StatusResponse:
		r.DbSize, r.DbSizeInUse = min(r.DbSize, 1), min(r.DbSizeInUse, 1)
		r.RaftIndex, r.RaftAppliedIndex, r.RaftTerm = min(r.RaftIndex, 1), min(r.RaftAppliedIndex, 1), min(r.RaftTerm, 1)
		r.Leader = min(r.Leader, 1)
		for i, e := range r.Errors {
			// Messages as text have one or two spaces, at the whim of the build.
			r.Errors[i] = strings.ReplaceAll(e, "  ", " ")
		}
		slices.Sort(r.Errors)
	case *pb.AlarmResponse:
		slices.SortFunc(r.Alarms, func(a, b *pb.AlarmMember) int { return cmp.Compare(a.MemberID, b.MemberID) })
	case *pb.LeaseTimeToLiveResponse:
		if r.TTL > 0 && r.TTL <= r.GrantedTTL && r.TTL >= r.GrantedTTL-leaseTolerance {
			r.TTL = r.GrantedTTL
		}
		slices.SortFunc(r.Keys, bytes.Compare) // etcd gives them in no order
	case *pb.LeaseGrantResponse:
		if g, ok := c.req.(*pb.LeaseGrantRequest); ok && g.ID == 0 && r.ID > 0 {
			r.ID = 1 // chosen by the server
		}
	case *pb.MemberListResponse:
		maskMembers(r.Members)
	case *pb.MemberUpdateResponse:
		maskMembers(r.Members)
	case *pb.AuthenticateResponse:
		r.Token = tokenForm(r.Token)
	case *pb.HashResponse:
		r.Hash = min(r.Hash, 1) // covers how the store keeps things
	}
	maskHeaders(m.ProtoReflect())
	return m
}

var simpleToken = regexp.MustCompile(`^[a-zA-Z]{16}\.[0-9]+$`)

// tokenForm returns the kind of a token, because tokens themselves are random.
func tokenForm(token string) string {
	switch {
	case simpleToken.MatchString(token):
		return "simple"
	case strings.Count(token, ".") == 2:
		return "jwt"
	}
	return token
}

func maskMembers(members []*pb.Member) {
	for _, m := range members {
		m.ID, m.ClientURLs, m.PeerURLs = min(m.ID, 1), nil, nil
	}
}

// maskHeaders masks the header of m, and of what is in it.
func maskHeaders(m protoreflect.Message) {
	if h, ok := m.Interface().(*pb.ResponseHeader); ok {
		h.ClusterId, h.MemberId, h.RaftTerm = min(h.ClusterId, 1), min(h.MemberId, 1), min(h.RaftTerm, 1)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				maskHeaders(v.List().Get(i).Message())
			}
		default:
			maskHeaders(v.Message())
		}
		return true
	})
}

// joinChunks makes one answer of the chunks of a RangeStream, since how they are
// cut is the server's affair. It says what is wrong with them in themselves.
func joinChunks(chunks []proto.Message, err error) (joined []proto.Message, wrong string) {
	if len(chunks) == 0 {
		if err == nil {
			return nil, "a stream without chunks"
		}
		return nil, ""
	}
	all := &pb.RangeResponse{}
	for i, m := range chunks {
		r := m.(*pb.RangeStreamResponse).RangeResponse
		last := i == len(chunks)-1 && err == nil
		if (r.Header != nil) != last || !last && (r.Count != 0 || r.More) {
			wrong = cmp.Or(wrong, fmt.Sprintf("chunk %d of %d: header, count and more belong on the last one", i, len(chunks)))
		}
		proto.Merge(all, r)
	}
	for i := range all.Kvs[min(1, len(all.Kvs)):] {
		if bytes.Compare(all.Kvs[i].Key, all.Kvs[i+1].Key) >= 0 {
			wrong = cmp.Or(wrong, fmt.Sprintf("key %q after %q", all.Kvs[i+1].Key, all.Kvs[i].Key))
		}
	}
	return []proto.Message{all}, wrong
}

// brief shows m on one line, long values cut.
func brief(m proto.Message) string {
	if m == nil {
		return ""
	}
	m = proto.Clone(m)
	cutValues(m.ProtoReflect())
	return prototext.MarshalOptions{}.Format(m)
}

const longestShown = 60

func cutValues(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				cutValues(v.List().Get(i).Message())
			}
		case f.IsList():
		case f.Message() != nil:
			cutValues(v.Message())
		case f.Kind() == protoreflect.BytesKind && len(v.Bytes()) > longestShown:
			b := v.Bytes()
			m.Set(f, protoreflect.ValueOfBytes(fmt.Appendf(nil, "%s... (%d bytes)", b[:longestShown/2], len(b))))
		}
		return true
	})
}
