package awsid_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var cases vectors.Cases

// Names of published vectors.
const (
	unknownRegion  = "naming a region that nobody knows"
	badSigningTime = "a signing time that is none"
	badPendingTime = "a time that is none"
)

// environment is what all vectors have in common: with these certificates, DER by region,
// and at this time a document is verified.
type environment struct {
	Time         time.Time         `json:"time"`
	Certificates map[string][]byte `json:"certificates"`
}

func TestMain(m *testing.M) {
	os.Exit(cases.Main(m, filepath.Join("..", "..", "vectors", "cloud", "awsid"), func() (any, error) {
		e := environment{now, map[string][]byte{}}
		for region, cert := range table() {
			e.Certificates[region] = cert.Raw
		}
		return e, nil
	}))
}

// keep makes a vector of a document.
func keep(t *testing.T, name string, data []byte, want refusal.Check) {
	t.Helper()
	v := vectors.Vector{Name: name, Expect: string(want), Document: data}
	if want == "" {
		d, err := awsid.Verify(data, table(), now)
		if err != nil {
			t.Error(err)
			return
		}
		v.Machine = d.InstanceID
	}
	cases.Add(v)
}

// TestVectors replays the vectors that are kept.
func TestVectors(t *testing.T) {
	var e environment
	list := testkit.Must(vectors.Load(testkit.VectorFolder(t, "cloud", "awsid"), &e))
	certificates := awsid.Certificates{}
	for region, der := range e.Certificates {
		certificates[region] = testkit.Must(x509.ParseCertificate(der))
	}
	for _, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			d, err := awsid.Verify(v.Document, certificates, e.Time)
			expect(t, d, err, refusal.Check(v.Expect))
			if err == nil && d.InstanceID != v.Machine {
				t.Errorf("got %s, want %s", d.InstanceID, v.Machine)
			}
		})
	}
}
