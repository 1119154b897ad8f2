package azure

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

var update = flag.Bool("update", false, "write the vectors in testdata/vectors/azure anew")

// vectorEnvironment is what all vectors have in common: under these certificates, DER, at
// this time, and for machines whose documents are under metadata.azure.com.
type vectorEnvironment struct {
	Time          time.Time `json:"time"`
	Roots         [][]byte  `json:"roots"`
	Intermediates [][]byte  `json:"intermediates"`
}

// maxVectorSize keeps documents out of the vectors whose size is all that is wrong.
const maxVectorSize = 32 << 10

// TestVectors replays the vectors that are kept, or writes them.
func TestVectors(t *testing.T) {
	folder := filepath.Join("..", "testdata", "vectors", "azure")
	if *update {
		writeVectors(t, folder)
	}
	var e vectorEnvironment
	list, err := vectors.Load(folder, &e)
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, VerifierConfig{Roots: parsed(t, e.Roots), Intermediates: parsed(t, e.Intermediates)})
	for _, vector := range list {
		t.Run(vector.Name, func(t *testing.T) {
			d, err := v.Verify(t.Context(), vector.Document, e.Time)
			if want := refusal.Check(vector.Expect); want != "" && !errors.Is(err, want) || (err == nil) != (want == "") {
				t.Fatalf("got %v, want %q", err, want)
			}
			if err != nil {
				return
			}
			if machine, err := d.Identity(); err != nil || string(machine) != vector.Machine {
				t.Errorf("got %s, %v, want %s", machine, err, vector.Machine)
			}
		})
	}
}

func parsed(t *testing.T, list [][]byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for _, der := range list {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, cert)
	}
	return certs
}

func writeVectors(t *testing.T, folder string) {
	b := testBench(t)
	e := vectorEnvironment{Time: testTime}
	for _, cert := range b.config().Roots {
		e.Roots = append(e.Roots, cert.Raw)
	}
	for _, cert := range b.config().Intermediates {
		e.Intermediates = append(e.Intermediates, cert.Raw)
	}
	w, err := vectors.NewWriter(folder, e)
	if err != nil {
		t.Fatal(err)
	}
	list := []vectors.Vector{{Name: "as-it-is", Machine: "azure:" + testSubscription + "/" + testVM, Document: must(b.good().marshal())}}
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
