package awsid_test

import (
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var (
	update = flag.Bool("update", false, "write the vectors in ../../vectors/cloud/awsid anew")
	folder = filepath.Join("..", "..", "vectors", "cloud", "awsid")
	writer vectors.Writer // without -update it only compares the names
)

// environment is what all vectors have in common: with these certificates, DER by region,
// and at this time a document is verified.
type environment struct {
	Time         time.Time         `json:"time"`
	Certificates map[string][]byte `json:"certificates"`
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *update {
		e := environment{now, map[string][]byte{}}
		for region, cert := range table() {
			e.Certificates[region] = cert.Raw
		}
		w, err := vectors.NewWriter(folder, e)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		writer = *w
	}
	os.Exit(writer.Main(m, folder))
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
	if err := writer.Write(v); err != nil {
		t.Error(err)
	}
}

// TestVectors replays the vectors that are kept.
func TestVectors(t *testing.T) {
	if *update {
		t.Skip("the vectors are being written")
	}
	var e environment
	list, err := vectors.Load(testkit.VectorFolder(t, "cloud", "awsid"), &e)
	if err != nil {
		t.Fatal(err)
	}
	certificates := awsid.Certificates{}
	for region, der := range e.Certificates {
		if certificates[region], err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
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
