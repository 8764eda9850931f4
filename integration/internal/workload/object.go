package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
)

// kind is a sort of Kubernetes object: where kube-apiserver keeps it and how
// large it is.
type kind struct {
	resource string  // the part of the key after the prefix
	share    int     // of 100 objects
	median   float64 // bytes of a value
	spread   float64 // standard deviation of the logarithm of the size
}

// kinds follow what clusters hold: many middling pods, small short-lived
// events, tiny leases, and a long tail of large configuration.
var kinds = []kind{
	{resource: "pods", share: 40, median: 4500, spread: 0.5},
	{resource: "events", share: 25, median: 900, spread: 0.4},
	{resource: "leases", share: 6, median: 520, spread: 0.1},
	{resource: "configmaps", share: 8, median: 2000, spread: 1.4},
	{resource: "secrets", share: 6, median: 1500, spread: 0.9},
	{resource: "example.io/widgets", share: 15, median: 3000, spread: 1.1},
}

const (
	minValue   = 16
	smallest   = 512      // bytes of a value, as in a cluster
	largest    = 50 << 10 // the same, but for the few huge ones
	huge       = 1 << 20  // bytes of a huge value
	hugeEvery  = 25_000   // one of so many objects is huge
	hugeAt     = 24       // the first of them
	namespaces = 50
	hugeKind   = 3         // index into kinds
	valueMagic = "k8s\x00" // Kubernetes' mark of a protobuf value
)

// generator makes keys and values, which depend only on the seed and the arguments. It is
// immutable, so safe for concurrent use.
type generator struct {
	seed   uint64
	prefix string
	size   int // bytes of every value; 0: by kind
}

// Purposes of an object's random sequences; those of its values are numbered
// from 0.
const (
	forKind = -1 - iota
	forName
	forSize
)

// rand returns the random sequence of an object for one purpose.
func (g *generator) rand(object, purpose int) *rand.Rand {
	return rand.New(rand.NewPCG(g.seed*0x9e3779b97f4a7c15+uint64(object), uint64(int64(purpose))))
}

func (g *generator) kindOf(object int) int {
	if g.isHuge(object) {
		return hugeKind
	}
	n := g.rand(object, forKind).IntN(100)
	for i, k := range kinds {
		if n -= k.share; n < 0 {
			return i
		}
	}
	return 0
}

func (g *generator) isHuge(object int) bool { return g.size == 0 && object%hugeEvery == hugeAt }

// resourcePrefix returns what kube-apiserver lists and watches for a kind.
func (g *generator) resourcePrefix(kind int) string {
	return g.prefix + "/" + kinds[kind].resource + "/"
}

// key returns the key of an object of the kind.
func (g *generator) key(object, kind int) string {
	r := g.rand(object, forName)
	u := r.Float64()
	ns := int(u * u * namespaces) // a few namespaces hold most
	name := strconv.Itoa(object) + "-" + strconv.FormatUint(36*36*36*36+r.Uint64N(35*36*36*36*36), 36)
	return g.resourcePrefix(kind) + fmt.Sprintf("ns-%03d/name-%s", ns, name)
}

// sizeOf returns the size of the value of an object's write.
func (g *generator) sizeOf(object, kind, write int) int {
	switch {
	case g.size > 0:
		return g.size
	case g.isHuge(object):
		return huge
	}
	k := kinds[kind]
	size := k.median * math.Exp(k.spread*g.rand(object, forSize).NormFloat64())
	size *= 0.9 + 0.2*g.rand(object, write).Float64() // a status grows and shrinks
	return int(min(max(size, smallest), largest))
}

// words fill values: half of the bytes repeat, as in real objects, half do not.
var words = [16]string{
	"metadata", "namespace", "labels", "app.kubernetes.io/name", "managedFields", "kubectl", "status", "conditions",
	"lastTransitionTime", "containerStatuses", "resources", "limits", "requests", "volumeMounts", "ownerReferences",
	"spec",
}

// value returns the value of an object's write, counted from 0. No two writes
// of a run have the same.
func (g *generator) value(object, kind, write int) []byte {
	size := g.sizeOf(object, kind, write)
	b := make([]byte, 0, size+32)
	b = append(b, valueMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(object))
	b = binary.BigEndian.AppendUint32(b, uint32(write))
	r := g.rand(object, write)
	for len(b) < size {
		n := r.Uint64()
		b = append(b, words[n&15]...)
		b = binary.LittleEndian.AppendUint64(b, n)
		b = binary.LittleEndian.AppendUint64(b, n*0x9e3779b97f4a7c15)
	}
	return b[:size]
}

// writeOf returns the number of the write that a value belongs to.
func writeOf(value []byte) (write int, ok bool) {
	rest, ok := bytes.CutPrefix(value, []byte(valueMagic))
	if !ok || len(rest) < 12 {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(rest[8:])), true
}
