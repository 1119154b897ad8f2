package nitro

import (
	"crypto/x509"
	"errors"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/refusal"
)

var update = flag.Bool("update", false, "write the vectors in testdata/vectors/nitro anew")

// vectorEnvironment is what all vectors have in common: under these roots, DER, at this
// time.
type vectorEnvironment struct {
	Time  time.Time `json:"time"`
	Roots [][]byte  `json:"roots"`
}

// maxVectorSize keeps documents out of the vectors whose size is all that is wrong.
const maxVectorSize = 32 << 10

// TestVectors replays the vectors that are kept, or writes them.
func TestVectors(t *testing.T) {
	folder := filepath.Join("..", "testdata", "vectors", "nitro")
	if *update {
		writeVectors(t, folder)
	}
	var e vectorEnvironment
	list, err := vectors.Load(folder, &e)
	if err != nil {
		t.Fatal(err)
	}
	var roots []*x509.Certificate
	for _, der := range e.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
	}
	v, err := NewVerifier(VerifierConfig{Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	for _, vector := range list {
		t.Run(vector.Name, func(t *testing.T) {
			d, err := v.Verify(t.Context(), vector.Document, e.Time)
			if want := refusal.Check(vector.Expect); want != "" && !errors.Is(err, want) || (err == nil) != (want == "") {
				t.Fatalf("got %v, want %q", err, want)
			}
			if err != nil {
				return
			}
			if machine, err := Identity(d.Region, d.InstanceID); err != nil || string(machine) != vector.Machine {
				t.Errorf("got %s, %v, want %s", machine, err, vector.Machine)
			}
		})
	}
}

func writeVectors(t *testing.T, folder string) {
	b := newBench()
	e := vectorEnvironment{Time: testTime}
	for _, root := range b.roots() {
		e.Roots = append(e.Roots, root.Raw)
	}
	w, err := vectors.NewWriter(folder, e)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := Identity(testRegion, testInstance)
	if err != nil {
		t.Fatal(err)
	}
	var list []vectors.Vector
	for name, data := range goodForms(b) {
		list = append(list, vectors.Vector{Name: name, Machine: string(machine), Document: data})
	}
	for _, a := range attacks() {
		list = append(list, vectors.Vector{Name: a.name, Expect: string(a.want), Document: a.forged(b)})
	}
	for _, v := range list {
		if len(v.Document) > maxVectorSize {
			continue
		}
		if err := w.Write(v); err != nil {
			t.Error(err)
		}
	}
}
